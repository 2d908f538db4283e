"""Softmax, its loss, and accuracy."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.errors import ShapeError
from minicaffe.layers.base import Layer, canonical_axis, register
from minicaffe.layers.blob import Shape
from minicaffe.ops import softmax as ops
from minicaffe.spec.types import AtLeast


def folded(shape: Shape, axis: int) -> tuple[int, int, int]:
    """A shape as (n, c, s): the axes before `axis`, that axis, those behind it."""
    axis = canonical_axis(axis, shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def check_labels(labels: Shape, n: int, s: int) -> None:
    """Raise ShapeError unless there is one label for each (n, s)."""
    if math.prod(labels) != n * s:
        raise ShapeError(f"needs {n * s} labels, one a prediction, got a bottom of shape {labels}")


@register
class Softmax(Layer):
    """y = exp(x) / sum of exp(x) along `axis`. Source: Caffe's Softmax."""

    axis: Annotated[int, "the axis of the classes"] = 1

    keeps_top = True

    def setup(self, x: Shape) -> Shape:
        self.ncs = folded(x, self.axis)
        return x

    def allocate(self) -> None:
        n, _, s = self.ncs
        self.reduced = self.empty((n, 1, s))

    def forward(self, x: Any) -> Any:
        ops.softmax(self.xp, x.reshape(self.ncs), self.out[0].reshape(self.ncs), self.reduced)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        y, dx = self.out[0].reshape(self.ncs), self.grad[0].reshape(self.ncs)
        ops.softmax_gradient(self.xp, dy.reshape(self.ncs), y, dx, self.reduced)
        return self.grad[0]


@register
class SoftmaxWithLoss(Layer):
    """loss = - sum over labels of log softmax(x)[label] / normalizer. Bottoms: scores, labels.

    The normalizer, at least 1, is the number of labels that count (VALID), of all labels (FULL), of
    samples (BATCH_SIZE), or 1 (NONE). Top: the loss, of shape (). Source: Caffe's SoftmaxWithLoss.
    Raises DataError for a label that is no class.
    """

    axis: Annotated[int, "the axis of the classes"] = 1
    ignore_label: Annotated[int | None, "labels of this value do not count"] = None
    normalization: Annotated[
        Literal["FULL", "VALID", "BATCH_SIZE", "NONE"], "what the sum is divided by"
    ] = "VALID"

    is_loss = True
    label_bottoms = (1,)

    def setup(self, x: Shape, labels: Shape) -> Shape:
        self.ncs = n, _, s = folded(x, self.axis)
        check_labels(labels, n, s)
        return ()

    def allocate(self) -> None:
        n, c, s = self.ncs
        self.prob, self.reduced = self.empty(self.ncs), self.empty((n, 1, s))
        self.losses, self.read = self.empty((n, s)), ops.Labels.empty(self.xp, n, c, s, self.dtype)
        self.normalizer, self.scale = self.empty(()), self.empty(())
        fixed = {"FULL": n * s, "BATCH_SIZE": n, "NONE": 1, "VALID": n * s}[self.normalization]
        self.normalizer.fill(max(fixed, 1))

    def forward(self, x: Any, labels: Any) -> Any:
        xp, (n, _, s) = self.xp, self.ncs
        self.labels = labels.reshape(n, s)
        ops.softmax(xp, x.reshape(self.ncs), self.prob, self.reduced)
        ops.nll(self.prob, self.labels, self.ignore_label, self.losses, self.read)
        if self.normalization == "VALID" and self.ignore_label is not None:
            xp.sum(self.read.valid, out=self.normalizer)
            xp.maximum(self.normalizer, 1, out=self.normalizer)
        xp.sum(self.losses, out=self.out[0])
        return xp.divide(self.out[0], self.normalizer, out=self.out[0])

    def backward(self, dloss: Any) -> Any:
        self.xp.divide(dloss, self.normalizer, out=self.scale)
        dx = self.grad[0].reshape(self.ncs)
        ops.nll_gradient(
            self.prob, self.labels, self.ignore_label, self.scale, dx, self.read, self.losses
        )
        return self.grad[0], None

    def check(self) -> None:
        labels = self.context.device.to_host(self.labels)
        ops.Labels.empty(np, *self.ncs, labels.dtype).read(labels, self.ignore_label, *self.ncs[1:])


@register
class Accuracy(Layer):
    """The share of labels among the top_k scores. Bottoms: scores, labels.

    A score that equals the label's counts against it. Tops: the accuracy, of shape (), and if asked
    for the accuracy of each class (c,). Source: Caffe's Accuracy.
    """

    top_k: Annotated[int, "how many classes may be guessed", AtLeast(1)] = 1
    axis: Annotated[int, "the axis of the classes"] = 1
    ignore_label: Annotated[int | None, "labels of this value do not count"] = None

    label_bottoms = (0, 1)

    def setup(self, x: Shape, labels: Shape) -> list[Shape]:
        self.ncs = n, c, s = folded(x, self.axis)
        check_labels(labels, n, s)
        if self.top_k > c:
            raise ShapeError(f"top_k {self.top_k} is more than the {c} classes")
        return [(), (c,)][: max(len(self.top), 1)]

    def allocate(self) -> None:
        n, c, s = self.ncs
        self.hits, self.lower = self.empty((n, s)), self.empty(self.ncs, bool)
        self.read, self.count = ops.Labels.empty(self.xp, n, c, s, self.dtype), self.empty(())

    def forward(self, x: Any, labels: Any) -> Any:
        xp, (n, _, s) = self.xp, self.ncs
        labels = labels.reshape(n, s)
        ops.accuracy(
            x.reshape(self.ncs),
            labels,
            self.top_k,
            self.ignore_label,
            self.hits,
            self.read,
            self.lower,
        )
        xp.sum(self.read.valid, out=self.count)
        xp.maximum(self.count, 1, out=self.count)
        xp.sum(self.hits, out=self.out[0])
        xp.divide(self.out[0], self.count, out=self.out[0])
        if len(self.top) > 1:
            ops.class_accuracy(self.hits, self.read.valid, labels, self.out[1])
        return self.out
