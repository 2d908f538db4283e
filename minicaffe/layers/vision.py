"""Convolution and pooling: layers that slide a window over (n, c, h, w)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.errors import ShapeError
from minicaffe.layers.base import Layer, register
from minicaffe.layers.blob import Shape
from minicaffe.ops import conv, pool
from minicaffe.ops.geometry import ConvGeometry, Pair, Window, pool_output_size
from minicaffe.spec.declare import Filler
from minicaffe.spec.types import AtLeast

XAVIER = Filler(type="xavier")
ZERO = Filler(type="constant")


@dataclass(kw_only=True, eq=False, repr=False)
class Windowed(Layer):
    """The keys of layers with a window: sizes as one number, as [h, w], or as _h and _w."""

    kernel_size: Annotated[tuple[int, ...], "window size: k or [h, w]", AtLeast(1)] = ()
    kernel_h: Annotated[int | None, "window height", AtLeast(1)] = None
    kernel_w: Annotated[int | None, "window width", AtLeast(1)] = None
    stride: Annotated[
        tuple[int, ...], "step of the window: s or [h, w]; 1 if not given", AtLeast(1)
    ] = ()
    stride_h: Annotated[int | None, "vertical step; 1 if not given", AtLeast(1)] = None
    stride_w: Annotated[int | None, "horizontal step; 1 if not given", AtLeast(1)] = None
    pad: Annotated[
        tuple[int, ...], "zeros around the image: p or [h, w]; 0 if not given", AtLeast(0)
    ] = ()
    pad_h: Annotated[int | None, "zeros above and below; 0 if not given", AtLeast(0)] = None
    pad_w: Annotated[int | None, "zeros left and right; 0 if not given", AtLeast(0)] = None

    def sizes(self, key: str, short: str, default: int | None) -> Pair:
        """The two values of a key, from whichever of its spellings was used."""
        whole: tuple[int, ...] = getattr(self, key)
        parts = (getattr(self, f"{short}_h"), getattr(self, f"{short}_w"))
        if parts != (None, None):
            if whole:
                raise ShapeError(f"give either {key} or {short}_h and {short}_w, not both")
            if None in parts and default is None:
                raise ShapeError(f"needs both {short}_h and {short}_w")
            return tuple(default if part is None else part for part in parts)  # type: ignore[return-value]
        return pair(key, whole, default)

    def image(self, x: Shape) -> None:
        """Raise ShapeError unless a bottom is a batch of images."""
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")


def pair(key: str, values: tuple[int, ...], default: int | None) -> Pair:
    """One number for both axes, or one each."""
    if not values:
        if default is None:
            raise ShapeError(f"missing key {key!r}")
        return default, default
    if len(values) > 2:
        raise ShapeError(f"{key}: expected one number or [h, w], got {len(values)} numbers")
    return values[0], values[-1]


@register
class Convolution(Windowed):
    """y[n, f] = bias[f] + sum over c of x[n, c] correlated with weight[f, c]. 2-D, with groups.

    (n, c, h, w) -> (n, num_output, oh, ow), oh = floor((h + 2 pad - dilation (kernel - 1) - 1) / stride) + 1.
    Parameters: weight (num_output, c / group, kh, kw), bias (num_output,). Source: Caffe's Convolution.
    """

    num_output: Annotated[int, "number of filters", AtLeast(1)]
    dilation: Annotated[
        tuple[int, ...], "step between kernel elements: d or [h, w]; 1 if not given", AtLeast(1)
    ] = ()
    group: Annotated[int, "groups of channels convolved apart", AtLeast(1)] = 1
    bias_term: Annotated[bool, "add a bias"] = True
    weight_filler: Annotated[Filler, "how the weight starts"] = XAVIER
    bias_filler: Annotated[Filler, "how the bias starts"] = ZERO

    def setup(self, x: Shape) -> Shape:
        self.image(x)
        for key, count in (("channels", x[1]), ("num_output", self.num_output)):
            if count % self.group:
                raise ShapeError(f"{key} {count} cannot be divided into group {self.group}")
        window = Window(
            self.sizes("kernel_size", "kernel", None),
            self.sizes("stride", "stride", 1),
            self.sizes("pad", "pad", 0),
            pair("dilation", self.dilation, 1),
        )
        n, c, h, w = x
        self.geometry = ConvGeometry(n, c, h, w, self.num_output, window, self.group)
        self.op = conv.STRATEGIES["caffe"]
        self.weight = self.param(self.geometry.weight_shape, self.weight_filler)
        self.bias = self.param((self.num_output,), self.bias_filler) if self.bias_term else None
        self.context.reserve(self.op.workspace(self.geometry))
        return (x[0], self.num_output, self.geometry.oh, self.geometry.ow)

    def forward(self, x: Any) -> Any:
        self.x = x
        bias = None if self.bias is None else self.bias.data
        return self.op.forward(
            x, self.weight.data, bias, self.geometry, self.out[0], self.context.workspace
        )

    def backward(self, dy: Any) -> Any:
        g, work = self.geometry, self.context.workspace
        if self.weight.learns:
            self.op.weight_gradient(self.x, dy, g, self.weight.diff, work)
        if self.bias is not None and self.bias.learns:
            self.op.bias_gradient(dy, g, self.bias.diff, work)
        if self.needs_gradient[0]:
            return self.op.input_gradient(dy, self.weight.data, g, self.grad[0], work)
        return None

    @property
    def multiply_adds(self) -> int:  # type: ignore[override]
        """n num_output oh ow (c / group) kh kw."""
        return self.geometry.multiply_adds

    @property
    def column_elements(self) -> int:  # type: ignore[override]
        """One sample's columns: c kh kw oh ow."""
        return math.prod(self.geometry.column_shape)


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
        self.image(x)
        if self.global_pooling:
            if self.kernel_size or self.kernel_h or self.kernel_w:
                raise ShapeError("with global_pooling the window is the image; remove kernel_size")
            if self.sizes("stride", "stride", 1) != (1, 1) or self.sizes("pad", "pad", 0) != (0, 0):
                raise ShapeError("with global_pooling there is no stride and no pad")
            kernel = x[2:]
        else:
            kernel = self.sizes("kernel_size", "kernel", None)
        self.window = Window(kernel, self.sizes("stride", "stride", 1), self.sizes("pad", "pad", 0))  # type: ignore[arg-type]
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

    def forward(self, x: Any) -> Any:
        if self.pool == "AVE":
            return pool.ave_pool(x, self.window, self.out[0])
        return pool.max_pool(x, self.window, self.out[0], self.which, self.flags)

    def backward(self, dy: Any) -> Any:
        share = self.context.workspace[: dy.size].reshape(self.y_shape)
        if self.pool == "AVE":
            return pool.ave_pool_gradient(dy, self.window, self.grad[0], share)
        return pool.max_pool_gradient(dy, self.which, self.window, self.grad[0], self.flags, share)
