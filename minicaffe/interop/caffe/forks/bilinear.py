"""BilinearInterpolation of Z. Yan's Caffe, and CompactBilinear of Y. Gao's."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops.interp import Axis, interp, interp_gradient
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import Whole


@register
class BilinearInterpolation(Layer):
    """Bilinear interpolation whose first and last rows and columns are the image's own ("align corners").

    (n, c, h, w) -> (n, c, f h, f w), f = interpolation_factor, or the size of a second bottom: a top pixel o
    is at o (h - 1) / (oh - 1) of the image. Source: BilinearInterpolation of Z. Yan's caffe-public.

    Example: (2, 3, 5, 4) -> {type: BilinearInterpolation, interpolation_factor: 2} -> (2, 3, 10, 8)
    """

    interpolation_factor: Annotated[int | None, "times the rows and columns", AtLeast(1)] = None

    traits = Traits(recordable=True, label_bottoms=(1,))

    def setup(self, x: Shape, like: Shape | None = None) -> Shape:
        for shape in (x, like or x):
            if len(shape) != 4:
                raise ShapeError(f"needs bottoms of 4 axes (n, c, h, w), got {shape}")
        if (self.interpolation_factor is None) == (like is None):
            raise ShapeError("give one of: interpolation_factor; a second bottom")
        factor = self.interpolation_factor or 1
        self.x_shape, out = x, like[2:] if like else (factor * x[2], factor * x[3])
        self.y_shape = (*x[:2], *out)
        self.context.reserve(math.prod(x[:2]) * out[0] * (x[3] + max(x[3], out[1])))
        return self.y_shape

    def allocate(self) -> None:
        self.rows, self.columns = (
            Axis.of(self.xp, size, size, out, 0, self.sum_dtype)
            for size, out in zip(self.x_shape[2:], self.y_shape[2:], strict=True)
        )

    def forward(self, x: Any, like: Any = None) -> Any:
        return interp(x, self.rows, self.columns, self.out[0], self.context.workspace)

    def backward(self, dy: Any) -> Any:
        interp_gradient(dy, self.rows, self.columns, self.grad[0], self.context.workspace)
        return self.grad


def c_random(count: int) -> list[int]:
    """The first numbers of C's rand() after srand(1), as GNU's library draws them.

    >>> c_random(3)
    [1804289383, 846930886, 1681692777]
    """
    state = [1]
    for _ in range(30):
        state.append(16807 * state[-1] % 2147483647)
    state += state[:3]
    while len(state) < 344 + count:
        state.append((state[-31] + state[-3]) % 2**32)
    return [value >> 1 for value in state[344:]]


@register
class CompactBilinear(Whole):
    """The products of all channels of a with all of b, summed into num_output places by chance.

    y[k] = sum over (i, j) with (h1[i] + h2[j]) mod num_output = k of s1[i] s2[j] a[i] b[j], at each pixel;
    with sum_pool summed over the pixels. Bottoms (n, c1, h, w), (n, c2, h, w) -> (n, num_output, h, w), or
    (n, num_output, 1, 1). The places h1, h2 and the signs s1, s2 are those that GNU's rand() draws after
    srand(1), as in Gao's Caffe, so that its models are read. It is computed by Fourier transforms, on the
    host, in float64, and waits for the device. Both bottoms have a gradient. Source: CompactBilinear of Y.
    Gao's caffe; Y. Gao et al., Compact Bilinear Pooling, 2016.

    Example: (2, 4, 3, 3), (2, 5, 3, 3) -> {type: CompactBilinear, num_output: 8} -> (2, 8, 1, 1)
    """

    num_output: Annotated[int, "places that products are summed into", AtLeast(1)]
    sum_pool: Annotated[bool, "sum over the pixels"] = True

    def setup(self, a: Shape, b: Shape) -> Shape:
        if len(a) != 4 or len(b) != 4 or (a[0], *a[2:]) != (b[0], *b[2:]):
            raise ShapeError(f"needs (n, c1, h, w) and (n, c2, h, w), got {a} and {b}")
        drawn, self.drawn = c_random(2 * (a[1] + b[1])), []
        for c in (a[1], b[1]):
            places, signs, drawn = drawn[:c], drawn[c : 2 * c], drawn[2 * c :]
            self.drawn.append((np.array(places) % self.num_output, np.array(signs) % 2 * 2.0 - 1))
        self.shapes = a, b
        return (a[0], self.num_output, *((1, 1) if self.sum_pool else a[2:]))

    def transformed(self, x: np.ndarray, which: int) -> np.ndarray:
        """The transform (m, pixels) of an image (c, pixels) whose channels are summed by their places."""
        places, signs = self.drawn[which]
        summed = np.zeros((self.num_output, x.shape[1]))
        np.add.at(summed, places, x * signs[:, None])
        return np.fft.rfft(summed, axis=0)

    def back(self, transform: np.ndarray) -> np.ndarray:
        """The numbers (num_output, pixels) of a transform."""
        return np.fft.irfft(transform, self.num_output, axis=0)

    def forward(self, a: Any, b: Any) -> Any:
        host = self.context.device.to_host
        given = [host(x).astype(np.float64).reshape(*x.shape[:2], -1) for x in (a, b)]
        self.transforms, made = [], []
        for images in zip(*given, strict=True):
            of_a, of_b = (self.transformed(x, which) for which, x in enumerate(images))
            self.transforms.append((of_a, of_b))
            product = of_a * of_b
            made.append(self.back(product.sum(axis=1, keepdims=True) if self.sum_pool else product))
        return self.from_host(np.stack(made).reshape(self.out[0].shape))

    def backward(self, dy: Any) -> Any:
        host = self.context.device.to_host(dy).astype(np.float64)
        host = host.reshape(len(host), self.num_output, -1)
        grads = [np.empty((*shape[:2], math.prod(shape[2:]))) for shape in self.shapes]
        for i, of_ab in enumerate(self.transforms):
            of_dy = np.fft.rfft(host[i], axis=0)
            for which, (places, signs) in enumerate(self.drawn):
                spread = self.back(of_dy * of_ab[1 - which].conj())
                grads[which][i] = spread[places] * signs[:, None]
        made = zip(grads, self.shapes, strict=True)
        return [self.from_host(grad.reshape(shape)) for grad, shape in made]
