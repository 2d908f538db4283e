"""Local response normalisation over windows of (m, h, w) that are cut off where the image ends.

Along channels of (n, c, h, w) it is seen as (n, c, h w), in windows of a column; within them, as (n c, h, w).
"""

from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends.dispatch import op


class Response(NamedTuple):
    """s = base + alpha (sum of x^2 over a window), y = x s^-beta."""

    image: tuple[int, int, int]  # (m, h, w)
    up: int  # rows that the window reaches up and down
    side: int  # columns that it reaches to either side
    base: float
    alpha: float
    beta: float


@op("out s work", replays=False)
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
    squares, spare = work[: 2 * x.size].reshape(2, *r.image)
    image, y = x.reshape(r.image), out.reshape(r.image)
    np.multiply(image, image, out=squares)
    s = s.reshape(r.image)
    np.multiply(_around(squares, r, spare), r.alpha, out=s)
    np.add(s, r.base, out=s)
    np.power(s, -r.beta, out=y)
    np.multiply(y, image, out=y)


@op("out work", replays=False)
def lrn_gradient(x: Any, dy: Any, response: Response, s: Any, out: Any, work: Any) -> Any:
    """dx = dy s^-beta - 2 alpha beta x (sum of dy y / s over the windows that hold x).

    >>> x = s = np.ones((1, 1, 1))  # s = alpha x^2 and y = 1 / x, if only in one place
    >>> lrn_gradient(x, x, Response((1, 1, 1), 1, 0, 0, 1.0, 1.0), s, np.empty_like(x), np.empty(2)).item()
    -1.0
    """
    r = response
    ratio, spare = work[: 2 * x.size].reshape(2, *r.image)
    image, dy, s, dx = (array.reshape(r.image) for array in (x, dy, s, out))
    np.power(s, -r.beta, out=dx)
    np.multiply(dx, dy, out=dx)
    np.multiply(dx, image, out=ratio)
    np.divide(ratio, s, out=ratio)
    sums = _around(ratio, r, spare)
    np.multiply(sums, image, out=sums)
    np.multiply(sums, 2 * r.alpha * r.beta, out=sums)
    np.subtract(dx, sums, out=dx)


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
