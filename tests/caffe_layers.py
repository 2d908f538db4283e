"""Layers that some of Caffe's reference nets need and minicaffe does not have yet, as a user would write them."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from minicaffe import Layer, register
from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import Filler

BUILT_IN = dict(REGISTRY)
for _name in ("TanH", "Sigmoid", "ContrastiveLoss", "Scale"):
    REGISTRY.pop(_name, None)
ZERO, ONE = Filler(type="constant"), Filler(type="constant", value=1.0)


@register
class TanH(Layer):
    """y = tanh(x)."""

    def setup(self, x):
        return x

    def forward(self, x):
        self.y = self.xp.tanh(x)
        return self.y

    def backward(self, dy):
        return dy * (1 - self.y * self.y)


@register
class Sigmoid(Layer):
    """y = 1 / (1 + exp(-x))."""

    def setup(self, x):
        return x

    def forward(self, x):
        self.y = 1 / (1 + self.xp.exp(-x))
        return self.y

    def backward(self, dy):
        return dy * self.y * (1 - self.y)


@register
class ContrastiveLoss(Layer):
    """sum of s d^2 + (1 - s) max(margin - d, 0)^2, over 2 n; d = |a - b|."""

    margin: float = 1.0

    is_loss = True
    label_bottoms = (2,)

    def setup(self, a, b, similar):
        return ()

    def forward(self, a, b, similar):
        self.difference, self.similar = a - b, similar
        self.distance = np.sqrt((self.difference**2).sum(axis=1))
        gap = np.maximum(self.margin - self.distance, 0)
        return np.asarray(
            (similar * self.distance**2 + (1 - similar) * gap**2).sum() / (2 * len(a))
        )

    def backward(self, dloss):
        far = self.margin - self.distance
        pull = np.where(
            self.similar > 0, 1.0, np.where(far > 0, -far / (self.distance + 1e-4), 0.0)
        )
        da = dloss * pull[:, None] * self.difference / len(pull)
        return da, -da, None


@register
class Scale(Layer):
    """y = x scale + bias, channel by channel."""

    bias_term: bool = False

    in_place = True

    def setup(self, x):
        self.scale = self.param((x[1],), ONE)
        self.bias = self.param((x[1],), ZERO) if self.bias_term else None
        self.axes = tuple(i for i in range(len(x)) if i != 1)
        self.wide = (1, -1) + (1,) * (len(x) - 2)
        return x

    def forward(self, x):
        self.x = x.copy()  # in place, x is about to be overwritten
        y = x * self.scale.data.reshape(self.wide)
        return y if self.bias is None else y + self.bias.data.reshape(self.wide)

    def backward(self, dy):
        self.scale.diff += (dy * self.x).sum(axis=self.axes)
        if self.bias is not None:
            self.bias.diff += dy.sum(axis=self.axes)
        return dy * self.scale.data.reshape(self.wide)


EXTRA: dict[str, Annotated[type, "kept out of the register until a test asks for them"]] = {
    cls.__name__: REGISTRY.pop(cls.__name__) for cls in (TanH, Sigmoid, ContrastiveLoss, Scale)
}
REGISTRY.update(BUILT_IN)
