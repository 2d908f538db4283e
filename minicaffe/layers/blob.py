"""Arrays with a gradient: blobs flow between layers, parameters belong to one."""

from __future__ import annotations

import math
from typing import Any

from minicaffe.backend import Device
from minicaffe.spec.declare import Filler

Shape = tuple[int, ...]


class Blob:
    """An array `data` and the loss's gradient with respect to it, `diff` (Caffe's Blob).

    `diff` is taken, as zeros, when it is first asked for: a blob that needs no gradient has none.
    """

    def __init__(self, shape: Shape, device: Device, dtype: Any):
        self.shape, self.device, self.dtype = shape, device, dtype
        self._data: Any = None
        self._diff: Any = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def data(self) -> Any:
        """The values, an array of the net's device."""
        if self._data is None:
            self._data = self.device.xp.zeros(self.shape, self.dtype)
        return self._data

    @data.setter
    def data(self, values: Any) -> None:
        if values is not self._data:
            self.device.xp.copyto(self.data, values)

    @property
    def diff(self) -> Any:
        """The gradient, an array of the net's device."""
        if self._diff is None:
            self._diff = self.device.xp.zeros(self.shape, self.dtype)
        return self._diff

    @diff.setter
    def diff(self, values: Any) -> None:
        if values is not self._diff:
            self.device.xp.copyto(self.diff, values)

    def share(self, other: Blob) -> None:
        """Be the same memory as another blob of the same size."""
        self._data, self._diff = other.data.reshape(self.shape), other.diff.reshape(self.shape)


class Param(Blob):
    """A learnable blob: `diff` is accumulated by the layers that use it."""

    def __init__(self, shape: Shape, device: Device, dtype: Any, filler: Filler):
        super().__init__(shape, device, dtype)
        self.filler = filler
        self.lr_mult, self.decay_mult = 1.0, 1.0
        self.owner: Param = self

    @property
    def learns(self) -> bool:
        """Whether its gradient is wanted."""
        return self.lr_mult != 0
