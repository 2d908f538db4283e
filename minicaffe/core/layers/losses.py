"""Losses, and what they have in common: labels, samples, and the divisor of a sum."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, label_losses, pair_losses
from minicaffe.core.ops.softmax import Labels, Mean, check_classes
from minicaffe.core.ops.sums import WORK, total
from minicaffe.errors import ShapeError


def folded(shape: Shape, axis: int) -> tuple[int, int, int]:
    """A shape as (n, c, s): the axes before `axis`, that axis, those after it."""
    axis = canonical_axis(axis, shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def samples(shape: Shape) -> int:
    """How many samples a bottom holds: the size of its first axis."""
    return shape[0] if shape else 1


def check_labels(labels: Shape, n: int, s: int) -> None:
    """Raise ShapeError unless there is one label for each (n, s)."""
    if math.prod(labels) != n * s:
        raise ShapeError(f"needs {n * s} labels, one a prediction, got a bottom of shape {labels}")


def check_alike(a: Shape, b: Shape) -> None:
    """Raise ShapeError unless two bottoms have equal numbers of samples and entries."""
    if samples(a) != samples(b) or math.prod(a) != math.prod(b):
        raise ShapeError(f"needs bottoms of as many samples and entries, got {a} and {b}")


class Loss(Layer):
    """A layer whose first top is one number; `scale` is the gradient by a sum, on the device."""

    traits = Traits(is_loss=True, recordable=True, of_whole=True)

    def allocate(self) -> None:
        self.scale = self.empty((), self.sum_dtype)

    def pair(self, a: Shape, *others: Shape) -> Shape:
        """Keep the shape of a bottom, and its samples n; the others are like it. Raises ShapeError."""
        for other in others:
            check_alike(a, other)
        self.shape, self.n = a, samples(a)
        self.context.reserve(WORK)
        return ()

    def mean(self, losses: Any, divisor: int, squares: bool = False) -> Any:
        """The first top: the sum of losses, or of squares, over `divisor`, on all ranks; 0 without samples."""
        work, whole = self.context.workspace, self.context.share.of_whole(divisor)
        return total(losses, self.out[0], work, scale=1 / max(whole, 1), squares=squares)

    def scaled(self, dloss: Any, divisor: int, sign: int = 1) -> Any:
        """`scale`: the gradient of the loss over `divisor`, over 1 without samples."""
        return arrays.scale(dloss, sign / max(self.context.share.of_whole(divisor), 1), self.scale)


class LabelLoss(Loss):
    """A loss whose labels are classes, of predictions (n, c, s)."""

    traits = replace(Loss.traits, label_bottoms=(1,), float32_bottoms=(1,))
    ncs: tuple[int, int, int]
    labels: Any
    ignore_label: int | None = None

    def take_labels(self) -> None:
        """The buffers that labels are read into."""
        self.read = Labels.empty(self.xp, *self.ncs, self.sum_dtype, self.refused)

    def check(self) -> None:
        check_classes(self.context.device.to_host(self.labels), self.ignore_label, self.ncs[1])


@dataclass(kw_only=True, eq=False, repr=False)
class Normalized(LabelLoss):
    """Caffe's LossParameter: which labels count, and the divisor of the sum of their losses."""

    ignore_label: Annotated[int | None, "labels of this value do not count"] = None
    normalization: Annotated[
        Literal["FULL", "VALID", "BATCH_SIZE", "NONE"] | None,
        "what the sum is divided by: all labels, those that count, samples, or 1",
    ] = None
    normalize: Annotated[
        bool | None, "Caffe's older key, without normalization: true is VALID, false BATCH_SIZE"
    ] = None

    usual = "VALID"  # the default normalization

    def allocate(self) -> None:
        """Nothing to allocate: `of_losses` has its own scale."""

    @property
    def how(self) -> str:
        """The normalization: that of the key, else the meaning of `normalize`, else the default."""
        older = self.usual if self.normalize is None else ("BATCH_SIZE", "VALID")[self.normalize]
        return self.normalization or older

    def take_mean(self, n: int, s: int) -> None:
        """The mean over n samples with s labels each; reserve WORK for it in setup."""
        share = self.context.share
        n = share.of_whole(n)
        fixed = {"FULL": n * s, "BATCH_SIZE": n, "NONE": 1, "VALID": n * s}[self.how]
        counts = self.how == "VALID" and self.ignore_label is not None
        add = share.sum if counts and share.size > 1 else None
        share.sums |= add is not None
        self.of_losses = Mean.empty(self.xp, fixed, counts, self.sum_dtype, add)


