"""The layers of FlowNet and FlowNet 2: FlowWarp and Correlation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.between import Between
from minicaffe.interop.caffe.forks.whole import Whole


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
class Correlation(Whole):
    """How alike a patch of a is to the patches of b around the same place: a channel a displacement.

    y[k, i, j] = mean over channels and a kernel_size^2 patch of a[i', j'] b[i' + p, j' + o], around i' =
    stride_1 i + max_displacement + kernel_size / 2 of the padded images; SUBTRACT has |a - b|. Displacements
    (p, o), row by row, are multiples of stride_2 up to max_displacement. (n, c, h, w) twice -> (n, d^2, oh,
    ow), d = 2 floor(max_displacement / stride_2) + 1, oh = ceil((h + 2 pad - 2 max_displacement - kernel_size
    + 1) / stride_1). Both have a gradient. Source: Correlation of FlowNet's Caffe; A. Dosovitskiy et al.,
    FlowNet, 2015.

    Example: (1, 3, 6, 8), (1, 3, 6, 8) ->
    {type: Correlation, pad: 2, kernel_size: 1, max_displacement: 2, stride_2: 2} -> (1, 9, 6, 8)
    """

    pad: Annotated[int, "zeros around the images", AtLeast(0)] = 0
    kernel_size: Annotated[int, "side of a patch, an odd number", AtLeast(1)]
    max_displacement: Annotated[int, "the largest displacement", AtLeast(0)]
    stride_1: Annotated[int, "step between patches", AtLeast(1)] = 1
    stride_2: Annotated[int, "step between displacements", AtLeast(1)] = 1
    correlation_type: Annotated[Literal["MULTIPLY", "SUBTRACT"], "a b, or |a - b|"] = "MULTIPLY"

    def setup(self, a: Shape, b: Shape) -> Shape:
        if len(a) != 4 or a != b:
            raise ShapeError(f"needs two bottoms (n, c, h, w) of one shape, got {a} and {b}")
        if self.kernel_size % 2 == 0:
            raise ShapeError(f"kernel_size: expected an odd number, got {self.kernel_size}")
        radius = self.max_displacement // self.stride_2
        steps = [self.stride_2 * k for k in range(-radius, radius + 1)]
        self.moves = [(p, o) for p in steps for o in steps]
        border = 2 * self.max_displacement + self.kernel_size - 1
        left = [size + 2 * self.pad - border for size in a[2:]]
        if min(left) < 1:
            raise ShapeError(
                f"max_displacement {self.max_displacement} and kernel_size {self.kernel_size} do "
                f"not fit into {a} with pad {self.pad}"
            )
        self.area = [-(-size // self.stride_1) for size in left]
        self.x_shape = a
        return (a[0], len(self.moves), *self.area)

    def padded(self, x: Any) -> Any:
        """An image with zeros around, in the type of sums."""
        n, c, h, w = self.x_shape
        wide = self.xp.zeros((n, c, h + 2 * self.pad, w + 2 * self.pad), self.sum_dtype)
        wide[:, :, self.pad : self.pad + h, self.pad : self.pad + w] = x
        return wide

    def part(self, x: Any, move: tuple[int, int]) -> Any:
        """The part of a padded image that all patches together cover, displaced."""
        starts = [self.max_displacement + by for by in move]
        sizes = [(n - 1) * self.stride_1 + self.kernel_size for n in self.area]
        (y, x0), (h, w) = starts, sizes
        return x[:, :, y : y + h, x0 : x0 + w]

    def windows(self, array: Any) -> list[Any]:
        """Of (n, h, w) the entries of each place of the patches: (n, oh, ow), views."""
        step, (oh, ow) = self.stride_1, self.area
        return [
            array[:, y : y + (oh - 1) * step + 1 : step, x : x + (ow - 1) * step + 1 : step]
            for y in range(self.kernel_size)
            for x in range(self.kernel_size)
        ]

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = self.padded(self.wide(a)), self.padded(self.wide(b))
        count, here = self.x_shape[1] * self.kernel_size**2, self.part(self.a, (0, 0))
        for k, move in enumerate(self.moves):
            there = self.part(self.b, move)
            multiplies = self.correlation_type == "MULTIPLY"
            pairs = here * there if multiplies else self.xp.abs(here - there)
            self.out[0][:, k] = sum(self.windows(pairs.sum(axis=1))) / count
        return self.out[0]

    def backward(self, dy: Any) -> Any:
        da, db = self.xp.zeros_like(self.a), self.xp.zeros_like(self.b)
        here, of_here = self.part(self.a, (0, 0)), self.part(da, (0, 0))
        dy = self.wide(dy) / (self.x_shape[1] * self.kernel_size**2)
        for k, move in enumerate(self.moves):
            there, of_there = self.part(self.b, move), self.part(db, move)
            spread = self.xp.zeros((len(dy), *here.shape[2:]), self.sum_dtype)
            for window in self.windows(spread):
                window += dy[:, k]
            spread = spread[:, None]
            if self.correlation_type == "MULTIPLY":
                of_here += spread * there
                of_there += spread * here
            else:
                sign = spread * self.xp.where(here >= there, 1, -1)
                of_here += sign
                of_there -= sign
        (h, w), pad = self.x_shape[2:], self.pad
        return [dx[:, :, pad : pad + h, pad : pad + w] for dx in (da, db)]
