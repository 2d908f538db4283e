"""Stochastic pooling: a pixel of each window drawn by its share of the window's sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu.run import in_slices
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.core.ops.geometry import Window

TINY = float(np.finfo(np.float32).tiny)  # keeps a window of zeros from 0 / 0, as in Caffe


def draw_pool(x: Any, window: Window, noise: Any, out: Any, which: Any, work: Any) -> Any:
    """y[o] = the first pixel of window o at which the sum so far reaches noise[o] times the whole sum.

    `which` (int32) is the number i kw + j of the kernel element that saw it, for `max_pool_gradient`; of
    a window wholly past the image -1, and y 0. If no pixel reaches it, which takes negative ones, it is the
    last. noise in [0, 1) is float32; `work` is scratch of y's shape: two arrays of x's type, two bool. The
    window has no padding. Source: Caffe's PoolingLayer; M. Zeiler, R. Fergus, Stochastic Pooling, 2013.

    >>> x, y = np.array([[1.0, 3.0]]).reshape(1, 1, 1, 2), np.empty((1, 1, 1, 1))
    >>> which, work = np.empty(y.shape, np.int32), [np.empty(y.shape, t) for t in (float, float, bool, bool)]
    >>> draw_pool(x, Window((1, 2)), np.full(y.shape, 0.5, np.float32), y, which, work).item()
    3.0
    """
    if on_cuda(x):
        given = x, noise, *_sizes(x, window, out), out, which
        launch("stochastic.cu", "draw_pool", out.size, x, *given)
        return out

    def part(first: int, last: int, _: Any) -> None:
        image, y, found, wanted, so_far, open_, reached = (
            array[first:last] for array in (x, out, which, *work)
        )
        for array, start in ((y, 0), (found, -1), (wanted, 0), (so_far, 0), (open_, True)):
            array.fill(start)
        parts = list(window.elements(x.shape[2:], out.shape[2:]))
        for _, (oy, ox), (iy, ix) in parts:
            wanted[:, :, oy, ox] += image[:, :, iy, ix]
        np.multiply(wanted, noise[first:last], out=wanted)
        for (i, j), (oy, ox), (iy, ix) in parts:
            here = (slice(None), slice(None), oy, ox)
            pixel, is_open, so = image[:, :, iy, ix], open_[here], so_far[here]
            np.copyto(found[here], i * window.kernel[1] + j, where=is_open)
            np.copyto(y[here], pixel, where=is_open)
            np.add(so, pixel, out=so)
            np.greater_equal(so, wanted[here], out=reached[here])
            np.greater(is_open, reached[here], out=is_open)  # open, and not reached

    in_slices(part, len(x))
    return out


def expected_pool(x: Any, window: Window, out: Any, total: Any) -> Any:
    """y[o] = sum of x^2 / sum of x over window o: the mean of what is drawn. `total` is left the sum.

    Of x of 16 bits the sum, which may be more than those hold, is float32.

    >>> x, y = np.array([[1.0, 3.0]]).reshape(1, 1, 1, 2), np.empty((1, 1, 1, 1))
    >>> expected_pool(x, Window((1, 2)), y, y.copy()).item()
    2.5
    """
    if on_cuda(x):
        given = x, *_sizes(x, window, out), out, total
        launch("stochastic.cu", "expected_pool", out.size, x, *given)
        return out

    def part(first: int, last: int, _: Any) -> None:
        image, y, sums = x[first:last], out[first:last], total[first:last]
        parts = list(window.elements(x.shape[2:], out.shape[2:]))
        y.fill(0)
        for _, (oy, ox), (iy, ix) in parts:
            square = sums[:, :, oy, ox]  # for the time being
            y[:, :, oy, ox] += np.square(image[:, :, iy, ix], out=square)
        sums.fill(TINY)
        for _, (oy, ox), (iy, ix) in parts:
            sums[:, :, oy, ox] += image[:, :, iy, ix]
        np.divide(y, sums, out=y)

    in_slices(part, len(x))
    return out


def expected_pool_gradient(
    dy: Any, x: Any, y: Any, total: Any, window: Window, out: Any, share: Any
) -> Any:
    """dx[i] = sum of dy (2 x[i] - y) / total over the windows that hold i and are not all 0.

    `share` is scratch of dy's shape.

    >>> x, one = np.array([[1.0, 3.0]]).reshape(1, 1, 1, 2), np.ones((1, 1, 1, 1))
    >>> given = one, x, 2.5 * one, 4 * one, Window((1, 2)), np.empty_like(x), one.copy()
    >>> expected_pool_gradient(*given).ravel()
    array([-0.125,  0.875])
    """
    if on_cuda(dy):
        given = dy, x, y, total, *_sizes(x, window, dy), out
        launch("stochastic.cu", "expected_pool_gradient", x.size, x, *given)
        return out

    def part(first: int, last: int, _: Any) -> None:
        here = slice(first, last)
        dx, ratio = out[here], share[here]
        parts = list(window.elements(x.shape[2:], dy.shape[2:]))
        np.greater(total[here], TINY, out=ratio)
        np.multiply(ratio, dy[here], out=ratio)
        np.divide(ratio, total[here], out=ratio)
        dx.fill(0)
        for _, (oy, ox), (iy, ix) in parts:
            dx[:, :, iy, ix] += ratio[:, :, oy, ox]
        np.multiply(dx, x[here], out=dx)
        np.multiply(dx, 2, out=dx)
        np.multiply(ratio, y[here], out=ratio)
        for _, (oy, ox), (iy, ix) in parts:
            dx[:, :, iy, ix] -= ratio[:, :, oy, ox]

    in_slices(part, len(x))
    return out


def _sizes(image: Any, window: Window, pooled: Any) -> tuple[int, ...]:
    return (*image.shape[2:], *window.kernel, *window.stride, *pooled.shape[2:])
