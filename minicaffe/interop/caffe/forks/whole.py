"""The base of layers that compute with whole arrays, on either device; and sums of numbers by their places."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import check_alike, samples


def rounded(values: np.ndarray) -> np.ndarray:
    """The nearest whole numbers, of two the one away from 0.

    >>> rounded(np.array([0.5, -0.5, 1.4]))
    array([ 1., -1.,  1.])
    """
    return np.copysign(np.floor(np.abs(values) + 0.5), values)


class Whole(Layer):
    """A layer of NumPy's and CuPy's operations on whole arrays, which take memory in each pass.

    It is called between recorded passes, and is in no CUDA graph. It computes in the type of sums: numbers of
    16 bits become float32. What it returns may have that type, since a net copies it to its blobs.
    """

    traits = Traits(capturable=False)

    def wide(self, array: Any) -> Any:
        """An array in the type of sums."""
        return array.astype(self.sum_dtype, copy=False)

    def put(self, values: Any, out: Any) -> Any:
        """Write values, of as many entries, into a top or a gradient."""
        self.xp.copyto(out, values.reshape(out.shape))
        return out

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

    def give(self, *gradients: Any) -> list[Any]:
        """Write the gradients of the bottoms that need one."""
        for values, dx in zip(gradients, self.grad, strict=False):
            if dx is not None:
                self.put(values, dx)
        return self.grad
