"""Column matrices: their layouts and shapes, and the integers that loops and kernels take of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Container
from typing import Any, Literal, NamedTuple

from minicaffe.core.ops.geometry import Sizes, Window, lift
from minicaffe.errors import ShapeError, did_you_mean

NAMED = ("caffe", "columns", "rows")  # those of minicaffe.im2col
# The axes of the matrices of each layout, K and P being those of the kernel and of the places.
LAYOUTS = {
    "caffe": "n cK P",
    "columns": "cK nP",
    "rows": "nP cK",
    "patches": "cnP K",
    "points": "K cPn",
}
Layout = Literal["caffe", "columns", "rows", "patches", "points"]


class Numbers(NamedTuple):
    """What loops and kernels take: the places; a kernel's integers; a loop's shapes, along three axes; and
    distances in the columns: from a sample, a channel, a kernel element and a place to the next.
    """

    places: Sizes
    sizes: Sizes
    shapes: tuple[Any, ...]
    steps: Sizes


def column_shape(x_shape: Sizes, window: Window, layout: str = "caffe") -> Sizes:
    """The shape of the column matrices of x (n, c, *image): r = c * kernel rows, p = prod(out) places.

    caffe: (n, r, p), a matrix a sample. columns: (r, n p), a column a window. rows: (n p, r), a row
    a window. patches: (c n p, kernel), a row a window and channel, channel by channel. The CPU's own, for
    images that are `side_by_side`: points: (kernel, c p n), a row a kernel element.
    Raises ShapeError for an unknown layout or a window that does not fit.

    >>> column_shape((2, 3, 5, 5), Window((3, 3)), "rows")
    (18, 27)
    """
    matrix = LAYOUTS[named(layout, LAYOUTS)]
    n, c, *image = x_shape
    k, p = math.prod(window.kernel), math.prod(window.outputs(tuple(image)))
    sizes = {"n": n, "c": c, "K": k, "P": p}
    return tuple(math.prod(sizes[axis] for axis in axes) for axes in matrix.split())


def named(layout: str, known: Container[str] = NAMED) -> str:
    """A layout by its name. Raises ShapeError for one that is not known."""
    if layout not in known:
        hint = did_you_mean(layout, NAMED)
        raise ShapeError(f"layout {layout!r} is not one of {', '.join(NAMED)}{hint}")
    return layout


@functools.lru_cache(maxsize=4096)
def axes(x_shape: Sizes, window: Window, places: Sizes | None, layout: str) -> tuple[Sizes, Sizes]:
    """The sizes of all axes as columns of a layout have them, and their order in (n, c, *kernel, *places)."""
    n, c, *image = x_shape
    places = places or window.outputs(tuple(image))
    sizes = {"n": (n,), "c": (c,), "K": window.kernel, "P": places}
    named = [
        (axis, i, size)
        for axis in LAYOUTS[layout].replace(" ", "")
        for i, size in enumerate(sizes[axis])
    ]
    as_laid = [(axis, i) for axis, i, _ in named]
    order = [as_laid.index((axis, i)) for axis in sizes for i in range(len(sizes[axis]))]
    return tuple(size for *_, size in named), tuple(order)


@functools.lru_cache(maxsize=4096)
def numbers_of(shape: Sizes, window: Window, places: Sizes | None, layout: str) -> Numbers:
    """What loops and kernels take of images of a shape (n, c, *image)."""
    n, c, *image = shape
    places = places or window.outputs(tuple(image))
    kernel, stride, pad, dilation = window.lifted()
    sizes = (n, c, *lift(tuple(image)), *kernel, *pad, *stride, *dilation, *lift(places))
    k, p = math.prod(kernel), math.prod(places)
    behind = "".join(LAYOUTS[layout].split())
    counts = {"n": n, "c": c, "K": k, "P": p}
    steps = tuple(
        math.prod(counts[axis] for axis in behind[behind.index(one) + 1 :]) for one in counts
    )
    shapes = (c, lift(tuple(image)), window.lifted(), lift(places))
    return Numbers(places, (*sizes, list(LAYOUTS).index(layout)), shapes, steps)
