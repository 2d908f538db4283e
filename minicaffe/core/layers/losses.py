"""What losses have in common: labels, samples, and the divisor of a sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops import arrays
from minicaffe.core.ops.labels import Labels, Mean, check_classes
from minicaffe.core.ops.sums import total
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


def same_type(xp: Any, array: Any, copy: Any) -> Any:
    """The array, or its copy in the buffer `copy` if that has another type."""
    if copy is None or array.dtype == copy.dtype:
        return array
    return arrays.copy(array, copy)


class Loss(Layer):
    """A layer whose first top is one number; `scale` is the gradient by a sum, on the device."""

    traits = Traits(is_loss=True, recordable=True, of_whole=True)

    def allocate(self) -> None:
        self.scale = self.empty((), self.sum_dtype)

    def mean(self, losses: Any, divisor: int, squares: bool = False) -> Any:
        """The first top: the sum of losses, or of their squares, over `divisor`; 0 without samples.

        `divisor` is proportional to the batch: on several ranks it is scaled to the whole batch.
        """
        work, whole = self.context.workspace, self.context.share.of_whole(divisor)
        return total(losses, self.out[0], work, scale=1 / max(whole, 1), squares=squares)

    def scaled(self, dloss: Any, divisor: int, sign: int = 1) -> Any:
        """`scale`: the gradient of the loss over `divisor`, over 1 without samples."""
        whole = self.context.share.of_whole(divisor)
        return arrays.scale(dloss, sign / max(whole, 1), self.scale)


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
