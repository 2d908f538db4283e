"""Mean, spread and rate of rows: of what is there, and of what running sums remember.

Of a row with N entries x, mean m, variance v = sum (x - m)^2 / N (in two passes, as in Caffe), the rate r is

    variance    1 / sqrt(v + eps)            BatchNorm, LayerNorm, GroupNorm
    deviation   1 / (sqrt(v) + eps)          MVN
    mean        1
    length      1 / sqrt(sum x^2 + eps)      Normalize; there m = 0

Statistics are in float32 where x is of 16 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.core.ops.arrays import GRAIN, fill
from minicaffe.core.ops.moments import moments
from minicaffe.core.ops.rows import KINDS, Norm, Past, Rows, Statistics

FILE = "normalize.cu"


def statistics(
    x: Any, rows: Rows, norm: Norm, out: Statistics, work: Any, past: Past | None = None
) -> Statistics:
    """Mean, spread and rate of each row, 0 where there are no entries; `past` remembers them.

    >>> rows, x = Rows(1, 1, 2, 2), np.array([[1.0, 3.0], [5.0, 5.0]])
    >>> found = statistics(x, rows, Norm("variance", 0.25), Statistics.empty(np, rows, float), np.empty(18))
    >>> found.mean, found.spread, found.rate.round(3)
    (array([2., 5.]), array([1., 0.]), array([0.894, 2.   ]))
    """
    if x.size == 0:
        for values in (out.mean, out.spread, out.rate):
            fill(values, 0)
    elif on_cuda(x):
        moments(x, rows, norm, out, work, past)
    else:
        _statistics(x, rows, norm, out, work)
        if past is not None:
            _remember(out, past)
    return out


def _statistics(x: Any, rows: Rows, norm: Norm, out: Statistics, work: Any) -> None:
    numbers = KINDS.index(norm.kind), out.rate.dtype.type(norm.eps)
    if rows.run("statistics", x, rows.seen, *numbers, out.mean, out.spread, out.rate):
        return
    x, apart = rows.of(x), rows.of(work[: x.size])
    mean, spread = rows.each(out.mean), rows.each(out.spread)
    if norm.kind == "length":
        mean.fill(0)
        np.multiply(x, x, out=apart)
    else:
        rows.sum(x, mean, work)
        mean /= rows.length
        np.subtract(x, mean, out=apart)
        np.multiply(apart, apart, out=apart)
    rows.sum(apart, spread, work)
    if norm.kind != "length":
        spread /= rows.length
    _rate(out, norm)


def _rate(out: Statistics, norm: Norm) -> None:
    if norm.kind == "mean":
        out.rate.fill(1)
    elif norm.kind == "deviation":
        np.sqrt(out.spread, out=out.rate)
        np.add(out.rate, norm.eps, out=out.rate)
        np.divide(1, out.rate, out=out.rate)
    else:
        np.add(out.spread, norm.eps, out=out.rate)
        np.sqrt(out.rate, out=out.rate)
        np.divide(1, out.rate, out=out.rate)


def _remember(found: Statistics, past: Past) -> None:
    mean, variance, batches = past.mean, past.variance, past.batches
    fast = loops("running", mean.dtype)
    if fast is not None:
        numbers = mean.dtype.type(past.fraction), mean.dtype.type(past.correction)
        flat = found.mean, found.spread, *numbers, mean, variance, batches
        run(fast.remember, mean.size, *flat, grain=GRAIN)
        return
    trace.host("running sums by NumPy")
    mean *= past.fraction
    mean += found.mean
    variance *= past.fraction / past.correction
    variance += found.spread
    variance *= past.correction
    batches *= past.fraction
    batches += 1


def recall(past: Past, norm: Norm, out: Statistics) -> None:
    """Writes the averages of running sums, 0 where nothing is remembered, as the statistics of each row."""
    mean, variance, batches = past.mean, past.variance, past.batches
    if on_cuda(mean):
        eps, results = mean.dtype.type(norm.eps), (out.mean, out.spread, out.rate)
        launch(FILE, "recall", mean.size, mean, mean, variance, batches, eps, *results)
        return
    fast = loops("running", mean.dtype)
    if fast is not None:
        flat = mean, variance, batches, mean.dtype.type(norm.eps), out.mean, out.spread, out.rate
        run(fast.recall, mean.size, *flat, grain=GRAIN)
        return
    trace.host("running sums by NumPy")
    share = 1 / batches[0] if batches[0] != 0 else 0
    np.multiply(mean, share, out=out.mean)
    np.multiply(variance, share, out=out.spread)
    _rate(out, norm)
