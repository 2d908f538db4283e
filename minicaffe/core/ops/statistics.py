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

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.arrays import fill
from minicaffe.core.ops.rows import Norm, Past, Rows, Statistics


@op(traced=False)
def statistics(
    x: Any, rows: Rows, norm: Norm, out: Statistics, work: Any, past: Past | None = None
) -> Any:
    """Mean, spread and rate of each row, 0 where there are no entries; `past` remembers them.

    >>> rows, x = Rows(1, 1, 2, 2), np.array([[1.0, 3.0], [5.0, 5.0]])
    >>> stats = statistics(x, rows, Norm("variance", 0.25), Statistics.empty(np, rows, float), np.empty(18))
    >>> stats.mean, stats.spread, stats.rate.round(3)
    (array([2., 5.]), array([1., 0.]), array([0.894, 2.   ]))
    """
    if not x.size:
        for values in (out.mean, out.spread, out.rate):
            fill(values, 0)
        return
    _statistics(x, rows, norm, out, work)
    if past is not None:
        remember(past.mean, past, out)


@op(replays=False)
def _statistics(x: Any, rows: Rows, norm: Norm, out: Statistics, work: Any) -> Any:
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


@op("mean", replays=False)
def remember(mean: Any, past: Past, stats: Statistics) -> Any:
    """Adds statistics to running sums, of which `mean` is one."""
    mean *= past.fraction
    mean += stats.mean
    variance, batches = past.variance, past.batches
    variance *= past.fraction / past.correction
    variance += stats.spread
    variance *= past.correction
    batches *= past.fraction
    batches += 1


def recall(past: Past, norm: Norm, out: Statistics) -> None:
    """Writes the averages of running sums, 0 where nothing is remembered, as the statistics of each row."""
    recalled(past.mean, past, norm, out)


@op(replays=False)
def recalled(mean: Any, past: Past, norm: Norm, out: Statistics) -> Any:
    """The same; `mean` is one of the sums."""
    share = 1 / past.batches[0] if past.batches[0] != 0 else 0
    np.multiply(mean, share, out=out.mean)
    np.multiply(past.variance, share, out=out.spread)
    _rate(out, norm)