class SampleLoss(LabelLoss):
    """Bottoms: scores (n, ...), viewed as (n, d), and n labels."""

    def setup(self, x: Shape, labels: Shape) -> Shape:
        n = samples(x)
        self.ncs = n, math.prod(x[1:]), 1
        check_labels(labels, n, 1)
        self.context.reserve(WORK)
        return ()

    def allocate(self) -> None:
        super().allocate()
        self.take_labels()
        self.own = self.empty(self.ncs[:1], self.sum_dtype)  # an entry a label


@register
class HingeLoss(SampleLoss):
    """loss = sum of max(0, 1 - t x)^p / n, t = 1 for the label's score and -1 for the others.

    Bottoms: scores (n, ...), labels (n,). p is 1 or 2 by `norm`. Top: the loss, of shape (). Raises DataError
    for a label that is no class. Source: Caffe's HingeLoss.

    Example: (2, 3), (2,) -> {type: HingeLoss, norm: L2} -> ()
    """

    norm: Annotated[Literal["L1", "L2"], "the margins' sum, or that of their squares"] = "L1"

    def allocate(self) -> None:
        super().allocate()
        self.margins = self.empty(self.ncs[:2], self.sum_dtype)

    def forward(self, x: Any, labels: Any) -> Any:
        self.labels = labels.reshape(-1)
        label_losses.hinge(x.reshape(self.ncs[:2]), self.labels, self.margins, self.read, self.own)
        return self.mean(self.margins, self.ncs[0], squares=self.norm == "L2")

    def backward(self, dloss: Any) -> Any:
        dx, squared = self.grad[0].reshape(self.ncs[:2]), self.norm == "L2"
        kernel_args = self.margins, self.labels, squared, self.scaled(dloss, self.ncs[0]), dx
        label_losses.hinge_gradient(*kernel_args, self.read, self.own)
        return self.grad[0], None


@register
class MultinomialLogisticLoss(SampleLoss):
    """loss = - sum of log p[label] / n. Bottoms: probabilities (n, ...), labels (n,).

    A probability below 1e-20 counts as 1e-20. Top: the loss, of shape (). Raises DataError for a label that
    is no class. SoftmaxWithLoss, of scores, is more exact. Source: Caffe's MultinomialLogisticLoss.

    Example: (2, 3), (2,) -> {type: MultinomialLogisticLoss} -> ()
    """

    def forward(self, prob: Any, labels: Any) -> Any:
        self.prob, self.labels = prob.reshape(self.ncs[:2]), labels.reshape(-1)
        label_losses.multinomial(self.prob, self.labels, self.own, self.read)
        return self.mean(self.own, self.ncs[0])

    def backward(self, dloss: Any) -> Any:
        scale, dx = self.scaled(dloss, self.ncs[0]), self.grad[0].reshape(self.ncs[:2])
        label_losses.multinomial_gradient(self.prob, self.labels, scale, dx, self.read, self.own)
        return self.grad[0], None


