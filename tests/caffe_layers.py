"""Layers that some of Caffe's reference nets need and minicaffe does not have yet, as a user would write them."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from minicaffe import Layer, register
from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import Filler

BUILT_IN = dict(REGISTRY)
for _name in ("ContrastiveLoss", "BatchNorm", "LRN"):
    REGISTRY.pop(_name, None)
ZERO = Filler(type="constant")


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
    cls.__name__: REGISTRY.pop(cls.__name__) for cls in (ContrastiveLoss, BatchNorm, LRN)
}
REGISTRY.update(BUILT_IN)
