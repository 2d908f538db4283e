"""Pooling: the largest or the mean of each window."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.errors import ShapeError
from minicaffe.layers.base import register
from minicaffe.layers.blob import Shape
from minicaffe.layers.window import Windowed
from minicaffe.ops import pool
from minicaffe.ops.geometry import Sizes, Window, pool_output_size


@register
class Pooling(Windowed):
    """The largest (MAX) or the mean (AVE) of each window.

    (n, c, h, w) -> (n, c, oh, ow), oh = ceil((h + 2 pad - kernel) / stride) + 1, a last window that
    starts beyond the image dropped. Padding never wins a maximum; in a mean its zeros count.
    Source: Caffe's Pooling.
    """

    pool: Annotated[Literal["MAX", "AVE"], "what to take of a window"] = "MAX"
    global_pooling: Annotated[bool, "one window, the whole image"] = False
    round_mode: Annotated[Literal["CEIL", "FLOOR"], "how the output size is rounded"] = "CEIL"

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        stride, pad = self.sizes("stride", 1), self.sizes("pad", 0)
        if self.global_pooling:
            if self.kernel_size or self.kernel_h or self.kernel_w:
                raise ShapeError("with global_pooling the window is the image; remove kernel_size")
            if stride != (1, 1) or pad != (0, 0):
                raise ShapeError("with global_pooling there is no stride and no pad")
            kernel: Sizes = x[2:]
        else:
            kernel = self.sizes("kernel_size")
        self.window = Window(kernel, stride, pad)
        win, ceil = self.window, self.round_mode == "CEIL"
        oh, ow = (
            pool_output_size(
                x[2 + i], win.kernel[i], win.stride[i], win.pad[i], ceil, clip=any(win.pad)
            )
            for i in (0, 1)
        )
        self.x_shape, self.y_shape = x, (*x[:2], oh, ow)
        self.context.reserve(math.prod(self.y_shape))
        return self.y_shape

    def allocate(self) -> None:
        if self.pool == "MAX":
            self.which, self.flags = (
                self.empty(self.y_shape, np.int32),
                self.empty(self.y_shape, np.bool_),
            )
            self.which.fill(-1)  # no winner before the first forward pass

    def forward(self, x: Any) -> Any:
        if self.pool == "AVE":
            return pool.ave_pool(x, self.window, self.out[0])
        return pool.max_pool(x, self.window, self.out[0], self.which, self.flags)

    def backward(self, dy: Any) -> Any:
        share = self.context.workspace[: dy.size].reshape(self.y_shape)
        if self.pool == "AVE":
            return pool.ave_pool_gradient(dy, self.window, self.grad[0], share)
        return pool.max_pool_gradient(dy, self.which, self.window, self.grad[0], self.flags, share)
