"""Layers of products, shapes and sums: InnerProduct, Flatten, Eltwise, Concat."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.errors import ShapeError
from minicaffe.layers.base import Layer, Traits, canonical_axis, register
from minicaffe.layers.blob import Shape
from minicaffe.layers.fillers import XAVIER, ZERO
from minicaffe.ops import arrays, eltwise, linear
from minicaffe.spec.declare import Filler
from minicaffe.spec.types import AtLeast


@register
class InnerProduct(Layer):
    """y = x weight' + bias, with x seen as a matrix (m, k) of the axes before and from `axis`.

    (..., k axes) -> (..., num_output). Parameters: weight (num_output, k), or (k, num_output) with
    transpose, and bias (num_output,). Source: Caffe's InnerProduct.

    Example: (2, 3, 4) -> {type: InnerProduct, num_output: 5} -> (2, 5)
    """

    num_output: Annotated[int, "number of outputs", AtLeast(1)]
    bias_term: Annotated[bool, "add a bias"] = True
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO
    axis: Annotated[int, "the first axis that is summed over"] = 1
    transpose: Annotated[bool, "store the weight as (k, num_output)"] = False

    traits = Traits(recordable=True)
    before = None  # the plan of its last size

    def setup(self, x: Shape) -> Shape:
        axis = canonical_axis(self.axis, x)
        self.m, self.k = math.prod(x[:axis]), math.prod(x[axis:])
        shape = (self.k, self.num_output) if self.transpose else (self.num_output, self.k)
        self.weight = self.param(shape, self.weight_filler)
        self.bias = self.param((self.num_output,), self.bias_filler) if self.bias_term else None
        self.choose(deterministic=True)
        size = linear.workspace(self.m, self.k, self.num_output, self.runs_backward)
        self.context.reserve(size)
        return (*x[:axis], self.num_output)

    def allocate(self) -> None:
        self.choose(self.context.deterministic)
        self.before = self.plan

    def choose(self, deterministic: bool) -> None:
        """Plan what multiplies, where there is a choice."""
        net, sizes = self.context, (self.m, self.k, self.num_output)
        self.plan = linear.plan(*sizes, net.dtype, net.device, deterministic, self.before)

    def forward(self, x: Any) -> Any:
        self.x, y = x.reshape(self.m, self.k), self.out[0].reshape(self.m, self.num_output)
        bias = None if self.bias is None else self.bias.data
        weight, work = self._matrix(self.weight.data).T, self.context.workspace
        linear.linear(self.x, weight, bias, y, work, self.plan)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        dy, work = dy.reshape(self.m, self.num_output), self.context.workspace
        dw = db = None
        if self.weight.learns:
            diff, empty = self.weight.sums()
            dw = self._matrix(diff), empty
        if self.bias is not None and self.bias.learns:
            db = self.bias.sums()
        linear.gradients(self.x, dy, dw, db, work, self.plan)
        if not self.needs_gradient[0]:
            return None
        dx = self.grad[0].reshape(self.m, self.k)
        linear.input_gradient(dy, self._matrix(self.weight.data), dx, work, self.plan)
        return self.grad[0]

    @property
    def multiply_adds(self) -> int:  # type: ignore[override]
        """m k num_output."""
        return self.m * self.k * self.num_output

    def _matrix(self, weight: Any) -> Any:
        return weight.T if self.transpose else weight


class Viewed(Layer):
    """Layers whose top holds the bottom's numbers, in their order, in another shape."""

    traits = Traits(keeps_dtype=True, recordable=True)
    x_shape: Shape
    y_shape: Shape

    def forward(self, x: Any) -> Any:
        return x.reshape(self.y_shape)

    def backward(self, dy: Any) -> Any:
        return dy.reshape(self.x_shape)


@register
class Flatten(Viewed):
    """The axes from `axis` to `end_axis` as one. Source: Caffe's Flatten.

    Example: (2, 3, 4, 5) -> {type: Flatten} -> (2, 60)
    """

    axis: Annotated[int, "the first axis to flatten"] = 1
    end_axis: Annotated[int, "the last axis to flatten"] = -1

    def setup(self, x: Shape) -> Shape:
        first, last = canonical_axis(self.axis, x), canonical_axis(self.end_axis, x)
        if last < first:
            raise ShapeError(f"end_axis {self.end_axis} comes before axis {self.axis}")
        self.x_shape, self.y_shape = x, (*x[:first], math.prod(x[first : last + 1]), *x[last + 1 :])
        return self.y_shape


