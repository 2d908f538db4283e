"""The largest numbers and where they stand."""

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op


@op("place number flags", replays=False)
def largest(x: Any, place: Any, number: Any, flags: Any) -> Any:
    """The k largest of each column x[n, :, s], largest first; of equal numbers the last comes first.

    x (n, c, s); place (n, k, s) int32 and number (n, k, s) of x's type are written, -1 and NaN where there
    are no more but NaNs; flags (4, n, s) is boolean scratch. Source: Caffe's ArgMaxLayer.

    >>> place, number = np.empty((1, 2, 1), np.int32), np.empty((1, 2, 1))
    >>> x = np.array([3.0, 7.0, 7.0]).reshape(1, 3, 1)
    >>> largest(x, place, number, np.empty((4, 1, 1), bool)).ravel(), number.ravel()
    (array([2, 1], dtype=int32), array([7., 7.]))
    """
    c, k = x.shape[1], place.shape[1]
    left, same, sooner, better = flags
    for i in range(k):
        where, best = place[:, i], number[:, i]
        where.fill(-1)
        best.fill(-np.inf)
        for j in range(c):
            value = x[:, j]
            np.greater_equal(value, best, out=better)
            if i:  # only what comes behind the one found before
                np.less(value, number[:, i - 1], out=left)
                np.equal(value, number[:, i - 1], out=same)
                np.greater(place[:, i - 1], j, out=sooner)
                np.logical_and(same, sooner, out=same)
                np.logical_or(left, same, out=left)
                np.logical_and(better, left, out=better)
            np.copyto(best, value, where=better)
            np.copyto(where, j, where=better)
        np.less(where, 0, out=better)
        np.copyto(best, np.nan, where=better)
