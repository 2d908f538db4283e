"""Softmax, its loss, and accuracy."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.errors import ShapeError
from minicaffe.layers.base import Layer, canonical_axis, register
from minicaffe.layers.blob import Shape
from minicaffe.ops import softmax as ops
from minicaffe.ops.sums import WORK, total
from minicaffe.spec.types import AtLeast


def folded(shape: Shape, axis: int) -> tuple[int, int, int]:
    """A shape as (n, c, s): the axes before `axis`, that axis, those behind it."""
    axis = canonical_axis(axis, shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def check_labels(labels: Shape, n: int, s: int) -> None:
    """Raise ShapeError unless there is one label for each (n, s)."""
    if math.prod(labels) != n * s:
        raise ShapeError(f"needs {n * s} labels, one a prediction, got a bottom of shape {labels}")


def same_type(xp: Any, array: Any, copy: Any) -> Any:
    """An array, or a copy of it in the buffer `copy` if that is of another type."""
    if copy is None or array.dtype == copy.dtype:
        return array
    xp.copyto(copy, array)
    return copy


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
        self.reduced = self.empty((n, 1, s), self.sum_dtype)
        self.wide: Any = None  # of 16 bits: y and dx in float32
        if self.dtype != self.sum_dtype:
            self.wide = [self.empty(self.ncs, self.sum_dtype) for _ in range(2)]

    def forward(self, x: Any) -> Any:
        self.y = y = self.out[0].reshape(self.ncs)
        if self.wide:
            self.y = self.wide[0]
        ops.softmax(x.reshape(self.ncs), self.y, self.reduced)
        if self.wide:
            self.xp.copyto(y, self.y)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        dx = self.grad[0].reshape(self.ncs)
        out = self.wide[1] if self.wide else dx
        ops.softmax_gradient(dy.reshape(self.ncs), self.y, out, self.reduced)
        if self.wide:
            self.xp.copyto(dx, out)
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
    label_bottoms = float32_bottoms = (1,)

    def setup(self, x: Shape, labels: Shape) -> Shape:
        self.ncs = n, _, s = folded(x, self.axis)
        check_labels(labels, n, s)
        self.context.reserve(WORK)
        return ()

    def allocate(self) -> None:
        (n, c, s), dtype = self.ncs, self.sum_dtype
        self.prob, self.reduced = self.empty(self.ncs, dtype), self.empty((n, 1, s), dtype)
        self.losses = self.empty((n, s), dtype)
        self.read = ops.Labels.empty(self.xp, n, c, s, dtype)
        self.normalizer, self.scale = self.empty((), dtype), self.empty((), dtype)
        self.wide = self.label_copy = None  # of 16 bits: dx and, should they be so too, labels
        if self.dtype != dtype:
            self.wide, self.label_copy = self.empty(self.ncs, dtype), self.empty((n, s), dtype)
        fixed = {"FULL": n * s, "BATCH_SIZE": n, "NONE": 1, "VALID": n * s}[self.normalization]
        self.normalizer.fill(max(fixed, 1))

    def forward(self, x: Any, labels: Any) -> Any:
        xp, (n, _, s), work = self.xp, self.ncs, self.context.workspace
        self.labels = same_type(xp, labels.reshape(n, s), self.label_copy)
        ops.softmax(x.reshape(self.ncs), self.prob, self.reduced)
        ops.nll(self.prob, self.labels, self.ignore_label, self.losses, self.read)
        if self.normalization == "VALID" and self.ignore_label is not None:
            total(self.read.valid, self.normalizer, work)
            xp.maximum(self.normalizer, 1, out=self.normalizer)
        total(self.losses, self.out[0], work)
        return xp.divide(self.out[0], self.normalizer, out=self.out[0])

    def backward(self, dloss: Any) -> Any:
        self.xp.divide(dloss, self.normalizer, out=self.scale)
        dx = self.grad[0].reshape(self.ncs)
        out = dx if self.wide is None else self.wide
        ops.nll_gradient(
            self.prob, self.labels, self.ignore_label, self.scale, out, self.read, self.losses
        )
        if self.wide is not None:
            self.xp.copyto(dx, out)
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
    float32_bottoms = (1,)
    float32_tops = (0, 1)

    def setup(self, x: Shape, labels: Shape) -> list[Shape]:
        self.ncs = n, c, s = folded(x, self.axis)
        check_labels(labels, n, s)
        if self.top_k > c:
            raise ShapeError(f"top_k {self.top_k} is more than the {c} classes")
        self.context.reserve(WORK)
        return [(), (c,)][: max(len(self.top), 1)]

    def allocate(self) -> None:
        (n, c, s), dtype = self.ncs, self.sum_dtype
        self.hits, self.lower = self.empty((n, s), dtype), self.empty(self.ncs, bool)
        self.read = ops.Labels.empty(self.xp, n, c, s, dtype)
        self.count = self.empty((), dtype)
        self.copies: Any = (None, None)  # of 16 bits: scores and, should they be so too, labels
        if self.dtype != dtype:
            self.copies = self.empty(self.ncs, dtype), self.empty((n, s), dtype)

    def forward(self, x: Any, labels: Any) -> Any:
        xp, (n, _, s), work = self.xp, self.ncs, self.context.workspace
        labels = same_type(xp, labels.reshape(n, s), self.copies[1])
        ops.accuracy(
            same_type(xp, x.reshape(self.ncs), self.copies[0]),
            labels,
            self.top_k,
            self.ignore_label,
            self.hits,
            self.read,
            self.lower,
        )
        total(self.read.valid, self.count, work)
        xp.maximum(self.count, 1, out=self.count)
        total(self.hits, self.out[0], work)
        xp.divide(self.out[0], self.count, out=self.out[0])
        if len(self.top) > 1:
            ops.class_accuracy(self.hits, self.read.valid, labels, self.out[1])
        return self.out
