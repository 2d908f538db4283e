"""Softmax, accuracy, and losses of scores through their softmax: SoftmaxWithLoss and InfogainLoss."""

import math
from dataclasses import replace
from typing import Annotated, Any

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.losses import Normalized, check_labels, folded
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, label_losses
from minicaffe.core.ops import softmax as ops
from minicaffe.core.ops.softmax import Labels, accuracy, check_classes, class_accuracy
from minicaffe.core.ops.sums import WORK, total
from minicaffe.errors import DataError, ShapeError
from minicaffe.storage.lists import find
from minicaffe.storage.wire import read_array


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
        wide = self.dtype != self.sum_dtype  # of 16 bits: y and dx in float32
        self.wide = [self.empty(self.ncs, self.sum_dtype) for _ in range(2)] if wide else []

    def forward(self, x: Any) -> Any:
        y = self.out[0].reshape(self.ncs)
        self.y = self.wide[0] if self.wide else y
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
        (n, _, s), work = self.ncs, self.context.workspace
        labels = same_type(labels.reshape(n, s), self.copies[1])
        scores = same_type(x.reshape(self.ncs), self.copies[0])
        accuracy(scores, labels, self.top_k, self.ignore_label, self.hits, self.read, self.lower)
        total(self.read.valid, self.count, work)
        arrays.at_least(self.count, 1)
        total(self.hits, self.out[0], work)
        arrays.divide(self.out[0], self.count, self.out[0])
        if len(self.top) > 1:
            class_accuracy(self.hits, self.read.valid, labels, self.out[1])
        self.labels = labels
        return self.out

    def check(self) -> None:
        check_classes(self.context.device.to_host(self.labels), self.ignore_label, self.ncs[1])


class SoftmaxLoss(Normalized):
    """The base: scores to probabilities, these to one loss per label; a second top is the probabilities."""

    traits = replace(Normalized.traits, keeps_top=True)  # backward reads the probabilities
    axis: int

    def setup(self, x: Shape, labels: Shape) -> list[Shape]:
        self.ncs = n, _, s = folded(x, self.axis)
        check_labels(labels, n, s)
        if len(self.top) > 2:
            raise ShapeError(f"has 1 or 2 tops (loss, probabilities), got {len(self.top)}")
        self.context.reserve(WORK)
        return [(), x][: max(len(self.top), 1)]

    def allocate(self) -> None:
        super().allocate()
        (n, _, s), dtype, more = self.ncs, self.sum_dtype, len(self.top) > 1
        self.losses = self.empty((n, s), dtype)
        self.reduced = self.losses.reshape(n, 1, s)  # scratch, until it holds the losses
        self.take_labels()
        self.take_mean(n, s)
        self.wide = self.label_copy = None  # in float32: dx and labels, if of 16 bits
        if self.dtype != dtype:
            self.wide, self.label_copy = self.empty(self.ncs, dtype), self.empty((n, s), dtype)
        in_top = more and self.out[1].dtype == dtype
        self.prob = self.out[1].reshape(self.ncs) if in_top else self.empty(self.ncs, dtype)
        more &= self.runs_backward
        self.through = self.empty(self.ncs, dtype) if more else None  # the gradient through prob

    def lose(self, x: Any, *more: Any) -> None:
        """Fill `prob`, `losses`, `read` and the first top."""
        raise NotImplementedError

    def gradient(self, dloss: Any, out: Any) -> None:
        """Fill `out` with the gradient of the loss with respect to the scores, times dloss."""
        raise NotImplementedError

    def forward(self, x: Any, labels: Any, *more: Any) -> Any:
        n, _, s = self.ncs
        self.labels = same_type(labels.reshape(n, s), self.label_copy)
        self.lose(x.reshape(self.ncs), *more)
        if len(self.out) > 1 and self.out[1].dtype != self.prob.dtype:
            arrays.copy(self.prob, self.out[1].reshape(self.ncs))
        return self.out

    def backward(self, dloss: Any, dprob: Any = None) -> Any:
        dx = self.grad[0].reshape(self.ncs)
        out = dx if self.wide is None else self.wide
        self.gradient(dloss, out)
        if dprob is not None:
            ops.softmax_gradient(dprob.reshape(self.ncs), self.prob, self.through, self.reduced)
            arrays.add(self.through, out)
        if self.wide is not None:
            arrays.copy(out, dx)
        return [self.grad[0], *[None] * (len(self.bottom) - 1)]


