"""The threshold T of a blob for int8: a number x becomes round(x / s), s = T / 127, clipped to -127..127.

A blob is looked at twice: first its largest magnitude m, then a histogram of magnitudes, BINS bins of
equal width from 0 to m. Four methods choose T from it; the zero point is always 0 (symmetric).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Method = Literal["max", "percentile", "kl", "mse"]
BINS = 2048
LEVELS = 128  # magnitudes that int8 tells apart: 0 to 127
LARGEST = 127  # the largest integer
PERCENTILE = 99.99
EPSILON = 1e-4  # what each bin of the two distributions has more, so that no logarithm is of 0


@dataclass
class Histogram:
    """The numbers of a blob: `see` takes them in a first time, `add` a second time.

    `counts` are those of magnitudes in bins of `width`, without the exact zeros, which `zeros` counts.

    >>> histogram = Histogram()
    >>> values = np.array([0.0, -2.0, 1.0])
    >>> histogram.see(values)
    >>> histogram.add(values)
    >>> histogram.low, histogram.high, histogram.zeros, np.flatnonzero(histogram.counts).tolist()
    (-2.0, 1.0, 1, [1024, 2047])
    """

    low: float = np.inf
    high: float = -np.inf
    size: int = 0
    zeros: int = 0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))

    @property
    def most(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high)) if self.size else 0.0

    @property
    def width(self) -> float:
        """The width of a bin."""
        return self.most / BINS

    def see(self, values: np.ndarray) -> None:
        """Widen the range to hold these finite numbers."""
        if values.size:
            self.low = min(self.low, float(values.min()))
            self.high = max(self.high, float(values.max()))
            self.size += values.size

    def add(self, values: np.ndarray) -> None:
        """Count numbers that were seen before."""
        magnitudes = np.abs(values[values != 0].astype(np.float64))
        self.zeros += values.size - magnitudes.size
        if magnitudes.size:
            places = np.minimum((magnitudes / self.most * BINS).astype(np.int64), BINS - 1)
            self.counts += np.bincount(places, minlength=BINS)

    def thresholds(self, percentile: float = PERCENTILE) -> dict[str, float]:
        """T by each method; all are 0 for a blob of zeros."""
        if not self.most:
            return dict.fromkeys(METHODS, 0.0)
        return {
            "max": self.most,
            "percentile": by_percentile(self, percentile),
            "kl": by_divergence(self),
            "mse": by_error(self),
        }


def by_percentile(histogram: Histogram, percentile: float = PERCENTILE) -> float:
    """The upper edge of the bin in which the percentile of all magnitudes lies, zeros among them.

    >>> histogram = Histogram(low=0.0, high=2048.0, size=100, zeros=0)
    >>> histogram.counts[[9, 2047]] = 99, 1
    >>> by_percentile(histogram, 99), by_percentile(histogram, 99.5)
    (10.0, 2048.0)
    """
    total = histogram.zeros + histogram.counts.sum()
    below = histogram.zeros + np.cumsum(histogram.counts)
    wanted = min(total * percentile / 100, total)
    return float((np.searchsorted(below, wanted) + 1) * histogram.width)


def by_divergence(histogram: Histogram) -> float:
    """The T that loses least information: KL(P, Q) = sum of (p + e) log((p + e) / (q + e)) is least.

    For t from LEVELS to BINS - 1: P is the histogram's first t bins, as parts of 1, what lies above added to
    the last; Q is the same bins, without what lies above, put into LEVELS equal parts (a bin across a border
    is divided in proportion), each spread evenly over its bins. e = EPSILON. T = (t + 1/2) width. Zeros are
    left out. Sources: S. Migacz, 8-bit Inference with TensorRT, GTC 2017; the details are those of ncnn's
    tools/quantize/ncnn2table.cpp (quantize_KL).
    """
    parts = histogram.counts / histogram.counts.sum()
    below = np.concatenate([[0.0], np.cumsum(parts)])
    edges = np.arange(BINS + 1, dtype=np.float64)
    best, least = LEVELS, np.inf
    for t in range(LEVELS, BINS):
        p = parts[:t] + EPSILON
        p[-1] += 1 - below[t]
        borders = np.arange(LEVELS + 1) * (t / LEVELS)
        spread = np.interp(edges[: t + 1], borders, np.interp(borders, edges, below))
        q = np.diff(spread) + EPSILON
        divergence = float(p @ np.log(p / q))
        if divergence < least:
            best, least = t, divergence
    return (best + 0.5) * histogram.width


def by_error(histogram: Histogram) -> float:
    """The T of the least mean squared error of rounding and clipping, of the edges of bins from LEVELS on.

    E(T) = sum over bins of count (c - s min(round(c / s), 127))^2, c the middle of the bin, s = T / 127.
    Of equal errors the largest T counts.
    """
    used = np.flatnonzero(histogram.counts)
    middles, counts = used + 0.5, histogram.counts[used].astype(np.float64)
    best, least = BINS, np.inf
    for t in range(BINS, LEVELS - 1, -1):
        step = t / LARGEST
        apart = middles - step * np.minimum(np.rint(middles / step), LARGEST)
        error = float(counts @ (apart * apart))
        if error < least:
            best, least = t, error
    return best * histogram.width


METHODS: tuple[Method, ...] = ("max", "percentile", "kl", "mse")


def scale_of(threshold: float) -> float:
    """What one step of int8 is worth: threshold / 127; 1 for a threshold of 0, as of a blob of zeros.

    >>> scale_of(254.0), scale_of(0.0)
    (2.0, 1.0)
    """
    return threshold / LARGEST or 1.0


def fake(values: np.ndarray, scale: np.ndarray | float, most: int = LARGEST) -> np.ndarray:
    """Numbers rounded to integers -most..most times `scale`, float64; halves go to the even integer.

    >>> fake(np.array([0.24, 0.26, -9.0]), 0.5, 3).tolist()
    [0.0, 0.5, -1.5]
    """
    return np.clip(np.rint(values / np.asarray(scale, np.float64)), -most, most) * scale
