"""Local response normalisation over windows of (m, h, w) that are cut off where the image ends.

Along the channels of (n, c, h, w) it is seen as (n, c, h w), with windows of one column; within the channels,
as (n c, h, w).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.core.ops.sums import in_sum_type

STRIP = 256  # columns of a unit of the compiled loops


@dataclass(frozen=True)
class Response:
    """s = base + alpha (sum of x^2 over a window), y = x s^-beta.

    The image is (m, h, w), the window reaches `up` rows up and down and `side` columns to either side.
    """

    image: tuple[int, int, int]
    up: int
    side: int
    base: float
    alpha: float
    beta: float


def lrn(x: Any, response: Response, s: Any, out: Any, work: Any) -> Any:
    """y = x s^-beta; leaves s, of float32 where x is of 16 bits, for the gradient.

    `work` is of 2 x.size; on the CPU s may be its second half.

    >>> x, s = np.array([[[1.0], [2.0], [3.0]]]), np.empty((1, 3, 1))
    >>> lrn(x, Response((1, 3, 1), 1, 0, 1, 1.0, 1.0), s, np.empty_like(x), np.empty(6)).ravel() * s.ravel()
    array([1., 2., 3.])
    >>> s.ravel()
    array([ 6., 15., 14.])
    """
    r = response
    if x.size == 0:
        return out
    if on_cuda(x):
        kind = s.dtype.type
        sizes, numbers = (*r.image[1:], r.up, r.side), (kind(r.base), kind(r.alpha), kind(r.beta))
        launch("lrn.cu", "lrn", x.size, out, x, *sizes, *numbers, s, out)
        return out
    if (found := _loops(x, r)) is not None:
        (loop, _), units, given = found
        run(loop, units, x.reshape(-1), *given, work, s.reshape(-1), out.reshape(-1))
        return out
    squares, spare = work[: 2 * x.size].reshape(2, *r.image)
    there, y = x.reshape(r.image), out.reshape(r.image)
    np.multiply(there, there, out=squares)
    sums = _around(squares, r, spare)
    s = s.reshape(r.image)
    np.multiply(sums, r.alpha, out=s)
    np.add(s, r.base, out=s)
    np.power(s, -r.beta, out=y)
    np.multiply(y, there, out=y)
    return out


def lrn_gradient(x: Any, dy: Any, response: Response, s: Any, out: Any, work: Any) -> Any:
    """dx = dy s^-beta - 2 alpha beta x (sum of dy y / s over the windows that hold x).

    >>> x = s = np.ones((1, 1, 1))  # s = alpha x^2 and y = 1 / x, if only in one place
    >>> lrn_gradient(x, x, Response((1, 1, 1), 1, 0, 0, 1.0, 1.0), s, np.empty_like(x), np.empty(2)).item()
    -1.0
    """
    r = response
    if x.size == 0:
        return out
    if on_cuda(x):
        kind, ratio = s.dtype.type, in_sum_type(work, x)[: x.size]
        sizes, numbers = (*r.image[1:], r.up, r.side), (kind(r.alpha), kind(r.beta))
        launch("lrn.cu", "lrn_ratio", x.size, out, x, dy, s, numbers[1], ratio)
        launch("lrn.cu", "lrn_gradient", x.size, out, x, dy, s, ratio, *sizes, *numbers, out)
        return out
    if (found := _loops(x, r)) is not None:
        (_, loop), units, given = found
        scratch = s.reshape(-1), work[: x.size], work[x.size : 2 * x.size]
        run(loop, units, x.reshape(-1), dy.reshape(-1), *given, *scratch, out.reshape(-1))
        return out
    ratio, spare = work[: 2 * x.size].reshape(2, *r.image)
    there, dy, s, dx = (array.reshape(r.image) for array in (x, dy, s, out))
    np.power(s, -r.beta, out=dx)
    np.multiply(dx, dy, out=dx)
    np.multiply(dx, there, out=ratio)
    np.divide(ratio, s, out=ratio)
    sums = _around(ratio, r, spare)
    np.multiply(sums, there, out=sums)
    np.multiply(sums, 2 * r.alpha * r.beta, out=sums)
    np.subtract(dx, sums, out=dx)
    return out


def _loops(x: Any, r: Response) -> Any:
    """The compiled loops, how many units they take, and their sizes and numbers; None without Numba."""
    fast = loops("lrn", x.dtype)
    if fast is None:
        trace.host("LRN by NumPy")
        return None
    m, h, w = r.image
    wide = w if r.side else min(w, STRIP)
    numbers = tuple(map(x.dtype.type, (r.base, r.alpha, r.beta)))
    units = m * -(-w // wide)
    return fast.of(x.dtype, r.beta == 0.75), units, ((h, w, wide), (r.up, r.side), numbers)


def _around(values: Any, r: Response, spare: Any) -> Any:
    """The sum of the values over each one's window, in `spare` or, by way of it, in `values`."""
    for axis, reach in ((1, r.up), (2, r.side)):
        if reach == 0:
            continue
        np.copyto(spare, values)
        for step in range(1, min(reach, values.shape[axis] - 1) + 1):
            low = (slice(None),) * axis + (slice(None, -step),)
            high = (slice(None),) * axis + (slice(step, None),)
            spare[low] += values[high]
            spare[high] += values[low]
        values, spare = spare, values
    return values
