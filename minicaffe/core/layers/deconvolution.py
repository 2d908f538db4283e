"""The adjoint of a convolution; and Im2col, the windows themselves."""

import math
from typing import Any

from minicaffe.backends.dispatch import threads
from minicaffe.core.layers.base import Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.convolution import Filtered
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.window import Unrolled
from minicaffe.core.ops import conv
from minicaffe.core.ops.geometry import ConvGeometry, Sizes, Window, column_shape
from minicaffe.core.ops.im2col import col2im, im2col


@register
class Deconvolution(Filtered):
    """The adjoint of a convolution: each pixel adds its weighted window to y. 1-D to 3-D, with groups.

    (n, c, *image) -> (n, num_output, *out), along each axis
    out = stride (size - 1) + dilation (kernel - 1) + 1 - 2 pad.
    Parameters: weight (c, num_output / group, *kernel), bias (num_output,). It is the input gradient of
    the convolution with this weight. Several bottoms of one shape have a top each, with the same
    parameters. Source: Caffe's Deconvolution; Zeiler et al. 2010.

    Example: (2, 3, 4, 4) -> {type: Deconvolution, num_output: 5, kernel_size: 4, stride: 2} -> (2, 5, 10, 10)
    """

    def setup(self, x: Shape, *more: Shape) -> Shape | list[Shape]:
        lead, c, image, window = self.split(x)
        n, out = math.prod(lead), window.images(image)
        self.declare(ConvGeometry(n, self.num_output, out, c, window, self.group), c)
        one = Window((1,) * len(out))
        self.tops = ConvGeometry(n, 1, out, self.num_output, one)  # for the bias
        return self.tops_of((*lead, self.num_output, *out), (x, *more))

    def allocate(self) -> None:
        super().allocate()
        bias = conv.common.bias_workspace(self.tops, self.context.device.is_cuda)
        self.context.reserve(threads() * bias)

    def forward(self, *xs: Any) -> Any:
        g, work = self.geometry, self.context.workspace
        self.xs = [x.reshape(g.y_shape) for x in xs]
        for x, top in zip(self.xs, self.out, strict=True):
            y = top.reshape(g.x_shape)
            self.plan.input_gradient(x, self.weight.data, y, work)
            conv.common.add_bias(None if self.bias is None else self.bias.data, y)
        return self.out

    def backward(self, *dys: Any) -> Any:
        g, work = self.geometry, self.context.workspace
        for x, dtop, grad in zip(self.xs, dys, self.grad, strict=True):
            dy = dtop.reshape(g.x_shape)
            if self.weight.learns:
                self.plan.gradients(dy, x, None, None, self.weight.diff, None, work)
            if self.bias is not None and self.bias.learns:
                conv.common.bias_gradient(dy, self.tops, self.bias.diff, work)
            if grad is not None:
                self.plan.forward(dy, self.weight.data, None, grad.reshape(g.y_shape), work)
        return self.grad


@register
class Im2col(Unrolled):
    """The windows of an image, each a column: the matrix that a convolution multiplies by its weight.

    (n, c, *image) -> (n, c kernel, *out): channel (c kh + i) kw + j holds, for every window, its
    element (i, j) of channel c. Source: Caffe's Im2col.

    Example: (2, 3, 5, 5) -> {type: Im2col, kernel_size: 3} -> (2, 27, 3, 3)
    """

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        lead, c, image, self.window = self.split(x)
        self.x_shape: Sizes = (math.prod(lead), c, *image)
        self.columns = column_shape(self.x_shape, self.window)
        return (*lead, self.columns[1], *self.window.outputs(image))

    def forward(self, x: Any) -> Any:
        im2col(x.reshape(self.x_shape), self.window, self.out[0].reshape(self.columns))
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        col2im(dy.reshape(self.columns), self.window, self.grad[0].reshape(self.x_shape))
        return self.grad[0]
