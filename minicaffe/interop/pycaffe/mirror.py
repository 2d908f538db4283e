"""Arrays of CUDA as NumPy arrays that scripts read and write, as Caffe's SyncedMemory has it.

What is handed out counts as newer than the device's array until the next pass, which copies it there first;
after a pass the device's is newer, and who asks again is given it. On the CPU an array is its own mirror.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from minicaffe.backends.device import Device


class Mirror:
    """The host's copy of one device array, and whether it may have been written since the last pass."""

    def __init__(self, array: Any, device: Device):
        self.array, self.device = array, device  # kept, so that its address stays its own
        self.host: Any = None

    def pulled(self) -> Any:
        """The copy, brought up to date unless it is the newer one; the same array each time."""
        if self not in _NEWER:
            with self.device.current():
                found = self.device.to_host(self.array)
            self.host = found if self.host is None else self.host
            np.copyto(self.host, found)
            _NEWER.add(self)
        return self.host

    def push(self) -> None:
        """Copy it to the device."""
        with self.device.current():
            self.device.copy_from_host(self.array, self.host)


_MIRRORS: WeakValueDictionary[tuple[int, int, int], Mirror] = WeakValueDictionary()
_NEWER: WeakSet[Mirror] = WeakSet()


def mirror(array: Any, device: Device) -> Mirror:
    """The mirror of an array of a CUDA device: one for all who ask for that memory."""
    key = device.number, array.data.ptr, array.size
    return _MIRRORS.setdefault(key, Mirror(array, device))


def push() -> None:
    """Copy to their devices what scripts may have written; before each pass."""
    for one in list(_NEWER):
        one.push()
    _NEWER.clear()