@register
class SoftmaxWithLoss(SoftmaxLoss):
    """loss = - sum over labels of log softmax(x)[label] / normalizer. Bottoms: scores, labels.

    The normalizer, at least 1, is the number of labels that count (VALID, the default), of all labels (FULL),
    of samples (BATCH_SIZE), or 1 (NONE). Tops: the loss, of shape (), and optionally the probabilities
    softmax(x), which have a gradient as in Softmax. Raises DataError for a label that is no
    class. Source: Caffe's SoftmaxWithLoss.

    Example: (2, 3), (2,) -> {type: SoftmaxWithLoss} -> ()
    """

    axis: Annotated[int, "the axis of the classes"] = 1

    traits = replace(SoftmaxLoss.traits, inferred_as="Softmax")

    def lose(self, x: Any, *more: Any) -> None:
        filled = self.prob, self.losses, self.read, self.of_losses, self.out[0]
        ops.softmax_loss(x, self.labels, self.ignore_label, *filled, self.context.workspace)

    def gradient(self, dloss: Any, out: Any) -> None:
        kernel_args = self.prob, self.labels, self.ignore_label, dloss
        ops.softmax_loss_gradient(*kernel_args, out, self.read, self.of_losses)


@register
class InfogainLoss(SoftmaxLoss):
    """loss = - sum over labels of sum over k of H[label, k] log softmax(x)[k] / normalizer.

    Bottoms: scores, labels and, unless a file holds it, the matrix H of c^2 numbers for c classes. Normalizer,
    labels and tops are those of SoftmaxWithLoss; with an identity so is the loss. A probability below 1e-20
    counts as 1e-20. Raises DataError for a label that is no class or a file without such a matrix.
    Source: Caffe's InfogainLoss.

    Example: (2, 3), (2,), (3, 3) -> {type: InfogainLoss, normalization: BATCH_SIZE} -> ()
    """

    source: Annotated[
        str | None, "the matrix H: an .npy or .binaryproto file; without it, the third bottom"
    ] = None
    axis: Annotated[int, "the axis of the classes"] = 1

    traits = replace(SoftmaxLoss.traits, label_bottoms=(1, 2), float32_bottoms=(1, 2))
    table = None

    def setup(self, x: Shape, labels: Shape, matrix: Shape | None = None) -> list[Shape]:
        tops = super().setup(x, labels)
        c = self.ncs[1]
        if self.normalize is not None:
            remedy = "give normalization, as Caffe asks"
            raise ShapeError(f"normalize is not taken by InfogainLoss; {remedy}")
        if (matrix is None) == (self.source is None):
            raise ShapeError("needs the matrix once: as its third bottom or as the file `source`")
        if matrix is not None and math.prod(matrix) != c * c:
            raise ShapeError(f"needs a matrix of {c} x {c} as its third bottom, got {matrix}")
        return tops

    def allocate(self) -> None:
        super().allocate()
        (n, c, s), dtype = self.ncs, self.sum_dtype
        self.sums, self.work = self.empty((c,), dtype), self.empty(self.ncs, dtype)
        self.scratch = label_losses.InfogainScratch.empty(self.xp, n, c, s, dtype)
        if self.source is not None:
            if self.table is None:
                self.table = read_array(find(self.source, [self.context.folder], "source"))
            if self.table.dtype.kind not in "fiu":
                raise DataError(f"source {self.source}: expected numbers, got {self.table.dtype}")
            if self.table.size != c * c:
                shape = self.table.shape
                raise DataError(f"source {self.source}: expected {c} x {c} numbers, got {shape}")
            self.matrix = self.context.device.asarray(self.table.reshape(c, c).astype(dtype))
            label_losses.row_sums(self.matrix, self.sums)

    def lose(self, x: Any, *more: Any) -> None:
        ops.softmax(x, self.prob, self.reduced)
        if more:
            self.matrix = more[0].reshape(self.sums.size, -1)
            label_losses.row_sums(self.matrix, self.sums)
        kernel_args = self.prob, self.labels, self.matrix, self.ignore_label, self.losses, self.read
        label_losses.infogain(*kernel_args, self.work, self.scratch)
        self.of_losses.of(self.losses, self.read.valid, self.out[0], self.context.workspace)

    def gradient(self, dloss: Any, out: Any) -> None:
        scale = self.of_losses.gradient(dloss)
        kernel_args = self.prob, self.labels, self.matrix, self.sums, self.ignore_label, scale
        label_losses.infogain_gradient(*kernel_args, out, self.read, self.scratch)
