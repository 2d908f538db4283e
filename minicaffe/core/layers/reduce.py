"""Layers that reduce axes: Reduction and ArgMax."""

import math
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, elementwise
from minicaffe.core.ops.argmax import largest
from minicaffe.core.ops.sums import WORK, rows
from minicaffe.errors import ShapeError

OF = {"SUM": "values", "MEAN": "values", "ASUM": "magnitudes", "SUMSQ": "squares"}


@register
class Reduction(Layer):
    """y = coeff times the SUM of x over the axes from `axis` on, of |x| (ASUM), of x^2 (SUMSQ), or the MEAN.

    (..., axes) -> (...); of all axes -> (), a number that `loss_weight` makes a loss.
    Source: Caffe's Reduction.

    Example: (2, 3, 4) -> {type: Reduction, operation: MEAN, axis: 1} -> (2,)
    """

    operation: Annotated[
        Literal["SUM", "ASUM", "SUMSQ", "MEAN"], "what is computed of the numbers"
    ] = "SUM"
    axis: Annotated[int, "the first axis that is summed over"] = 0
    coeff: Annotated[float, "a factor"] = 1.0

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        axis = canonical_axis(self.axis, x) if x else 0
        self.m, self.k = math.prod(x[:axis]), math.prod(x[axis:])
        self.over = self.k if axis else self.context.share.of_whole(self.k)
        self.context.reserve(max(WORK, self.m * self.k))
        return x[:axis]

    @property
    def scale(self) -> float:
        return self.coeff / max(self.over, 1) if self.operation == "MEAN" else self.coeff

    def forward(self, x: Any) -> Any:
        self.x, work = x.reshape(self.m, self.k), self.context.workspace
        rows(self.x, self.out[0].reshape(self.m), work, OF[self.operation], self.scale)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        dx, dy = self.grad[0].reshape(self.m, self.k), dy.reshape(self.m, 1)
        arrays.scale(dy, (1 + (self.operation == "SUMSQ")) * self.scale, dx)
        if self.operation == "ASUM":
            elementwise.gradient("AbsVal", dx, self.x, self.x, (), dx)
        elif self.operation == "SUMSQ":
            arrays.multiply(dx, self.x, dx)
        return self.grad


@register
class ArgMax(Layer):
    """The places of the `top_k` largest numbers, the largest first; of equal ones the last comes first.

    Without `axis` each sample is searched as one row: (n, ...) -> (n, 1, top_k), or
    with out_max_val (n, 2, top_k), places and numbers; a bottom with more than three axes adds 1s.
    With `axis` that axis becomes top_k long and holds places, or with out_max_val the numbers themselves.
    NaN is chosen only if no other number is left; its place is then -1. Source: Caffe's ArgMax.

    Example: (2, 5, 3) -> {type: ArgMax, axis: 1, top_k: 2} -> (2, 2, 3)
    """

    out_max_val: Annotated[
        bool, "return the numbers: beside the places, or, with axis, instead"
    ] = False
    top_k: Annotated[int, "how many", AtLeast(1)] = 1
    axis: Annotated[int | None, "the axis to search; default: all but the first as one"] = None

    traits = Traits(recordable=True, label_bottoms=(0,), float32_tops=(0,))

    def setup(self, x: Shape) -> Shape:
        if not x:
            raise ShapeError("needs a bottom of at least one axis, got ()")
        k = self.top_k
        if self.axis is None:
            self.ncs = x[0], math.prod(x[1:]), 1
            top = (x[0], 2 if self.out_max_val else 1, k, *(1,) * (len(x) - 3))
        else:
            axis = canonical_axis(self.axis, x)
            self.ncs = math.prod(x[:axis]), x[axis], math.prod(x[axis + 1 :])
            top = (*x[:axis], k, *x[axis + 1 :])
        if k > self.ncs[1]:
            raise ShapeError(f"top_k {k} is more than the {self.ncs[1]} numbers there are")
        return top

    def allocate(self) -> None:
        n, _, s = self.ncs
        self.place = self.empty((n, self.top_k, s), np.int32)
        self.number = self.empty((n, self.top_k, s))
        self.flags = self.empty((4, n, s), np.bool_)

    def forward(self, x: Any) -> Any:
        (n, _, s), k = self.ncs, self.top_k
        largest(x.reshape(self.ncs), self.place, self.number, self.flags)
        if self.axis is not None:
            values = self.number if self.out_max_val else self.place
            arrays.copy(values, self.out[0].reshape(n, k, s))
            return self.out
        both = self.out[0].reshape(n, 2 if self.out_max_val else 1, k)
        for i, values in enumerate((self.place, self.number)[: both.shape[1]]):
            arrays.copy(values.reshape(n, k), both[:, i])
        return self.out

    def backward(self, dy: Any) -> Any:
        return None
