"""The opposite of max pooling: a mask of the places of maxima, and pixels back to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.core.ops import arrays
from minicaffe.core.ops.arrays import GRAIN
from minicaffe.core.ops.geometry import Window
from minicaffe.errors import DataError

NOWHERE = -1


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
    if on_cuda(which):
        sizes = corners.size, window.kernel[1], width
        launch("unpool.cu", "winners", which.size, out, which, corners, *sizes, out)
        return out
    trace.host("a mask")
    kernel = window.kernel[1]
    np.floor_divide(which, kernel, out=place)
    np.multiply(place, width - kernel, out=place)
    np.add(place, which, out=place)
    np.add(place, corners, out=place)
    np.less(which, 0, out=none)
    np.copyto(out, place)
    np.copyto(out, -1, where=none)
    return out


def places(mask: Any, image: tuple[int, int], out: Any, refused: Any) -> Any:
    """A mask's numbers as int64 `out`: places y w + x of an image (h, w), -1 for none, -2 for others.

    Raises DataError for a place outside; not on CUDA, which is not waited for: see `check`. A replay sets
    `refused`, one int32, to 1 instead.

    >>> places(np.array([3.0, -1.0]), (2, 2), np.empty(2, np.int64), np.zeros(1, np.int32))
    array([ 3, -1])
    """
    h, w = image
    if on_cuda(mask):
        launch("unpool.cu", "mask_places", mask.size, mask, mask, h * w, out)
        return out
    fast = loops("gather", mask.dtype)
    if fast is not None:
        flat = mask.reshape(-1), h * w, out.reshape(-1), refused
        run(fast.mask_places, mask.size, *flat, grain=GRAIN)
        if not refused[0]:
            return out
        refused[0] = 0
    check(mask, image)
    np.copyto(out, mask, casting="unsafe")
    return out


def check(mask: np.ndarray, image: tuple[int, int]) -> None:
    """Raise DataError for a number of the host's mask that is no place of an image (h, w), nor -1."""
    (h, w), lowest, highest = image, mask.min(initial=0), mask.max(initial=0)
    if not (lowest >= NOWHERE and highest < h * w):
        odd = highest if highest >= h * w else lowest
        raise DataError(f"place {odd:g} of the mask is not in the image of {h} x {w}")


def unpool(x: Any, place: Any, out: Any, winner: Any) -> Any:
    """y = 0 but y[place[i]] = x[i], plane by plane; of pixels with one place the last is there.

    x and place (n, c, h, w); out and winner, an int32 scratch, (n, c, oh, ow). A place outside makes its
    plane's first pixel NaN.

    >>> x, place = np.array([5.0, 7.0]).reshape(1, 1, 1, 2), np.array([[[[2, 0]]]])
    >>> unpool(x, place, np.empty((1, 1, 1, 3)), np.empty((1, 1, 1, 3), np.int32)).ravel()
    array([7., 0., 5.])
    """
    pixels, size = math.prod(x.shape[2:]), math.prod(out.shape[2:])
    if on_cuda(x):
        arrays.fill(winner, -1)
        launch("unpool.cu", "claim", x.size, x, place, pixels, size, winner)
        launch("unpool.cu", "unpool", out.size, x, x, pixels, size, winner, out)
        return out
    fast = loops("gather", x.dtype)
    if fast is not None:
        planes, flat = math.prod(x.shape[:2]), (x.reshape(-1), place.reshape(-1))
        run(fast.unpool, planes, *flat, pixels, size, out.reshape(-1))
        return out
    trace.host("places by NumPy")
    out.fill(0)
    planes = x.reshape(-1, pixels), place.reshape(-1, pixels), out.reshape(-1, size)
    for values, where, to in zip(*planes, strict=True):
        if where.min(initial=0) == NOWHERE:
            values, where = values[where >= 0], where[where >= 0]
        to[where] = values
    return out


def unpool_gradient(dy: Any, place: Any, out: Any) -> Any:
    """dx[i] = dy[place[i]], 0 where that is none."""
    pixels, size = math.prod(out.shape[2:]), math.prod(dy.shape[2:])
    if on_cuda(dy):
        launch("unpool.cu", "unpool_gradient", out.size, dy, dy, place, pixels, size, out)
        return out
    fast = loops("gather", dy.dtype)
    if fast is not None:
        planes, flat = math.prod(out.shape[:2]), (dy.reshape(-1), place.reshape(-1))
        run(fast.unpool_gradient, planes, *flat, pixels, size, out.reshape(-1))
        return out
    trace.host("places by NumPy")
    planes = dy.reshape(-1, size), place.reshape(-1, pixels), out.reshape(-1, pixels)
    for values, where, to in zip(*planes, strict=True):
        np.take(values, where, out=to, mode="clip")
        if where.min(initial=0) == NOWHERE:
            to[where < 0] = 0
    return out
