"""The base of layers that compute with whole arrays, on either device; and sums of numbers by their places."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.core.layers.base import Layer, Traits

LOSS = Traits(is_loss=True, of_whole=True, capturable=False)


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
