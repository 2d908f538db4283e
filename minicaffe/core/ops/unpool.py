"""The opposite of max pooling: a mask of the places of maxima, and pixels back to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.geometry import Window
from minicaffe.errors import DataError

NOWHERE = -1


@op(replays=False)
def mask(
    which: Any, window: Window, width: int, corners: Any, out: Any, place: Any, none: Any
) -> Any:
    """The place y w + x of each window's winner in its image, w being its `width`; -1 if there is none.

    `which` (n, c, oh, ow) numbers the winner in its window, row by row; `corners` (oh, ow) are the windows'
    first places. `place` (int32) and `none` (bool) are scratch of which's shape, for the CPU.

    >>> which, corners = np.array([[[[3, -1]]]], np.int32), np.array([[0, 2]])
    >>> mask(which, Window((2, 2), (2, 2)), 4, corners, np.empty((1, 1, 1, 2)), which.copy(), which < 0)
    array([[[[ 5., -1.]]]])
    """
    kernel = window.kernel[1]
    np.floor_divide(which, kernel, out=place)
    np.multiply(place, width - kernel, out=place)
    np.add(place, which, out=place)
    np.add(place, corners, out=place)
    np.less(which, 0, out=none)
    np.copyto(out, place)
    np.copyto(out, -1, where=none)


@op(replays=False)
def places(mask: Any, image: tuple[int, int], out: Any, refused: Any) -> Any:
    """A mask's numbers as int64 `out`: places y w + x of an image (h, w), -1 for none, -2 for others.

    Raises DataError for a place outside; not on CUDA, which is not waited for: see `check`. A replay sets
    `refused`, one int32, to 1 instead.

    >>> places(np.array([3.0, -1.0]), (2, 2), np.empty(2, np.int64), np.zeros(1, np.int32))
    array([ 3, -1])
    """
    check(mask, image)
    np.copyto(out, mask, casting="unsafe")


def check(mask: np.ndarray, image: tuple[int, int]) -> None:
    """Raise DataError for a number of the host's mask that is no place of an image (h, w), nor -1."""
    (h, w), lowest, highest = image, mask.min(initial=0), mask.max(initial=0)
    if not (lowest >= NOWHERE and highest < h * w):
        odd = highest if highest >= h * w else lowest
        raise DataError(f"place {odd:g} of the mask is not in the image of {h} x {w}")


@op(replays=False)
def unpool(x: Any, place: Any, out: Any, winner: Any) -> Any:
    """y = 0 but y[place[i]] = x[i], plane by plane; of pixels with one place the last is there.

    x and place (n, c, h, w); out and winner, an int32 scratch, (n, c, oh, ow). A place outside makes its
    plane's first pixel NaN.

    >>> x, place = np.array([5.0, 7.0]).reshape(1, 1, 1, 2), np.array([[[[2, 0]]]])
    >>> unpool(x, place, np.empty((1, 1, 1, 3)), np.empty((1, 1, 1, 3), np.int32)).ravel()
    array([7., 0., 5.])
    """
    pixels, size = math.prod(x.shape[2:]), math.prod(out.shape[2:])
    out.fill(0)
    planes = x.reshape(-1, pixels), place.reshape(-1, pixels), out.reshape(-1, size)
    for values, where, to in zip(*planes, strict=True):
        if where.min(initial=0) == NOWHERE:
            values, where = values[where >= 0], where[where >= 0]
        to[where] = values


@op(replays=False)
def unpool_gradient(dy: Any, place: Any, out: Any) -> Any:
    """dx[i] = dy[place[i]], 0 where that is none."""
    pixels, size = math.prod(out.shape[2:]), math.prod(dy.shape[2:])
    planes = dy.reshape(-1, size), place.reshape(-1, pixels), out.reshape(-1, pixels)
    for values, where, to in zip(*planes, strict=True):
        np.take(values, where, out=to, mode="clip")
        if where.min(initial=0) == NOWHERE:
            to[where < 0] = 0
