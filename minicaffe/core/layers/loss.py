"""Softmax and accuracy."""

from __future__ import annotations

from typing import Annotated, Any

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import check_labels, folded, same_type
from minicaffe.core.ops import accuracy, arrays
from minicaffe.core.ops import softmax as ops
from minicaffe.core.ops.labels import Labels, check_classes
from minicaffe.core.ops.sums import WORK, total
from minicaffe.errors import ShapeError


@register
class Softmax(Layer):
    """y = exp(x) / sum of exp(x) along `axis`. Source: Caffe's Softmax.

    Example: (2, 10) -> {type: Softmax} -> (2, 10)
    """

    axis: Annotated[int, "the axis of the classes"] = 1

    traits = Traits(keeps_top=True, recordable=True)

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
            arrays.copy(self.y, y)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        dx = self.grad[0].reshape(self.ncs)
        out = self.wide[1] if self.wide else dx
        ops.softmax_gradient(dy.reshape(self.ncs), self.y, out, self.reduced)
        if self.wide:
            arrays.copy(out, dx)
        return self.grad[0]


@register
class Accuracy(Layer):
    """The share of labels among the top_k scores. Bottoms: scores, labels.

    A score that equals the label's counts as larger. Tops: the accuracy, of shape (), and, if there is a
    second top, the accuracy of each class (c,). Source: Caffe's Accuracy.

    Example: (4, 10), (4,) -> {type: Accuracy, top_k: 5} -> ()
    """

    top_k: Annotated[int, "how many of the largest scores count", AtLeast(1)] = 1
    axis: Annotated[int, "the axis of the classes"] = 1
    ignore_label: Annotated[int | None, "labels of this value do not count"] = None

    traits = Traits(
        recordable=True,
        label_bottoms=(0, 1),
        float32_bottoms=(1,),
        float32_tops=(0, 1),
        inferred_as="nothing",
    )

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
        self.read = Labels.empty(self.xp, n, c, s, dtype, self.refused)
        self.count = self.empty((), dtype)
        self.copies: Any = (None, None)  # of 16 bits: scores and, should they be so too, labels
        if self.dtype != dtype:
            self.copies = self.empty(self.ncs, dtype), self.empty((n, s), dtype)

    def forward(self, x: Any, labels: Any) -> Any:
        xp, (n, _, s), work = self.xp, self.ncs, self.context.workspace
        labels = same_type(xp, labels.reshape(n, s), self.copies[1])
        accuracy.accuracy(
            same_type(xp, x.reshape(self.ncs), self.copies[0]),
            labels,
            self.top_k,
            self.ignore_label,
            self.hits,
            self.read,
            self.lower,
        )
        total(self.read.valid, self.count, work)
        arrays.at_least(self.count, 1)
        total(self.hits, self.out[0], work)
        arrays.divide(self.out[0], self.count, self.out[0])
        if len(self.top) > 1:
            accuracy.class_accuracy(self.hits, self.read.valid, labels, self.out[1])
        self.labels = labels
        return self.out

    def check(self) -> None:
        check_classes(self.context.device.to_host(self.labels), self.ignore_label, self.ncs[1])
