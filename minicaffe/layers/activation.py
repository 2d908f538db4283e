"""Dropout. The element-wise layers without randomness are rows of layers/elementwise.py."""

from __future__ import annotations

import math
from typing import Annotated, Any

from minicaffe.layers.base import Layer, Traits, register
from minicaffe.layers.blob import Shape
from minicaffe.ops import activation
from minicaffe.spec.types import AtLeast, Below


@register
class Dropout(Layer):
    """TRAIN: y = x / (1 - ratio) with probability 1 - ratio, else 0. TEST: y = x. Any shape; in place.

    The mask is a function of (seed, layer, forward pass, place in the batch). Source: Caffe's Dropout;
    N. Srivastava et al., Dropout, JMLR 2014.

    Example: (2, 3) -> {type: Dropout, dropout_ratio: 0.4} -> (2, 3)
    """

    dropout_ratio: Annotated[float, "share of entries dropped", AtLeast(0), Below(1)] = 0.5

    traits = Traits(in_place=True, recordable=True)

    def setup(self, x: Shape) -> Shape:
        self.shape = x
        return x

    def allocate(self) -> None:
        if self.phase == "TRAIN":
            first = self.context.share.before(math.prod(self.shape))
            self.mask = activation.Mask(self.context.slots, self.shape, first)

    def prepare(self) -> None:
        if self.phase == "TRAIN":
            self.mask.draw(self.dropout_ratio, self.context.seed, self.name, self.context.passes)

    def forward(self, x: Any) -> Any:
        if self.phase == "TEST":
            return x
        return activation.dropout(x, self.mask, self.dropout_ratio, self.out[0])

    def backward(self, dy: Any) -> Any:
        if self.phase == "TEST":
            return dy
        return activation.dropout_gradient(dy, self.mask, self.dropout_ratio, self.grad[0])
