"""Stochastic pooling: a pixel of each window drawn by its share of the window's sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.geometry import Window

TINY = float(np.finfo(np.float32).tiny)  # keeps a window of zeros from 0 / 0, as in Caffe


@op("out which work", samples="x noise out which work", grain=1, worth=0, replays=False)
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
    wanted, so_far, open_, reached = work
    for array, start in ((out, 0), (which, -1), (wanted, 0), (so_far, 0), (open_, True)):
        array.fill(start)
    parts = window.elements(x.shape[2:], out.shape[2:])
    for _, (oy, ox), (iy, ix) in parts:
        wanted[:, :, oy, ox] += x[:, :, iy, ix]
    np.multiply(wanted, noise, out=wanted)
    for (i, j), (oy, ox), (iy, ix) in parts:
        here = (slice(None), slice(None), oy, ox)
        pixel, is_open, so = x[:, :, iy, ix], open_[here], so_far[here]
        np.copyto(which[here], i * window.kernel[1] + j, where=is_open)
        np.copyto(out[here], pixel, where=is_open)
        np.add(so, pixel, out=so)
        np.greater_equal(so, wanted[here], out=reached[here])
        np.greater(is_open, reached[here], out=is_open)  # open, and not reached


@op("out total", samples="x out total", grain=1, worth=0, replays=False)
def expected_pool(x: Any, window: Window, out: Any, total: Any) -> Any:
    """y[o] = sum of x^2 / sum of x over window o: the mean of what is drawn. `total` is left the sum.

    Of x of 16 bits the sum, which may be more than those hold, is float32.

    >>> x, y = np.array([[1.0, 3.0]]).reshape(1, 1, 1, 2), np.empty((1, 1, 1, 1))
    >>> expected_pool(x, Window((1, 2)), y, y.copy()).item()
    2.5
    """
    parts = window.elements(x.shape[2:], out.shape[2:])
    out.fill(0)
    for _, (oy, ox), (iy, ix) in parts:
        square = total[:, :, oy, ox]  # for the time being
        out[:, :, oy, ox] += np.square(x[:, :, iy, ix], out=square)
    total.fill(TINY)
    for _, (oy, ox), (iy, ix) in parts:
        total[:, :, oy, ox] += x[:, :, iy, ix]
    np.divide(out, total, out=out)


@op("out share", samples="dy x y total out share", grain=1, worth=0, replays=False)
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
    parts = window.elements(x.shape[2:], dy.shape[2:])
    np.greater(total, TINY, out=share)
    np.multiply(share, dy, out=share)
    np.divide(share, total, out=share)
    out.fill(0)
    for _, (oy, ox), (iy, ix) in parts:
        out[:, :, iy, ix] += share[:, :, oy, ox]
    np.multiply(out, x, out=out)
    np.multiply(out, 2, out=out)
    np.multiply(share, y, out=share)
    for _, (oy, ox), (iy, ix) in parts:
        out[:, :, iy, ix] -= share[:, :, oy, ox]
