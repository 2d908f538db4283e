"""Losses with one label per sample: HingeLoss and MultinomialLogisticLoss."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import LabelLoss, check_labels, samples
from minicaffe.core.ops import label_losses as ops
from minicaffe.core.ops.sums import WORK


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
        ops.hinge(x.reshape(self.ncs[:2]), self.labels, self.margins, self.read, self.own)
        return self.mean(self.margins, self.ncs[0], squares=self.norm == "L2")

    def backward(self, dloss: Any) -> Any:
        scale = self.scaled(dloss, self.ncs[0])
        dx, squared = self.grad[0].reshape(self.ncs[:2]), self.norm == "L2"
        ops.hinge_gradient(self.margins, self.labels, squared, scale, dx, self.read, self.own)
        return self.grad[0], None


@register
class MultinomialLogisticLoss(SampleLoss):
    """loss = - sum of log p[label] / n. Bottoms: probabilities (n, ...), labels (n,).

    A probability below 1e-20 counts as 1e-20. Top: the loss, of shape (). Raises DataError for a label that
    is no class. SoftmaxWithLoss, of scores, is more exact. Source: Caffe's MultinomialLogisticLoss.

    Example: (2, 3), (2,) -> {type: MultinomialLogisticLoss} -> ()
    """

    def allocate(self) -> None:
        super().allocate()
        self.losses = self.empty(self.ncs[:1], self.sum_dtype)

    def forward(self, prob: Any, labels: Any) -> Any:
        self.prob, self.labels = prob.reshape(self.ncs[:2]), labels.reshape(-1)
        ops.multinomial(self.prob, self.labels, self.losses, self.read)
        return self.mean(self.losses, self.ncs[0])

    def backward(self, dloss: Any) -> Any:
        scale, dx = self.scaled(dloss, self.ncs[0]), self.grad[0].reshape(self.ncs[:2])
        ops.multinomial_gradient(self.prob, self.labels, scale, dx, self.read, self.own)
        return self.grad[0], None
