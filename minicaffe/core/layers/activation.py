"""Dropout. The element-wise layers without randomness are rows of core/layers/elementwise.py."""

from __future__ import annotations

import math
from typing import Annotated, Any

from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops import activation, arrays


@register
class Dropout(Layer):
    """TRAIN: y = x / (1 - ratio) with probability 1 - ratio, else 0. TEST: y = x. Any shape; in place.

    Without scale_train it is TEST that scales: y = x in TRAIN, y = x (1 - ratio) in TEST. The mask is a
    function of (seed, layer, forward pass, place in the batch). Source: Caffe's Dropout; scale_train is Fast
    R-CNN's, sample_weights_test Bayesian SegNet's; N. Srivastava et al., Dropout, JMLR 2014.

    Example: (2, 3) -> {type: Dropout, dropout_ratio: 0.4} -> (2, 3)
    """

    dropout_ratio: Annotated[float, "share of entries dropped", AtLeast(0), Below(1)] = 0.5
    scale_train: Annotated[bool, "TRAIN scales what is kept, not TEST"] = True
    sample_weights_test: Annotated[bool, "drop entries in TEST, too"] = False

    traits = Traits(in_place=True, recordable=True)

    @property
    def drops(self) -> bool:
        """Whether entries are dropped in this phase."""
        return self.phase == "TRAIN" or self.sample_weights_test

    def setup(self, x: Shape) -> Shape:
        self.shape = x
        return x

    def allocate(self) -> None:
        if self.drops:
            first = self.context.share.before(math.prod(self.shape))
            self.mask = activation.Mask(self.context.slots, self.shape, first)

    def prepare(self) -> None:
        if self.drops:
            self.mask.draw(self.dropout_ratio, self.context.seed, self.name, self.context.passes)

    def forward(self, x: Any) -> Any:
        if not self.drops:
            return x if self.scale_train else self.kept(x, self.out[0])
        y = activation.dropout(x, self.mask, self.dropout_ratio, self.out[0])
        return y if self.scale_train else self.kept(y, y)

    def backward(self, dy: Any) -> Any:
        if not self.drops:
            return dy if self.scale_train else self.kept(dy, self.grad[0])
        dx = activation.dropout_gradient(dy, self.mask, self.dropout_ratio, self.grad[0])
        return dx if self.scale_train else self.kept(dx, dx)

    def kept(self, x: Any, out: Any) -> Any:
        """Entries times the share that is kept."""
        return arrays.scale(x, 1 - self.dropout_ratio, out)
