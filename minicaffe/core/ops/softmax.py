"""Softmax along an axis, its negative log-likelihood, labels as losses read them, and accuracies.

Scores are seen as (n, c, s): n = product of the axes before the softmax axis, c classes, s = product
of the axes after it. Labels are (n, s), whole numbers held in the scores' own type, as in Caffe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops import arrays
from minicaffe.core.ops.sums import total
from minicaffe.errors import DataError

GRAIN = 2**11  # scores that a thread is worth waking for


@dataclass(frozen=True)
class Labels:
    """What is read off labels (n, s), in arrays of their shape."""

    valid: Any  # 1 where a label counts, in the scores' type
    ignored: Any  # bool, the opposite
    place: Any  # int64, the label's flat score
    start: Any  # int64, the flat positions of class 0, a constant
    # One int32, 1 if a label is no class: for a replay, which raises nothing itself
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

    >>> mean = Mean.empty(np, 4, True, float)
    >>> mean.of(np.array([3.0, 0.0]), np.array([1.0, 0.0]), np.empty(()), np.empty(8))
    array(3.)
    """

    normalizer: Any  # of shape (), as is
    scale: Any  # the gradient of each loss
    counts: bool
    add: Callable[[Any], Any] | None = None  # sums the count with those of other ranks

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


@op("out reduced", samples="x out reduced", grain=GRAIN, by_calls=True)
def softmax(x: Any, out: Any, reduced: Any) -> Any:
    """p[n, c, s] = exp(x - max) / sum exp(x - max), over c; `reduced` (n, 1, s) is scratch.

    Of x of 16 bits it is computed in the type of `out` and `reduced`. Source: Caffe's SoftmaxLayer.

    >>> x = np.array([[0.0, np.log(3.0)]]).reshape(1, 2, 1)
    >>> softmax(x, np.empty_like(x), np.empty((1, 1, 1))).ravel()
    array([0.25, 0.75])
    """
    if x.dtype != out.dtype:
        np.copyto(out, x)
        x = out
    np.maximum.reduce(x, axis=1, keepdims=True, out=reduced)
    np.subtract(x, reduced, out=out)
    np.exp(out, out=out)
    np.add.reduce(out, axis=1, keepdims=True, out=reduced)
    np.divide(out, reduced, out=out)


@op("out reduced", samples="dy y out reduced", grain=GRAIN, by_calls=True)
def softmax_gradient(dy: Any, y: Any, out: Any, reduced: Any) -> Any:
    """dx = (dy - sum over c of dy y) y, computed in the type of y, `out` and `reduced`.

    >>> y = np.array([0.25, 0.75]).reshape(1, 2, 1)
    >>> softmax_gradient(np.ones_like(y), y, np.empty_like(y), np.empty((1, 1, 1))).ravel()
    array([0., 0.])
    """
    np.multiply(dy, y, out=out)
    np.add.reduce(out, axis=1, keepdims=True, out=reduced)
    np.subtract(dy, reduced, out=out)
    np.multiply(out, y, out=out)


@op(traced=False)
def softmax_loss(
    x: Any,
    labels: Any,
    ignore: int | None,
    prob: Any,
    losses: Any,
    read: Labels,
    mean: Mean,
    out: Any,
    work: Any,
) -> Any:
    """out = - sum over labels of log max(prob[n, label, s], smallest normal number) / normalizer.

    prob is softmax(x); a label `ignore` does not count. `losses`, of the labels' shape, are scratch. Raises
    DataError for a label that is no class; on CUDA the loss is NaN then. Source: Caffe's SoftmaxWithLossLayer.

    >>> x, prob, losses = np.log([[0.25, 0.75]]).reshape(1, 2, 1), np.empty((1, 2, 1)), np.empty((1, 1))
    >>> read, mean = Labels.empty(np, 1, 2, 1, float), Mean.empty(np, 1, False, float)
    >>> given = np.array([[1.0]]), None, prob, losses, read, mean, np.empty(()), np.empty(8)
    >>> round(float(np.exp(-softmax_loss(x, *given))), 6), prob.ravel()
    (0.75, array([0.25, 0.75]))
    """
    softmax(x, prob, losses.reshape(x.shape[0], 1, x.shape[2]))
    of_labels = read.start, read.valid, read.ignored, read.place, read.refused
    nll(prob, labels, ignore, losses, *of_labels)
    read.check(labels, ignore, x.shape[1])
    mean.of(losses, read.valid, out, work)


@op(
    "out valid ignored place refused",
    samples="prob labels out start valid ignored place",
    grain=GRAIN,
)
def nll(
    prob: Any,
    labels: Any,
    ignore: int | None,
    out: Any,
    start: Any,
    valid: Any,
    ignored: Any,
    place: Any,
    refused: Any,
) -> Any:
    """The loss of each label on the CPU, 0 where it does not count; the rest is as in `Labels`."""
    c, s = prob.shape[1:]
    find(labels, ignore, c, s, start, out=(valid, ignored, place, refused))
    prob.reshape(-1).take(place - start[:1, :1], out=out, mode="clip")
    np.maximum(out, np.finfo(prob.dtype).tiny, out=out)
    np.log(out, out=out)
    np.negative(out, out=out)
    np.copyto(out, 0, where=ignored)


@op(traced=False)
def softmax_loss_gradient(
    prob: Any, labels: Any, ignore: int | None, dloss: Any, out: Any, read: Labels, mean: Mean
) -> Any:
    """dx = dloss (prob - onehot(label)) / normalizer, 0 where the label does not count.

    `read` and `mean` are as `softmax_loss` left them, `dloss` is one number on the device.

    >>> p, labels, losses = np.array([[[0.25], [0.75]]]), np.ones((1, 1)), np.empty((1, 1))
    >>> read, mean = Labels.empty(np, 1, 2, 1, float), Mean.empty(np, 1, False, float)
    >>> loss = softmax_loss(np.log(p), labels, None, p, losses, read, mean, np.empty(()), np.empty(8))
    >>> softmax_loss_gradient(p, labels, None, np.array(2.0), np.empty_like(p), read, mean).ravel()
    array([ 0.5, -0.5])
    """
    of_labels = read.start, read.valid, read.ignored, read.place
    nll_gradient(prob, labels, mean.gradient(dloss), out, *of_labels)


@op(samples="prob labels out start valid ignored place", grain=GRAIN)
def nll_gradient(
    prob: Any, labels: Any, scale: Any, out: Any, start: Any, valid: Any, ignored: Any, place: Any
) -> Any:
    """dx = scale (prob - onehot(label)) on the CPU, where `scale` is one number."""
    np.copyto(out, prob)
    out.reshape(-1)[(place - start[:1, :1]).reshape(-1)] -= 1
    np.multiply(out, scale, out=out)
    np.copyto(out, 0, where=ignored[:, None])


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
