"""Layers that some of Caffe's reference nets need and minicaffe does not have yet, as a user would write them."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from minicaffe import Layer, register
from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import Filler

BUILT_IN = dict(REGISTRY)
for _name in ("TanH", "Sigmoid", "BatchNorm", "Scale", "LRN"):
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
class BatchNorm(Layer):
    """(x - mean) / sqrt(var + eps) over all axes but 1, with the batch's own mean and variance."""

    use_global_stats: bool = False
    eps: float = 1e-5

    in_place = True

    def setup(self, x):
        for shape in ((x[1],), (x[1],), (1,)):
            self.param(shape, ZERO).lr_mult = 0
        self.axes = tuple(i for i in range(len(x)) if i != 1)
        return x

    def forward(self, x):
        mean, var = x.mean(axis=self.axes, keepdims=True), x.var(axis=self.axes, keepdims=True)
        m = x.size / x.shape[1]
        for param, value in zip(
            self.params, (mean.ravel(), var.ravel() * m / (m - 1), 1), strict=True
        ):
            param.data[...] = 0.999 * param.data + value
        self.scale = 1 / np.sqrt(var + self.eps)
        self.y = (x - mean) * self.scale
        return self.y

    def backward(self, dy):
        mean = dy.mean(axis=self.axes, keepdims=True)
        slope = (dy * self.y).mean(axis=self.axes, keepdims=True)
        return (dy - mean - self.y * slope) * self.scale


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


@register
class LRN(Layer):
    """y = x (1 + alpha / n sum of x^2 over n channels)^-beta."""

    local_size: int = 5
    alpha: float = 1.0
    beta: float = 0.75

    def setup(self, x):
        return x

    def around(self, x):
        half, total = self.local_size // 2, np.zeros_like(x)
        for shift in range(-half, half + 1):
            low, high = max(0, -shift), x.shape[1] - max(0, shift)
            total[:, low:high] += x[:, low + shift : high + shift]
        return total

    def forward(self, x):
        self.x, self.s = x, 1 + self.alpha / self.local_size * self.around(x * x)
        self.y = x * self.s**-self.beta
        return self.y

    def backward(self, dy):
        ratio = self.around(dy * self.y / self.s)
        return (
            dy * self.s**-self.beta - 2 * self.alpha * self.beta / self.local_size * self.x * ratio
        )


EXTRA: dict[str, Annotated[type, "kept out of the register until a test asks for them"]] = {
    cls.__name__: REGISTRY.pop(cls.__name__) for cls in (TanH, Sigmoid, BatchNorm, Scale, LRN)
}
REGISTRY.update(BUILT_IN)