@register
class Eltwise(Layer):
    """SUM: y = sum of coeff[i] x[i]; PROD: y = product of x[i]; MAX: y = largest x[i]. Equal shapes.

    Of equal values in a MAX the last bottom takes the gradient, as in Caffe. The gradient of a PROD
    is the product of the other bottoms, whether or not `stable_prod_grad` asks for it: Caffe's other way
    divides by the bottom. Source: Caffe's Eltwise.

    Example: (2, 3), (2, 3) -> {type: Eltwise, coeff: [1, -1]} -> (2, 3)
    """

    operation: Annotated[Literal["SUM", "PROD", "MAX"], "what to do with the bottoms"] = "SUM"
    coeff: Annotated[tuple[float, ...], "SUM: a factor for each bottom; default 1"] = ()
    stable_prod_grad: Annotated[bool, "Caffe's; without effect: it always is"] = True

    traits = Traits(recordable=True)

    def setup(self, x: Shape, other: Shape, *more: Shape) -> Shape:
        self.count = 2 + len(more)
        for shape in (other, *more):
            if shape != x:
                raise ShapeError(f"needs bottoms of one shape, got {x} and {shape}")
        if self.coeff and (self.operation != "SUM" or len(self.coeff) != self.count):
            raise ShapeError(f"coeff goes with SUM, one number for each of {self.count} bottoms")
        self.factors = self.coeff or (1.0,) * self.count
        self.shape = x
        self.context.reserve(math.prod(x))
        return x

    def allocate(self) -> None:
        self.which: Any = None  # for each number of the top, the bottom that it is of
        if self.operation == "MAX" and self.runs_backward:
            self.which = self.empty(self.shape, np.int32)

    def forward(self, *xs: Any) -> Any:
        self.xs, y = xs, self.out[0]
        if self.operation == "SUM":
            return eltwise.total(xs, self.factors, y, self.context.scratch(self.shape))
        if self.operation == "PROD":
            return eltwise.product(xs[1:], arrays.copy(xs[0], y))
        return eltwise.largest(xs, y, self.which, self.context.scratch(self.shape, np.bool_))

    def backward(self, dy: Any) -> Any:
        for i, dx in enumerate(self.grad):
            if not self.needs_gradient[i]:
                continue
            if self.operation == "SUM":
                arrays.scale(dy, self.factors[i], dx)
            elif self.operation == "MAX":
                won = self.context.scratch(self.shape, np.bool_)
                eltwise.largest_gradient(dy, self.which, i, dx, won)
            else:
                eltwise.product(self.xs, arrays.copy(dy, dx), without=i)
        return self.grad


@register
class Concat(Layer):
    """The bottoms one behind the other along `axis`. Source: Caffe's Concat.

    Example: (2, 3, 4), (2, 1, 4) -> {type: Concat, axis: 1} -> (2, 4, 4)
    """

    axis: Annotated[int | None, "the axis along which they are joined; 1 if not given"] = None
    concat_dim: Annotated[int | None, "axis, as old nets spell it", AtLeast(0)] = None

    traits = Traits(keeps_dtype=True, recordable=True)

    def setup(self, x: Shape, *more: Shape) -> Shape:
        if self.axis is not None and self.concat_dim is not None:
            raise ShapeError("give either axis or concat_dim, which is its old name, not both")
        given = self.concat_dim if self.axis is None else self.axis
        axis = canonical_axis(1 if given is None else given, x)
        for shape in more:
            if (
                shape[:axis] != x[:axis]
                or len(shape) != len(x)
                or shape[axis + 1 :] != x[axis + 1 :]
            ):
                raise ShapeError(
                    f"needs bottoms that differ along axis {axis} only, got {x} and {shape}"
                )
        sizes = [shape[axis] for shape in (x, *more)]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self.parts = [
            (slice(None),) * axis + (slice(start, start + size),)
            for start, size in zip(starts, sizes, strict=True)
        ]
        return (*x[:axis], sum(sizes), *x[axis + 1 :])

    def forward(self, *xs: Any) -> Any:
        for x, part in zip(xs, self.parts, strict=True):
            arrays.copy(x, self.out[0][part])
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        for dx, part, wanted in zip(self.grad, self.parts, self.needs_gradient, strict=True):
            if wanted:
                arrays.copy(dy[part], dx)
        return self.grad
