"""LRN: local response normalisation, along the channels or within them."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops import lrn
from minicaffe.errors import ShapeError, SpecError


@register
class LRN(Layer):
    """y = x (k + alpha / size sum of x^2 over a window around x)^-beta.

    (n, c, h, w) -> the same. The window has local_size channels at one place (ACROSS_CHANNELS; size =
    local_size), or local_size x local_size places of one channel (WITHIN_CHANNEL; size = local_size^2,
    and k is always 1, as in Caffe). Entries outside the image count as 0. Raises SpecError for
    an even local_size. Source: Caffe's LRN; A. Krizhevsky et al., ImageNet Classification, 2012.

    Example: (2, 8, 5, 5) -> {type: LRN, local_size: 5, alpha: 0.0001, beta: 0.75} -> (2, 8, 5, 5)
    """

    local_size: Annotated[int, "the window's size, an odd number", AtLeast(1)] = 5
    alpha: Annotated[float, "weight of the squares' mean"] = 1.0
    beta: Annotated[float, "the exponent"] = 0.75
    norm_region: Annotated[
        Literal["ACROSS_CHANNELS", "WITHIN_CHANNEL"], "where the window lies"
    ] = "ACROSS_CHANNELS"
    k: Annotated[float, "ACROSS_CHANNELS: added to the squares' mean"] = 1.0

    traits = Traits(recordable=True)

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        if self.local_size % 2 == 0:
            raise SpecError(f"expected an odd local_size, got {self.local_size}")
        (n, c, h, w), reach = x, self.local_size // 2
        if self.norm_region == "ACROSS_CHANNELS":
            alpha, image = self.alpha / self.local_size, (n, c, h * w)
            self.response = lrn.Response(image, reach, 0, self.k, alpha, self.beta)
        else:
            alpha, image = self.alpha / self.local_size**2, (n * c, h, w)
            self.response = lrn.Response(image, reach, reach, 1.0, alpha, self.beta)
        self.shape = x
        self.context.reserve(2 * math.prod(x))
        if self.context.forward_only:
            wide = self.sum_dtype.itemsize // self.dtype.itemsize
            self.context.reserve(2 * wide * math.prod(x))
        return x

    def allocate(self) -> None:
        kept = not self.context.forward_only  # the keys that `setup` used
        self.s = self.empty(self.shape, self.sum_dtype) if kept else None

    def forward(self, x: Any) -> Any:
        self.x, s = x, self.s
        if s is None:
            s = self.context.scratch(self.shape, self.sum_dtype, x.size * self.sum_dtype.itemsize)
        return lrn.lrn(x, self.response, s, self.out[0], self.context.workspace)

    def backward(self, dy: Any) -> Any:
        work = self.context.workspace
        return lrn.lrn_gradient(self.x, dy, self.response, self.s, self.grad[0], work)
