"""Points between the pixels of images, and layers that read there: FlowWarp, DeformableConvolution."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

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
from minicaffe.interop.caffe.forks.whole import Whole


class Between:
    """Points (y, x), each (m, p), of maps (m, c, h, w): what lies there between the four pixels around.

    A point is outside, and 0, unless 0 <= y < h and 0 <= x < w; behind the last row or column that counts.

    >>> at = Between(np, np.array([[0.5, 3]]), np.array([[1.0, 0]]), 2, 2)
    >>> at.read(np.arange(4.0).reshape(1, 1, 2, 2))
    array([[[2., 0.]]])
    """

    def __init__(self, xp: Any, y: Any, x: Any, h: int, w: int):
        self.xp, self.size = xp, (h, w)
        self.inside = (y >= 0) & (x >= 0) & (y < h) & (x < w)
        ends = []
        for at, size in ((y, h), (x, w)):
            at = xp.minimum(xp.where(self.inside, at, 0), size - 1)
            low = xp.floor(at)
            first = low.astype(np.int64)
            ends.append((first, xp.minimum(first + 1, size - 1), at - low))
        (top, bottom, self.fy), (left, right, self.fx) = ends
        self.places = [row * w + column for row in (top, bottom) for column in (left, right)]

    def weights(self) -> list[Any]:
        """Of the pixels above left, above right, below left and below right."""
        rows, columns = (1 - self.fy, self.fy), (1 - self.fx, self.fx)
        return [row * column * self.inside for row in rows for column in columns]

    def indices(self, c: int) -> list[Any]:
        """The places of the four pixels (m, c, p) among all entries of the maps."""
        m = len(self.fy)
        planes = self.xp.arange(m * c).reshape(m, c, 1) * (self.size[0] * self.size[1])
        return [planes + place[:, None] for place in self.places]

    def read(self, maps: Any) -> Any:
        """What lies at the points (m, c, p)."""
        flat = maps.reshape(-1)
        self.pixels = [flat.take(index) for index in self.indices(maps.shape[1])]
        weighted = zip(self.weights(), self.pixels, strict=True)
        return sum(weight[:, None] * pixel for weight, pixel in weighted)

    def of_points(self, dy: Any) -> tuple[Any, Any]:
        """The gradients of y and x, (m, p), from that of what was read last."""
        a, b, c, d = self.pixels
        fy, fx = self.fy[:, None], self.fx[:, None]
        down = (c - a) * (1 - fx) + (d - b) * fx
        across = (b - a) * (1 - fy) + (d - c) * fy
        return (dy * down).sum(axis=1) * self.inside, (dy * across).sum(axis=1) * self.inside

    def of_maps(self, layer: Whole, dy: Any) -> Any:
        """The gradient of the maps (m, c, h, w)."""
        m, c, _ = dy.shape
        values = [dy * weight[:, None] for weight in self.weights()]
        total = layer.summed(self.indices(c), values, m * c * self.size[0] * self.size[1])
        return total.reshape(m, c, *self.size)


def hat(points: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (points, size) of linear interpolation between pixels, and which points are not outside.

    A point is outside that is over half a pixel from the first and last; else, the nearest pixel counts.

    >>> hat(np.array([0.25, -0.5, 1.6]), 2)
    (array([[0.75, 0.25],
           [1.  , 0.  ],
           [0.  , 0.  ]]), array([ True,  True, False]))
    """
    inside = (points >= -0.5) & (points <= size - 0.5)
    at = np.clip(np.where(inside, points, 0), 0, size - 1)
    weights = np.maximum(1 - np.abs(at[:, None] - np.arange(size)), 0)
    return weights * inside[:, None], inside


def used(weights: np.ndarray) -> slice:
    """The pixels, at least one, from the first to the last that any point reads.

    >>> used(np.array([[0.0, 0.5, 0.5, 0], [0, 0, 1, 0]]))
    slice(1, 3, None)
    """
    read = np.flatnonzero(weights.any(axis=0))
    return slice(int(read[0]), int(read[-1]) + 1) if len(read) else slice(0, 1)


@register
class FlowWarp(Whole):
    """y[i, j] = x[i + v, j + u], read between pixels: an image drawn back along a flow (u, v).

    (n, c, h, w), flow (n, 2, h, w) -> (n, c, h, w). A place outside 0 <= i + v < h, 0 <= j + u < w is 0, or
    NaN with fill_value NOT_A_NUMBER, and gives no gradient. Both bottoms have a gradient; on CUDA the image's
    is summed on the host. Source: FlowWarp of FlowNet 2's Caffe; E. Ilg et al., FlowNet 2.0, 2017.

    Example: (2, 3, 5, 6), (2, 2, 5, 6) -> {type: FlowWarp} -> (2, 3, 5, 6)
    """

    fill_value: Annotated[Literal["ZERO", "NOT_A_NUMBER"], "what lies outside"] = "ZERO"

    def setup(self, x: Shape, flow: Shape) -> Shape:
        if len(x) != 4 or flow != (x[0], 2, *x[2:]):
            raise ShapeError(f"needs x (n, c, h, w) and a flow (n, 2, h, w), got {x} and {flow}")
        self.x_shape = x
        return x

    def forward(self, x: Any, flow: Any) -> Any:
        xp, (n, _, h, w), flow = self.xp, self.x_shape, self.wide(flow)
        rows = xp.arange(h, dtype=self.sum_dtype).reshape(h, 1) + flow[:, 1]
        columns = xp.arange(w, dtype=self.sum_dtype) + flow[:, 0]
        self.at = Between(xp, rows.reshape(n, -1), columns.reshape(n, -1), h, w)
        y = self.at.read(self.wide(x))
        if self.fill_value == "NOT_A_NUMBER":
            y = xp.where(self.at.inside[:, None], y, np.nan)
        return y.reshape(self.x_shape)

    def backward(self, dy: Any) -> Any:
        n, c, h, w = self.x_shape
        dy, grads = self.wide(dy).reshape(n, c, -1), [None, None]
        if self.needs_gradient[0]:
            grads[0] = self.at.of_maps(self, dy)
        if self.needs_gradient[1]:
            down, across = self.at.of_points(dy)
            grads[1] = self.xp.stack([across, down], axis=1).reshape(n, 2, h, w)
        return grads


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
