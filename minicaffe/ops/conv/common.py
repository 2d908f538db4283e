"""What the engines share: the bias, and sums of the weight's gradient taken thread by thread."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.cpu import loops, no_bias, with_blas
from minicaffe.cpu.threads import LINE
from minicaffe.ops import arrays
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.ops.sums import add_places
from minicaffe.replay.dispatch import in_slices, run
from minicaffe.replay.trace import do

COPIED = 3 * 2**19  # entries of columns and outputs from which it pays to wake threads for NumPy,
EACH = 2**18  # and that one has at least


def recordable(dtype: Any) -> bool:
    """Whether loops that call BLAS serve arrays of a type."""
    return with_blas("filters", no_bias(np.dtype(dtype)))[0] is not None


def is_product(g: ConvGeometry) -> bool:
    """Whether each image is one place, and all is one product of matrices (n, c) and (c, f)."""
    return g.group == 1 and g.window.is_point and g.places == 1


def is_depthwise(g: ConvGeometry) -> bool:
    """Whether each channel has one filter of its own, along two axes at the most, with stride 1."""
    plain = len(g.image) <= 2 and all(stride == 1 for stride in g.window.stride)
    return plain and g.c == g.f == g.group


def add_pieces(work: Any, slices: int, start: int, g: ConvGeometry, out: Any) -> None:
    """Add what slices of a compiled loop summed to `out`, in their order.

    From `start` of each one's piece of `work` on lies a matrix (k, f) for each group.
    """
    sizes = g.f // g.group, g.rows // g.group
    run(_loops(out).add_pieces, g.f, work, slices, start, sizes, out.reshape(-1))


def by_samples(part: Callable[..., None], g: ConvGeometry, work: Any) -> list[Any]:
    """Run a part over slices of the samples, with a piece of the work each, as `in_slices` has it."""
    each = 1 + g.column_elements + g.f * g.places
    return in_slices(part, g.n, work, 1 + EACH // each, 1 + COPIED // each, noted=True)


def fill(value: float, out: Any) -> None:
    """out = value, everywhere, on either device; for `trace.do`."""
    out.fill(value)


def plus(x: Any, out: Any) -> None:
    """out += x, likewise."""
    out += x


def copy(x: Any, out: Any) -> None:
    """out = x, likewise."""
    out[...] = x


def partial_sums(work: Any, g: ConvGeometry) -> Any:
    """Where a thread sums its samples' share of dweight, zeroed: the end of its work, a matrix a group."""
    sums = work[work.size - math.prod(g.weight_shape) :]
    do(fill, 0, out=sums)
    return sums.reshape(g.group, g.f // g.group, -1)


def add_partial_sums(pieces: list[Any], out: Any) -> None:
    """Add what each thread has summed in its piece of the work to `out`, in the order of the threads."""
    for piece in pieces:
        do(plus, piece[piece.size - out.size :].reshape(out.shape), out=out)


def add_bias(bias: Any | None, out: Any) -> None:
    """Add bias (f,) to out (n, f, *out)."""
    if bias is None:
        return
    n, f, *sizes = out.shape
    if (fast := _loops(out)) is not None:
        run(fast.add_bias, n * f, bias, f, math.prod(sizes), out.reshape(-1))
        return
    arrays.add(bias.reshape(-1, 1), out.reshape(n, f, math.prod(sizes)))


def bias_workspace(g: ConvGeometry, cuda: bool = False) -> int:
    """Elements for each thread that the sums of `bias_gradient` take; on CUDA, that it is quicker with."""
    return max(g.places, g.n) + (g.n + 1) * g.f if cuda else -(-g.f // LINE) * LINE


def bias_gradient(dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dbias = sum over samples of dy 1, added to `out`. NumPy's threads sum at the end of their work."""
    dy = dy.reshape(g.n, g.f, g.places)
    if on_cuda(dy):
        return add_places(dy, out, work)
    if (fast := _loops(dy)) is not None:
        run(fast.bias_gradient, g.f, dy.reshape(-1), g.n, g.f, g.places, out)
        return out

    def part(first: int, last: int, work: Any) -> None:
        add_places(dy[first:last], work[-g.f :], add=False)

    for piece in by_samples(part, g, work):
        do(plus, piece[-g.f :], out=out)
    return out


def _loops(array: Any) -> Any:
    """The compiled loops, if they serve an array."""
    return loops("filters", array.dtype) if isinstance(array, np.ndarray) else None
