"""Rows of an array, over which normalisations sum: their entries, and the mean, spread and rate of each.

Of a row with N entries x, mean m, variance v = sum (x - m)^2 / N (in two passes, as in Caffe), the rate r is

    variance    1 / sqrt(v + eps)            BatchNorm, LayerNorm, GroupNorm
    deviation   1 / (sqrt(v) + eps)          MVN
    mean        1
    length      1 / sqrt(sum x^2 + eps)      Normalize; there m = 0

Statistics are in float32 where x is of 16 bits. Running sums remember them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.arrays import fill

PARTIAL = 2**11  # rows, in parts, of which CUDA's kernels keep sums


@dataclass(frozen=True)
class Rows:
    """An array seen as (batch, outer, kept, inner): row (b, k) is made of all its outer and inner entries."""

    batch: int
    outer: int
    kept: int
    inner: int

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.batch * self.kept

    @property
    def length(self) -> int:
        """How many entries a row has."""
        return self.outer * self.inner

    @property
    def seen(self) -> tuple[int, int, int]:
        """(outer, kept, inner), for loops and kernels."""
        return self.outer, self.kept, self.inner

    def of(self, x: Any) -> Any:
        """The array as the rows see it."""
        return x.reshape(self.batch, self.outer, self.kept, self.inner)

    def sum(self, x: Any, out: Any, work: Any) -> Any:
        """The sum of each row into `out`, on the CPU, taken in float64; `work` lends its end for that."""
        wide, out = out, self.each(out)
        if x.dtype != np.float64:
            first = (work.size - 2 * self.count) // 2 * 2
            wide = work[first : first + 2 * self.count].view(np.float64)
        np.sum(self.of(x), axis=(1, 3), dtype=np.float64, keepdims=True, out=self.each(wide))
        np.copyto(out, self.each(wide))
        return out

    def see(self, x: Any) -> Any:
        """The array as (outer, kept, inner), of rows with batch 1: their numbers are one a channel."""
        return x.reshape(self.seen)

    def each(self, values: Any) -> Any:
        """One number a row, to be stretched along it."""
        return values.reshape(self.batch, 1, self.kept, 1)


@dataclass(frozen=True)
class Norm:
    """How a row's spread becomes its rate."""

    kind: Literal["variance", "deviation", "mean", "length"]
    eps: float


@dataclass(frozen=True)
class Statistics:
    """Of each row its mean, its spread (variance, or the sum of squares) and its rate, each (rows,)."""

    mean: Any
    spread: Any
    rate: Any

    @classmethod
    def empty(cls, xp: Any, rows: Rows, dtype: Any) -> Statistics:
        """The buffers for rows."""
        return cls(*(xp.empty(rows.count, dtype) for _ in range(3)))


class Past(NamedTuple):
    """Running sums of mean and variance, (rows,), and of batches, (1,): each is `fraction` of it + the new.

    The variance is that of the samples' source, N / (N - 1) of theirs, N = `length`; of an empty batch
    nothing is added. Source: Caffe's BatchNormLayer.
    """

    fraction: float
    length: int
    mean: Any
    variance: Any
    batches: Any

    @property
    def correction(self) -> float:
        """What a variance is multiplied by."""
        return self.length / (self.length - 1) if self.length > 1 else 1.0


@dataclass(frozen=True)
class Affine:
    """A learned scale and bias, either of which may be None, a number a row of `rows` (batch 1)."""

    rows: Rows
    scale: Any
    bias: Any

    def flat(self) -> tuple[Any, Any]:
        """Scale and bias, each (features,) or None."""
        scale, bias = (None if b is None else b.reshape(-1) for b in (self.scale, self.bias))
        return scale, bias


def workspace(xp: Any, size: int, rows: Rows, features: int = 0) -> int:
    """Elements of work for the functions below, of an array of `size` entries."""
    most = max(rows.count, features)
    if xp is np:
        return 2 * size + 4 * most + 2
    return 2 * (2 * most + 4 * max(PARTIAL, most))  # twice: of 16 bits, work in float32


def by_channel(x: tuple[int, ...]) -> Rows:
    """The rows of a batch: the channels, along axis 1, of all samples and places; one axis is one channel.

    >>> by_channel((2, 3, 4, 5))
    Rows(batch=1, outer=2, kept=3, inner=20)
    """
    return Rows(1, x[0], x[1] if len(x) > 1 else 1, math.prod(x[2:]))


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
