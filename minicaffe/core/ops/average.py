"""A running mean of arrays, such as the weights' over the iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op


@op("mean scratch", entries="mean x scratch", worth=2**17)
def average(mean: Any, x: Any, share: Any, scratch: Any, skip: Any) -> None:
    """mean += share (x - mean), in place; `scratch`, of the same shape and type, is NumPy's. `share` is one
    float64. Where `skip`, one int32, is not 0, nothing is done.

    What stands still stays as it is to the bit.

    >>> mean, x = np.array([1.0, 5.0]), np.array([2.0, 5.0])
    >>> _ = average(mean, x, np.array([0.25]), np.empty(2), np.zeros(1, np.int32))
    >>> mean
    array([1.25, 5.  ])
    """
    if skip[0]:
        return
    np.subtract(x, mean, out=scratch)
    np.multiply(scratch, mean.dtype.type(share[0]), out=scratch)
    np.add(mean, scratch, out=mean)
