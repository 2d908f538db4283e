"""A running mean of arrays, such as the weights' over the iterations."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import in_slices, run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay.trace import do
from minicaffe.core.ops.activation import LONG
from minicaffe.core.ops.arrays import GRAIN


def average(mean: Any, x: Any, share: Any, scratch: Any, skip: Any) -> None:
    """mean += share (x - mean), in place; `scratch`, of the same shape and type, is NumPy's. `share` is one
    float64. Where `skip`, one int32, is not 0, nothing is done.

    What stands still stays as it is to the bit.

    >>> mean, x = np.array([1.0, 5.0]), np.array([2.0, 5.0])
    >>> average(mean, x, np.array([0.25]), np.empty(2), np.zeros(1, np.int32))
    >>> mean
    array([1.25, 5.  ])
    """
    if on_cuda(mean):
        launch("average.cu", "average", mean.size, mean, mean, x, share, skip)
        return
    fast: Any = loops("average", mean.dtype)
    if fast is not None:
        run(fast.average, mean.size, x.reshape(-1), share, skip, mean.reshape(-1), grain=GRAIN)
        return
    flat = [array.reshape(-1) for array in (x, scratch, mean)]

    def part(first: int, last: int, _: Any) -> None:
        x, s, m = (array[first:last] for array in flat)
        do(_average, x, share, skip, out=(m, s))

    in_slices(part, mean.size, grain=GRAIN, worth=LONG, noted=True)


def _average(x: Any, share: Any, skip: Any, out: Any) -> None:
    mean, scratch = out
    if skip[0]:
        return
    np.subtract(x, mean, out=scratch)
    np.multiply(scratch, mean.dtype.type(share[0]), out=scratch)
    np.add(mean, scratch, out=mean)