@register
class EuclideanLoss(Loss):
    """loss = sum of (a - b)^2 / 2 n, n samples. Bottoms: a, b with equal numbers of samples and entries.

    Both have a gradient. Top: the loss, of shape (). Source: Caffe's EuclideanLoss.

    Example: (2, 3), (2, 3) -> {type: EuclideanLoss} -> ()
    """

    def setup(self, a: Shape, b: Shape) -> Shape:
        return self.pair(a, b)

    def allocate(self) -> None:
        super().allocate()
        self.difference = self.empty(self.shape, self.sum_dtype)

    def forward(self, a: Any, b: Any) -> Any:
        pair_losses.difference(a, b.reshape(self.shape), self.difference)
        return self.mean(self.difference, 2 * self.n, squares=True)

    def backward(self, dloss: Any) -> Any:
        for dx, wanted, sign in zip(self.grad, self.needs_gradient, (1, -1), strict=False):
            if wanted:
                scale = self.scaled(dloss, self.n, sign)
                arrays.multiply(self.difference.reshape(dx.shape), scale, dx)
        return self.grad


@register
class ContrastiveLoss(Loss):
    """loss = sum of s d^2 + (1 - s) max(margin - d, 0)^2 / 2 n, d = |a - b| of a pair of rows.

    Bottoms: a, b (n, c), and s (n,), not 0 for a similar pair. legacy_version: max(margin - d^2, 0) for
    the other pairs. The gradient divides by d + 1e-4, as Caffe's. Top: the loss, of shape ().

    Source: Caffe's ContrastiveLoss; R. Hadsell, S. Chopra, Y. LeCun, Dimensionality Reduction by Learning an
    Invariant Mapping, 2006.

    Example: (2, 3), (2, 3), (2,) -> {type: ContrastiveLoss, margin: 2} -> ()
    """

    margin: Annotated[float, "the distance from which pairs that are not similar have no loss"] = (
        1.0
    )
    legacy_version: Annotated[bool, "the margin is of squared distances"] = False

    traits = replace(Loss.traits, label_bottoms=(2,), float32_bottoms=(2,))

    def setup(self, a: Shape, b: Shape, similar: Shape) -> Shape:
        if len(a) < 2 or math.prod(a[2:]) != 1 or a[1] != math.prod(a[1:]):
            raise ShapeError(f"needs bottoms of rows (n, c), got {a}")
        self.pairs = a[:2]
        tops = self.pair(a, b)
        check_labels(similar, a[0], 1)
        return tops

    def allocate(self) -> None:
        super().allocate()
        n, dtype = self.pairs[:1], self.sum_dtype
        self.difference, work = self.empty(self.pairs, dtype), self.empty(self.pairs, dtype)
        self.losses, self.pull, gap = (self.empty(n, dtype) for _ in range(3))
        self.scratch = work, gap, self.empty(n, np.bool_)

    def forward(self, a: Any, b: Any, similar: Any) -> Any:
        pair_losses.difference(a.reshape(self.pairs), b.reshape(self.pairs), self.difference)
        keys = self.margin, self.legacy_version, self.losses, self.pull, self.scratch
        pair_losses.contrastive(self.difference, similar.reshape(-1), *keys)
        return self.mean(self.losses, 2 * self.pairs[0])

    def backward(self, dloss: Any) -> Any:
        pulls = self.losses  # which are done with
        for dx, wanted, sign in zip(self.grad, self.needs_gradient, (1, -1, 0), strict=True):
            if wanted:
                arrays.multiply(self.pull, self.scaled(dloss, self.pairs[0], sign), pulls)
                arrays.multiply(self.difference, pulls.reshape(-1, 1), dx.reshape(self.pairs))
        return self.grad


