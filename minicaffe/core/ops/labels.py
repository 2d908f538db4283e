"""Labels as losses and accuracies read them, what the sum of losses is divided by, and accuracies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops import arrays
from minicaffe.core.ops.sums import total
from minicaffe.errors import DataError


@dataclass(frozen=True)
class Labels:
    """What is read off labels (n, s): `valid` is 1 where a label counts, `place` its flat score.

    `ignored` is its opposite. `start` holds the flat positions of class 0, a constant. All are of the
    labels' shape: `valid` in the scores' type, `ignored` bool, `place` and `start` int64. A label that is no
    class sets `refused`, one int32, to 1, for a replay, which raises nothing itself.
    """

    valid: Any
    ignored: Any
    place: Any
    start: Any
    refused: Any = field(default_factory=lambda: np.zeros(1, np.int32))

    @classmethod
    def empty(cls, xp: Any, n: int, c: int, s: int, dtype: Any, refused: Any = None) -> Labels:
        """The buffers for labels of scores (n, c, s), with a flag of their own unless one is passed."""
        start = np.arange(n).reshape(-1, 1) * (c * s) + np.arange(s)
        valid, ignored, place = (xp.empty((n, s), t) for t in (dtype, np.bool_, np.int64))
        flags = () if refused is None else (refused,)
        return cls(valid, ignored, place, xp.asarray(start), *flags)

    def read(self, labels: Any, ignore: int | None, c: int, s: int) -> None:
        """Fill the buffers on the CPU. Raises DataError for a label that is no class."""
        out = self.valid, self.ignored, self.place, self.refused
        find(labels, ignore, c, s, self.start, out=out)
        self.check(labels, ignore, c)

    def check(self, labels: Any, ignore: int | None, c: int) -> None:
        """Raise DataError if a label that counts was no class."""
        if self.refused[0]:
            self.refused[0] = 0
            check_classes(labels, ignore, c)


def find(labels: Any, ignore: int | None, c: int, s: int, start: Any, out: Any) -> None:
    """Fill the buffers of `Labels` but the start, on the CPU: a label that is no class counts as class 0."""
    valid, ignored, place, refused = out
    with np.errstate(invalid="ignore"):
        if ignore is None:
            valid.fill(1)
            ignored.fill(False)
            np.copyto(place, labels, casting="unsafe")
        else:
            np.not_equal(labels, ignore, out=valid)
            np.equal(labels, ignore, out=ignored)
            np.multiply(labels, valid, out=place, casting="unsafe")
    # As unsigned numbers those below 0 are large; what a NaN is cast to depends on the processor.
    if place.size and (place.view(np.uint64).max() >= c or np.isnan(labels.max())):
        refused[0] = 1
        place[(place < 0) | (place >= c)] = 0
    if s > 1:
        np.multiply(place, s, out=place)
    np.add(place, start, out=place)


def check_classes(labels: np.ndarray, ignore: int | None, c: int) -> None:
    """Raise DataError for a label on the host that counts and is not one of 0..c-1: NaN and infinity, too.

    >>> check_classes(np.array([0.0, 2.0, 255.0]), 255, 3)
    """
    wrong = labels[(labels != ignore) & ~((labels > -1) & (labels < c))]
    if wrong.size:
        raise DataError(f"label {wrong[0]:g} is not one of the {c} classes 0..{c - 1}")


@dataclass(frozen=True)
class Mean:
    """The sum of losses over a normalizer: `fixed`, or with `counts` how many labels count, at least 1.

    `normalizer` and `scale` are of shape (). `add` sums the count with those of other ranks.

    >>> mean = Mean.empty(np, 4, True, float)
    >>> mean.of(np.array([3.0, 0.0]), np.array([1.0, 0.0]), np.empty(()), np.empty(8))
    array(3.)
    """

    normalizer: Any
    scale: Any
    counts: bool
    add: Callable[[Any], Any] | None = None

    @classmethod
    def empty(
        cls, xp: Any, fixed: int, counts: bool, dtype: Any, add: Callable[[Any], Any] | None = None
    ) -> Mean:
        """The buffers for losses of a type."""
        return cls(xp.full((), max(fixed, 1), dtype), xp.empty((), dtype), counts, add)

    def of(self, losses: Any, valid: Any, out: Any, work: Any) -> Any:
        """out = the sum of losses over the normalizer; `valid` is 1 where one counts, `work` as in `total`."""
        if self.counts:
            total(valid, self.normalizer, work)
        return self.over(total(losses, out, work))

    def over(self, out: Any) -> Any:
        """out, a sum of losses, over the normalizer, which with `counts` is how many labels here count."""
        if self.add is not None:
            self.add(self.normalizer)
        if self.counts:
            arrays.at_least(self.normalizer, 1)
        return arrays.divide(out, self.normalizer, out)

    def gradient(self, dloss: Any) -> Any:
        """`scale`: that of each loss, dloss over the normalizer; dloss is one number on the device."""
        return arrays.divide(dloss, self.normalizer, self.scale)


@op(replays=False)
def accuracy(
    scores: Any, labels: Any, top_k: int, ignore: int | None, out: Any, read: Labels, lower: Any
) -> Any:
    """out[n, s] = 1 if fewer than top_k other classes score at least as high as the label's, else 0.

    Ties count against the label, as in Caffe; a NaN score is a miss (in Caffe, by accident, a hit).
    `lower` is boolean scratch of the scores' shape. Source: Caffe's AccuracyLayer.

    >>> scores, labels = np.array([[0.1, 0.9], [0.5, 0.5]]).reshape(2, 2, 1), np.array([[1.0], [0.0]])
    >>> read, lower = Labels.empty(np, 2, 2, 1, float), np.empty((2, 2, 1), bool)
    >>> accuracy(scores, labels, 1, None, np.empty((2, 1)), read, lower).ravel()
    array([1., 0.])
    """
    n, c, s = scores.shape
    read.read(labels, ignore, c, s)
    np.take(scores.reshape(-1), read.place, out=out, mode="clip")
    np.less(scores, out.reshape(n, 1, s), out=lower)
    np.sum(lower, axis=1, out=read.place)
    np.greater_equal(read.place, c - top_k, out=out)
    np.multiply(out, read.valid, out=out)


@op(replays=False)
def class_accuracy(hits: Any, valid: Any, labels: Any, out: Any) -> Any:
    """out[k] = share of hits among the valid labels k; 0 for a class that did not occur.

    >>> hits, labels = np.array([1.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])
    >>> class_accuracy(hits, np.ones(3), labels, np.empty(3))
    array([0.5, 1. , 0. ])
    """
    classes = np.where(valid, labels, 0).astype(np.int64).ravel()
    counts = np.bincount(classes, valid.ravel(), out.size)
    out[...] = np.bincount(classes, (hits * valid).ravel(), out.size) / np.maximum(counts, 1)
