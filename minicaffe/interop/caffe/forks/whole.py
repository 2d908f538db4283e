"""The base of layers that compute with whole arrays, on either device; points between the pixels of images."""

import math
from typing import Any

import numpy as np

from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Param, Shape
from minicaffe.core.layers.losses import check_alike, samples
from minicaffe.core.ops import arrays


def rounded(values: np.ndarray) -> np.ndarray:
    """The nearest whole numbers, of two the one away from 0."""
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


def add(param: Param, gradient: Any) -> None:
    """Add a gradient to a parameter's."""
    diff = param.diff
    arrays.add(gradient.reshape(diff.shape).astype(diff.dtype, copy=False), diff)


def labels(*bottoms: int) -> dict[str, Any]:
    """The traits of bottoms of labels: without a gradient, in float32 in a net of 16 bits too."""
    return {"label_bottoms": bottoms, "float32_bottoms": bottoms}


class Whole(Layer):
    """A layer of NumPy's and CuPy's operations on whole arrays, which take memory in each pass.

    It is called between recorded passes, and is in no CUDA graph. It computes in the type of sums: numbers of
    16 bits become float32. What it returns may have that type, since a net copies it to its blobs.
    """

    traits = Traits(capturable=False)

    def wide(self, array: Any) -> Any:
        """An array in the type of sums."""
        return array.astype(self.sum_dtype, copy=False)

    def matmul(self, a: Any, b: Any) -> Any:
        """A product; some processors' BLAS divides what it throws away, of which NumPy would warn."""
        with np.errstate(all="ignore"):
            return self.xp.matmul(a, b)

    def put(self, values: Any, out: Any) -> Any:
        """Write values, of as many entries, into a top or a gradient."""
        self.xp.copyto(out, values.reshape(out.shape))
        return out

    def give(self, *gradients: Any) -> list[Any]:
        """Write the gradients of the bottoms that need one."""
        for values, dx in zip(gradients, self.grad, strict=False):
            if dx is not None:
                self.put(values, dx)
        return self.grad

    def on_host(self, array: Any) -> np.ndarray:
        """An array on the host, in the type of sums; waits for the device."""
        return self.context.device.to_host(array).astype(self.sum_dtype, copy=False)

    def from_host(self, array: Any, dtype: Any = None) -> Any:
        """An array of the host on the net's device, in the type of sums by default."""
        return self.context.device.asarray(array, self.sum_dtype if dtype is None else dtype)

    def summed(self, places: list[Any], values: list[Any], size: int) -> Any:
        """Of `size` places the sum, in float64, of the values that have it; on the host, in one order."""
        total, host = np.zeros(size), self.context.device.to_host
        for place, value in zip(places, values, strict=True):
            total += np.bincount(host(place).ravel(), host(value).ravel(), size)
        return self.from_host(total, np.float64)

    def put_rows(self, *arrays: np.ndarray, axis: int = 0) -> list[Any]:
        """Copy rows from the host into the first places of the tops along `axis`; returns these parts."""
        parts = []
        for top, array in zip(self.out, arrays, strict=False):
            parts.append(top[(slice(None),) * axis + (slice(len(array)),)])
            rows = np.ascontiguousarray(array, self.sum_dtype).reshape(parts[-1].shape)
            self.context.device.copy_from_host(parts[-1], rows)
        return parts


class PairLoss(Whole):
    """A loss of bottoms with equal numbers of samples and entries; its top is of shape ()."""

    traits = Traits(is_loss=True, of_whole=True, capturable=False)

    def setup(self, a: Shape, b: Shape) -> Any:
        check_alike(a, b)
        self.nk = samples(a), math.prod(a) // max(samples(a), 1)
        return ()

    @property
    def divisor(self) -> float:
        """How many samples the sum is divided by: on several ranks those of the whole batch, at least 1."""
        return self.context.share.of_whole(max(self.nk[0], 1))


class Between:
    """Points (y, x), each (m, p), of maps (m, c, h, w): what lies there between the four pixels around.

    A point is outside, and 0, unless 0 <= y < h and 0 <= x < w; behind the last row or column that counts.

    >>> at = Between(np, np.array([[0.5, 3]]), np.array([[1.0, 0]]), 2, 2)
    >>> at.read(np.arange(4.0).reshape(1, 1, 2, 2))
    array([[[2., 0.]]])
    """

    def __init__(self, xp: Any, y: Any, x: Any, h: int, w: int):
        self.xp, self.size = xp, (h, w)
        self.inside = (y >= 0) & (x >= 0) & (y < h) & (x < w)
        ends = []
        for at, size in ((y, h), (x, w)):
            at = xp.minimum(xp.where(self.inside, at, 0), size - 1)
            low = xp.floor(at)
            first = low.astype(np.int64)
            ends.append((first, xp.minimum(first + 1, size - 1), at - low))
        (top, bottom, self.fy), (left, right, self.fx) = ends
        self.places = [row * w + column for row in (top, bottom) for column in (left, right)]

    def weights(self) -> list[Any]:
        """Of the pixels above left, above right, below left and below right."""
        rows, columns = (1 - self.fy, self.fy), (1 - self.fx, self.fx)
        return [row * column * self.inside for row in rows for column in columns]

    def indices(self, c: int) -> list[Any]:
        """The places of the four pixels (m, c, p) among all entries of the maps."""
        m = len(self.fy)
        planes = self.xp.arange(m * c).reshape(m, c, 1) * (self.size[0] * self.size[1])
        return [planes + place[:, None] for place in self.places]

    def read(self, maps: Any) -> Any:
        """What lies at the points (m, c, p)."""
        flat = maps.reshape(-1)
        self.pixels = [flat.take(index) for index in self.indices(maps.shape[1])]
        weighted = zip(self.weights(), self.pixels, strict=True)
        return sum(weight[:, None] * pixel for weight, pixel in weighted)

    def of_points(self, dy: Any) -> tuple[Any, Any]:
        """The gradients of y and x, (m, p), from that of what was read last."""
        a, b, c, d = self.pixels
        fy, fx = self.fy[:, None], self.fx[:, None]
        down = (c - a) * (1 - fx) + (d - b) * fx
        across = (b - a) * (1 - fy) + (d - c) * fy
        return (dy * down).sum(axis=1) * self.inside, (dy * across).sum(axis=1) * self.inside

    def of_maps(self, layer: Whole, dy: Any) -> Any:
        """The gradient of the maps (m, c, h, w)."""
        m, c, _ = dy.shape
        values = [dy * weight[:, None] for weight in self.weights()]
        total = layer.summed(self.indices(c), values, m * c * self.size[0] * self.size[1])
        return total.reshape(m, c, *self.size)


def hat(points: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (points, size) of linear interpolation between pixels, and which points are not outside.

    A point is outside that is over half a pixel from the first and last; else, the nearest pixel counts.

    >>> hat(np.array([0.25, -0.5, 1.6]), 2)
    (array([[0.75, 0.25],
           [1.  , 0.  ],
           [0.  , 0.  ]]), array([ True,  True, False]))
    """
    inside = (points >= -0.5) & (points <= size - 0.5)
    at = np.clip(np.where(inside, points, 0), 0, size - 1)
    weights = np.maximum(1 - np.abs(at[:, None] - np.arange(size)), 0)
    return weights * inside[:, None], inside


def used(weights: np.ndarray) -> slice:
    """The pixels, at least one, from the first to the last that any point reads."""
    read = np.flatnonzero(weights.any(axis=0))
    return slice(int(read[0]), int(read[-1]) + 1) if len(read) else slice(0, 1)
