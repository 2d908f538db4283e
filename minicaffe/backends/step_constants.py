"""The numbers that change from step to step, in one block of device memory that one small copy fills."""

import math
import weakref
from typing import Any

import numpy as np

from minicaffe.backends.device import Device

SIZE = 2**16  # bytes of a block; a larger slot has its own
ALIGNED = 16  # bytes: each slot begins at a multiple


class Block:
    """Memory of the host and of the device that holds slots."""

    def __init__(self, device: Device, size: int):
        self.here = np.zeros(size, np.uint8)
        self.there = device.xp.zeros(size, np.uint8)
        self.used, self.changed = 0, False


class Slot:
    """An array that `put` fills on the host, `here`, and `Slots.send` copies `there`: on the CPU the same."""

    def __init__(self, block: Block | None, shape: tuple[int, ...], dtype: Any):
        self.block = block
        if block is None:
            self.here = self.there = np.zeros(shape, dtype)
            return
        size = math.prod(shape) * np.dtype(dtype).itemsize
        part = slice(block.used, block.used + size)
        self.here, self.there = (
            whole[part].view(dtype).reshape(shape) for whole in (block.here, block.there)
        )
        block.used += -(-size // ALIGNED) * ALIGNED

    def put(self, values: Any, index: Any = ...) -> None:
        """Set it, or a part of it."""
        self.here[index] = values
        if self.block is not None:
            self.block.changed = True


class Slots:
    """All slots of a net.

    >>> from minicaffe.backends.device import device
    >>> slots = Slots(device("cpu"))
    >>> rate = slots.take((2,), np.float64)
    >>> rate.put([0.1, 0.9])
    >>> slots.send()
    >>> rate.there
    array([0.1, 0.9])
    """

    def __init__(self, device: Device):
        self.device = device
        self._blocks: list[weakref.ref[Block]] = []  # which slots keep alive

    def take(self, shape: tuple[int, ...], dtype: Any) -> Slot:
        """A slot for an array."""
        if not self.device.is_cuda:
            return Slot(None, shape, dtype)
        size = math.prod(shape) * np.dtype(dtype).itemsize
        last = self._blocks[-1]() if self._blocks else None
        if last is None or last.used + size > last.here.size:
            last = Block(self.device, max(size, SIZE))
            self._blocks = [ref for ref in self._blocks if ref() is not None] + [weakref.ref(last)]
        return Slot(last, shape, dtype)

    def send(self) -> None:
        """Copy what was put to the device, before any work that is launched later."""
        for ref in self._blocks:
            block = ref()
            if block is not None and block.changed:
                self.device.copy_from_host(block.there[: block.used], block.here[: block.used])
                block.changed = False
