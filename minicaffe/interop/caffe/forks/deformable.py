"""DeformableConvolution of the Caffes of Deformable ConvNets."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Param, Shape
from minicaffe.core.layers.fillers import XAVIER, ZERO
from minicaffe.core.layers.window import Windowed
from minicaffe.core.ops import arrays
from minicaffe.core.ops.geometry import Window
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.between import Between
from minicaffe.interop.caffe.forks.whole import Whole


@register
class DeformableConvolution(Windowed, Whole):
    """A Convolution each of whose kernel's places reads elsewhere: where an offset says, between pixels.

    (n, c, h, w), offsets (n, 2 deformable_group kh kw, oh, ow) -> (n, num_output, oh, ow), sizes as
    Convolution's. For the channels of deformable group g, entry k of the kernel at (i, j) reads the pixel
    where Convolution would, plus (offset 2 (g kh kw + k), offset 2 (g kh kw + k) + 1) at (i, j), rows first;
    0 unless it is inside the image, padding not counted. Parameters: weight (num_output, c / group, kh, kw),
    bias (num_output,). Both bottoms have a gradient; on CUDA the first's is summed on the host.
    Source: DeformableConvolution of unsky's Deformable-ConvNets-caffe; J. Dai et al., Deformable
    Convolutional Networks, 2017.

    Example: (1, 4, 5, 6), (1, 36, 5, 6) -> {type: DeformableConvolution, num_output: 3, kernel_size: 3,
    pad: 1, deformable_group: 2} -> (1, 3, 5, 6)
    """

    num_output: Annotated[int, "number of filters", AtLeast(1)]
    bias_term: Annotated[bool, "add a bias"] = True
    dilation: Annotated[
        tuple[int, ...], "step between kernel elements: d or [h, w]; 1 if not given", AtLeast(1)
    ] = ()
    group: Annotated[int, "groups of channels convolved apart", AtLeast(1)] = 1
    deformable_group: Annotated[int, "groups of channels with offsets of their own", AtLeast(1)] = 1
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO

    def setup(self, x: Shape, offset: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        keys = (("kernel_size", None), ("stride", 1), ("pad", 0), ("dilation", 1))
        self.window = Window(*(self.sizes(key, default) for key, default in keys))
        out = self.window.outputs(x[2:])
        (n, c), parts = x[:2], math.prod(self.window.kernel)
        for key, count, by in (
            ("channels", c, self.group),
            ("num_output", self.num_output, self.group),
            ("channels", c, self.deformable_group),
        ):
            if count % by:
                raise ShapeError(f"{key} {count} cannot be divided into groups of {by}")
        wanted = (n, 2 * self.deformable_group * parts, *out)
        if offset != wanted:
            raise ShapeError(f"needs offsets {wanted}, got {offset}")
        self.x_shape, self.y_shape = x, (n, self.num_output, *out)
        shape = self.num_output, c // self.group, *self.window.kernel
        self.weight = self.param(shape, self.weight_filler)
        self.bias = self.param((self.num_output,), self.bias_filler) if self.bias_term else None
        self.multiply_adds = math.prod(shape) * n * math.prod(out)
        return self.y_shape

    def allocate(self) -> None:
        """Where Convolution would read: rows (kh kw, oh, 1) and columns (kh kw, 1, ow)."""
        g, (kh, kw), (oh, ow) = self.window, self.window.kernel, self.y_shape[2:]
        ends = []
        for axis, size in ((0, oh), (1, ow)):
            elements = np.arange(g.kernel[axis]) * g.dilation[axis] - g.pad[axis]
            places = elements[:, None] + np.arange(size) * g.stride[axis]
            ends.append(places)
        rows = np.repeat(ends[0], kw, axis=0)[:, :, None]
        columns = np.tile(ends[1], (kh, 1))[:, None]
        self.rows, self.columns = self.from_host(rows), self.from_host(columns)

    def read(self, x: Any, offset: Any) -> Any:
        """The columns (n, group, c / group kh kw, oh ow): what the kernel sees at each place."""
        (n, c, h, w), d = self.x_shape, self.deformable_group
        offset = self.wide(offset).reshape(n * d, -1, 2, *self.y_shape[2:])
        y, z = self.rows + offset[:, :, 0], self.columns + offset[:, :, 1]
        self.at = Between(self.xp, y.reshape(n * d, -1), z.reshape(n * d, -1), h, w)
        pixels = self.at.read(self.wide(x).reshape(n * d, c // d, h, w))
        return pixels.reshape(n, self.group, -1, math.prod(self.y_shape[2:]))

    def filters(self) -> Any:
        """The weight (group, num_output / group, c / group kh kw)."""
        return self.wide(self.weight.data).reshape(self.group, self.num_output // self.group, -1)

    def forward(self, x: Any, offset: Any) -> Any:
        self.seen = self.read(x, offset)
        y = self.xp.matmul(self.filters(), self.seen).reshape(self.y_shape)
        return y if self.bias is None else y + self.wide(self.bias.data).reshape(-1, 1, 1)

    def backward(self, dy: Any) -> Any:
        xp, (n, c), d = self.xp, self.x_shape[:2], self.deformable_group
        dy = self.wide(dy).reshape(n, self.group, self.num_output // self.group, -1)
        if self.weight.learns:
            add(self.weight, xp.matmul(dy, self.seen.swapaxes(2, 3)).sum(axis=0))
        if self.bias is not None and self.bias.learns:
            add(self.bias, dy.sum(axis=(0, 3)))
        of_seen = xp.matmul(self.filters().swapaxes(1, 2), dy).reshape(n * d, c // d, -1)
        grads: list[Any] = [None, None]
        if self.needs_gradient[0]:
            grads[0] = self.at.of_maps(self, of_seen).reshape(self.x_shape)
        if self.needs_gradient[1]:
            both = xp.stack(self.at.of_points(of_seen), axis=1)  # (n d, 2, kh kw oh ow)
            both = both.reshape(n * d, 2, -1, *self.y_shape[2:]).swapaxes(1, 2)
            grads[1] = both.reshape(n, -1, *self.y_shape[2:])
        return grads


def add(param: Param, gradient: Any) -> None:
    """Add a gradient to a parameter's."""
    diff = param.diff
    arrays.add(gradient.reshape(diff.shape).astype(diff.dtype, copy=False), diff)
