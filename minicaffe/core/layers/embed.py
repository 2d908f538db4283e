"""Layers that return learnt numbers: Embed, rows of a table by their indices, and Parameter, an array."""

import math
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays, linear
from minicaffe.core.ops import take as ops


@register
class Embed(Layer):
    """y[..., :] = weight[x[...], :] + bias, where x holds whole numbers below input_dim.

    (...) -> (..., num_output). Parameters: weight (input_dim, num_output) and bias (num_output,). x has no
    gradient. Raises DataError for an index that is no row of the weight.

    Source: Caffe's Embed.

    Example: (2, 5) -> {type: Embed, input_dim: 10, num_output: 3} -> (2, 5, 3)
    """

    num_output: Annotated[int, "numbers in a row", AtLeast(1)]
    input_dim: Annotated[int, "rows of the weight", AtLeast(1)]
    bias_term: Annotated[bool, "add a bias"] = True
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO

    traits = Traits(recordable=True, label_bottoms=(0,), float32_bottoms=(0,))

    def setup(self, x: Shape) -> Shape:
        self.mf = m, f = math.prod(x), self.num_output
        self.weight = self.param((self.input_dim, f), self.weight_filler)
        self.bias = self.param((f,), self.bias_filler) if self.bias_term else None
        self.context.reserve(linear.workspace(m, 1, f))
        return (*x, f)

    def allocate(self) -> None:
        m, _ = self.mf
        self.rows = self.empty((m,), np.int32)
        self.copy = self.empty((m,), self.sum_dtype) if self.dtype != self.sum_dtype else None

    def forward(self, x: Any) -> Any:
        self.indices = same_type(x.reshape(-1), self.copy)
        y, refused = self.out[0].reshape(self.mf), self.refused
        ops.embed(self.indices, self.weight.data, y, self.rows, refused)
        if self.bias is not None:
            arrays.add(self.bias.data, y)
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        dy = dy.reshape(self.mf)
        if self.weight.learns:
            ops.add_gradient(dy, self.indices, self.rows, *self.weight.sums())
        if self.bias is not None and self.bias.learns:
            linear.bias_gradient(dy, *self.bias.sums(), self.context.workspace)
        return None

    def check(self) -> None:
        indices = self.context.device.to_host(self.indices)
        ops.read(indices, self.input_dim, np.empty(indices.shape, np.int32))


@register
class Parameter(Layer):
    """y = a learnt array of any shape, the parameter, which starts from zeros. No bottom.

    Source: Caffe's Parameter.

    Example: -> {type: Parameter, shape: {dim: [2, 3]}} -> (2, 3)
    """

    shape: Annotated[BlobShape, "{dim: [...]}, the shape of it"]

    traits = Traits(recordable=True)

    def setup(self) -> Shape:
        self.values = self.param(self.shape.dim, ZERO)
        return self.shape.dim

    def forward(self) -> Any:
        return arrays.copy(self.values.data, self.out[0])

    def backward(self, dy: Any) -> Any:
        if self.values.learns:
            diff, empty = self.values.sums()
            (arrays.copy if empty else arrays.add)(dy, diff)
        return []