@register
class SmoothL1Loss(Loss):
    """loss = sum of outside f(inside (a - b)) / n, f(d) = (sigma d)^2 / 2 near 0, |d| - 1 / 2 sigma^2 else.

    Near is |d| < 1 / sigma^2. Bottoms: a, b and, optionally, inside and outside weights with as many entries;
    a and b have a gradient. Top: the loss, of shape (). Source: the SmoothL1Loss of R. Girshick's
    Fast R-CNN (2015), whose sigma is 1 in SSD.

    Example: (2, 4), (2, 4), (2, 4) -> {type: SmoothL1Loss, sigma: 3} -> ()
    """

    sigma: Annotated[float, "squares end at 1 / sigma^2"] = 1.0

    traits = replace(Loss.traits, label_bottoms=(2, 3))

    def setup(
        self, a: Shape, b: Shape, inside: Shape | None = None, outside: Shape | None = None
    ) -> Shape:
        if self.sigma <= 0:
            raise ShapeError(f"sigma: expected above 0, got {self.sigma}")
        self.weights = [shape for shape in (inside, outside) if shape is not None]
        return self.pair(a, b, *self.weights)

    def allocate(self) -> None:
        super().allocate()
        self.losses, self.work = (self.empty(self.shape, self.sum_dtype) for _ in range(2))
        self.copies: list[Any] = [None, None]  # of 16 bits: the weights in float32
        if self.dtype != self.sum_dtype:
            self.copies = [self.empty(self.shape, self.sum_dtype) for _ in self.weights]

    def forward(self, a: Any, b: Any, *weights: Any) -> Any:
        wide: list[Any] = [None, None]
        for i, weight in enumerate(weights):
            wide[i] = same_type(weight.reshape(self.shape), self.copies[i])
        self.given = a, b.reshape(self.shape), wide[0], wide[1], self.sigma
        pair_losses.smooth_l1(*self.given, self.losses, self.work)
        return self.mean(self.losses, self.n)

    def backward(self, dloss: Any) -> Any:
        scale = self.scaled(dloss, self.n)
        for dx, wanted, sign in zip(self.grad, self.needs_gradient, (1, -1, 0, 0), strict=False):
            if wanted:
                pair_losses.smooth_l1_gradient(*self.given, scale, sign, dx.reshape(self.shape))
        return self.grad


@register
class SigmoidCrossEntropyLoss(Normalized):
    """loss = - sum of t log p + (1 - t) log(1 - p) / normalizer, p = sigmoid(x). Bottoms: x, targets t.

    x has one target, in 0..1, per entry; a target whose whole part is ignore_label does not count. The
    normalizer, at least 1, is the number of samples (BATCH_SIZE, the default), of entries that count (VALID),
    of all (FULL), or 1 (NONE). Top: the loss, of shape (). Source: Caffe's SigmoidCrossEntropyLoss.

    Example: (2, 3), (2, 3) -> {type: SigmoidCrossEntropyLoss, normalization: FULL} -> ()
    """

    usual = "BATCH_SIZE"
    # Targets may be the data of another layer too
    traits = replace(Normalized.traits, float32_bottoms=())

    def setup(self, x: Shape, target: Shape) -> Shape:
        return self.pair(x, target)

    def allocate(self) -> None:
        super().allocate()
        dtype = self.sum_dtype
        self.take_mean(self.n, math.prod(self.shape[1:]))
        self.losses, self.valid, self.work = (self.empty(self.shape, dtype) for _ in range(3))
        self.flags = self.empty(self.shape, np.bool_)

    def forward(self, x: Any, target: Any) -> Any:
        self.given = x, target.reshape(self.shape), self.ignore_label
        scratch = self.losses, self.valid, self.work, self.flags
        pair_losses.sigmoid_cross_entropy(*self.given, *scratch)
        return self.of_losses.of(self.losses, self.valid, self.out[0], self.context.workspace)

    def backward(self, dloss: Any) -> Any:
        scale, scratch = self.of_losses.gradient(dloss), (self.valid, self.flags)
        pair_losses.sigmoid_cross_entropy_gradient(*self.given, scale, self.grad[0], *scratch)
        return self.grad[0], None

    def check(self) -> None:
        """Raises nothing: no target makes the loss NaN."""
