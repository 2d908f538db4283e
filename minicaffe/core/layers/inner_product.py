"""InnerProduct: a batch of vectors times a matrix; a convolution of images of one place."""

import math
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, canonical_axis
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import linear


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
        self.context.reserve(linear.workspace(self.m, self.k, self.num_output, self.runs_backward))
        return (*x[:axis], self.num_output)

    def allocate(self) -> None:
        self.choose(self.context.numerics.deterministic)
        self.before = self.plan

    def choose(self, deterministic: bool) -> None:
        """Choose how to multiply, if there is a choice."""
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
        return self.m * self.k * self.num_output

    def _matrix(self, weight: Any) -> Any:
        return weight.T if self.transpose else weight
