"""Losses of two bottoms of one shape: Euclidean, contrastive, smooth L1, sigmoid cross-entropy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import (
    Loss,
    Normalized,
    check_alike,
    check_labels,
    same_type,
    samples,
)
from minicaffe.core.ops import arrays
from minicaffe.core.ops import pair_losses as ops
from minicaffe.core.ops.sums import WORK
from minicaffe.errors import ShapeError


@register
class EuclideanLoss(Loss):
    """loss = sum of (a - b)^2 / 2 n, n samples. Bottoms: a, b with equal numbers of samples and entries.

    Both have a gradient. Top: the loss, of shape (). Source: Caffe's EuclideanLoss.

    Example: (2, 3), (2, 3) -> {type: EuclideanLoss} -> ()
    """

    def setup(self, a: Shape, b: Shape) -> Shape:
        check_alike(a, b)
        self.shape, self.n = a, samples(a)
        self.context.reserve(WORK)
        return ()

    def allocate(self) -> None:
        super().allocate()
        self.difference = self.empty(self.shape, self.sum_dtype)

    def forward(self, a: Any, b: Any) -> Any:
        ops.difference(a, b.reshape(self.shape), self.difference)
        return self.mean(self.difference, 2 * self.n, squares=True)

    def backward(self, dloss: Any) -> Any:
        for dx, wanted, sign in zip(self.grad, self.needs_gradient, (1, -1), strict=True):
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
        check_alike(a, b)
        self.pairs = a[:2]
        check_labels(similar, a[0], 1)
        self.context.reserve(WORK)
        return ()

    def allocate(self) -> None:
        super().allocate()
        n, dtype = self.pairs[:1], self.sum_dtype
        self.difference, work = self.empty(self.pairs, dtype), self.empty(self.pairs, dtype)
        self.losses, self.pull, gap = (self.empty(n, dtype) for _ in range(3))
        self.scratch = work, gap, self.empty(n, np.bool_)

    def forward(self, a: Any, b: Any, similar: Any) -> Any:
        ops.difference(a.reshape(self.pairs), b.reshape(self.pairs), self.difference)
        keys = self.margin, self.legacy_version, self.losses, self.pull, self.scratch
        ops.contrastive(self.difference, similar.reshape(-1), *keys)
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
        for other in (b, inside, outside):
            if other is not None:
                check_alike(a, other)
        self.shape, self.n, self.count = (
            a,
            samples(a),
            2 + (inside is not None) + (outside is not None),
        )
        self.context.reserve(WORK)
        return ()

    def allocate(self) -> None:
        super().allocate()
        self.losses, self.work = (self.empty(self.shape, self.sum_dtype) for _ in range(2))
        self.copies: list[Any] = [None, None]  # of 16 bits: the weights in float32
        if self.dtype != self.sum_dtype:
            self.copies = [self.empty(self.shape, self.sum_dtype) for _ in range(2, self.count)]

    def forward(self, a: Any, b: Any, *weights: Any) -> Any:
        wide: list[Any] = [None, None]
        for i, weight in enumerate(weights):
            wide[i] = same_type(self.xp, weight.reshape(self.shape), self.copies[i])
        self.given = a, b.reshape(self.shape), wide[0], wide[1], self.sigma
        ops.smooth_l1(*self.given, self.losses, self.work)
        return self.mean(self.losses, self.n)

    def backward(self, dloss: Any) -> Any:
        scale = self.scaled(dloss, self.n)
        for dx, wanted, sign in zip(self.grad, self.needs_gradient, (1, -1, 0, 0), strict=False):
            if wanted:
                ops.smooth_l1_gradient(*self.given, scale, sign, dx.reshape(self.shape))
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
        check_alike(x, target)
        self.shape = x
        self.context.reserve(WORK)
        return ()

    def allocate(self) -> None:
        super().allocate()
        n, dtype = samples(self.shape), self.sum_dtype
        self.take_mean(n, math.prod(self.shape[1:]))
        self.losses, self.valid, self.work = (self.empty(self.shape, dtype) for _ in range(3))
        self.flags = self.empty(self.shape, np.bool_)

    def forward(self, x: Any, target: Any) -> Any:
        self.given = x, target.reshape(self.shape), self.ignore_label
        scratch = self.losses, self.valid, self.work, self.flags
        ops.sigmoid_cross_entropy(*self.given, *scratch)
        work = self.context.workspace
        return self.of_losses.of(self.losses, self.valid, self.out[0], work)

    def backward(self, dloss: Any) -> Any:
        given = *self.given, self.of_losses.gradient(dloss), self.grad[0], self.valid, self.flags
        ops.sigmoid_cross_entropy_gradient(*given)
        return self.grad[0], None

    def check(self) -> None:
        """Raises nothing: no target makes the loss NaN."""
