"""Blobs as NumPy arrays, and a base class, for layers written for Caffe's Python interface."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minicaffe.errors import ShapeError


class Seen:
    """A blob as Caffe's scripts see it; a subclass defines its `shape` and `_array`.

    `num`, `channels`, `height` and `width` are the first four sizes, 1 for a missing axis.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        raise NotImplementedError

    count = property(lambda self: math.prod(self.shape), doc="How many numbers it holds.")
    data = property(lambda self: self._array("data"), doc="The values.")
    diff = property(lambda self: self._array("diff"), doc="The gradient.")
    num = property(lambda self: self._size(0), doc="The size of the first axis.")
    channels = property(lambda self: self._size(1), doc="The size of the second axis.")
    height = property(lambda self: self._size(2), doc="The size of the third axis.")
    width = property(lambda self: self._size(3), doc="The size of the fourth axis.")

    def _array(self, which: str) -> Any:
        """`data` or `diff`."""
        raise NotImplementedError

    def _size(self, axis: int) -> int:
        return self.shape[axis] if axis < len(self.shape) else 1


class HostBlob(Seen):
    """A blob as such a layer sees it: its shape, and `data` and `diff` as NumPy arrays."""

    def __init__(self, shape: tuple[int, ...] | None, dtype: Any):
        self._shape, self.dtype = shape, dtype
        self._arrays: dict[str, Any] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes; empty before it has a shape."""
        return self._shape or ()

    is_shaped = property(lambda self: self._shape is not None, doc="Whether its shape was set.")

    def reshape(self, *sizes: Any) -> None:
        """Set its shape, and zeros as values. Raises ShapeError for invalid sizes."""
        if not all(isinstance(n, (int, np.integer)) and n > 0 for n in sizes):
            raise ShapeError(f"reshape: expected integers of at least 1, got {sizes}")
        if (shape := tuple(map(int, sizes))) != self._shape:
            self._shape = shape
            self._arrays.clear()

    def bind(self, **arrays: Any) -> None:
        """Use an existing array as `data` or `diff`; with None, zeros are allocated when it is read."""
        self._arrays.update(arrays)

    def given(self, name: str) -> Any:
        """`data` or `diff` if it was read or bound, else None."""
        return self._arrays.get(name)

    def _array(self, name: str) -> Any:
        if self._arrays.get(name) is None:
            self._arrays[name] = np.zeros(self.shape, self.dtype)
        return self._arrays[name]


class HostBlobs(list[HostBlob]):
    """The parameters of such a layer; `add_blob(*shape)`, in its setup, adds one."""

    def __init__(self, add: Callable[..., HostBlob]):
        super().__init__()
        self._add = add

    def add_blob(self, *shape: Any) -> None:
        """Add a parameter, of zeros until the layer writes into its `data`."""
        self.append(self._add(*shape))


class PythonLayer:
    """A base for such layers, with `param_str`, `phase` (0 TRAIN, 1 TEST) and `blobs`.

    A subclass has setup(bottom, top), reshape(bottom, top), forward(bottom, top) and
    backward(top, propagate_down, bottom), in which bottom and top are lists of `HostBlob`. `param_str_` is
    the name of `param_str` in Caffe of 2014.
    """

    type = "Python"
    param_str = param_str_ = ""
    phase = 0
    blobs: Sequence[HostBlob] = ()

    def __init__(self, parameter: Any = None, *_: Any, **__: Any):
        """Accept the LayerParameter that Caffe passes to constructors with an argument."""

    def setup(self, bottom: list[HostBlob], top: list[HostBlob]) -> None:
        """A subclass reads `param_str`, checks the bottoms and adds parameters here."""


Layer = PythonLayer  # for `class MyLayer(caffe.Layer)`
