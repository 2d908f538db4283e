"""Blobs as scripts see them: NumPy arrays to read and write, and shapes to change.

Arrays of CUDA are mirrored on the host, as Caffe's SyncedMemory has it. What is handed out counts as newer
than the device's array until the next pass, which copies it there first; after a pass the device's is newer,
and who asks again is given it. On the CPU an array is its own mirror.
"""

from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from minicaffe.backends.device import Device
from minicaffe.core.layers import Blob as Held
from minicaffe.core.layers import Param
from minicaffe.core.layers.blob import Shape
from minicaffe.core.net.step import Value
from minicaffe.errors import ShapeError
from minicaffe.interop.pycaffe.host_blob import HostBlob, Seen


class Mirror:
    """The host's copy of one device array, and whether it may have been written since the last pass."""

    def __init__(self, array: Any, device: Device):
        self.array, self.device = array, device  # kept, so that its address stays its own
        self.host: Any = None

    def pulled(self) -> Any:
        """The copy, brought up to date unless it is the newer one; the same array each time."""
        if self not in _NEWER:
            with self.device.current():
                array = self.device.to_host(self.array)
            self.host = array if self.host is None else self.host
            np.copyto(self.host, array)
            _NEWER.add(self)
        return self.host

    def push(self) -> None:
        """Copy it to the device."""
        with self.device.current():
            self.device.copy_from_host(self.array, self.host)


_MIRRORS: WeakValueDictionary[tuple[int, int, int], Mirror] = WeakValueDictionary()
_NEWER: WeakSet[Mirror] = WeakSet()


def push() -> None:
    """Copy to their devices what scripts may have written; before each pass."""
    for one in list(_NEWER):
        one.push()
    _NEWER.clear()


class Blob(Seen):
    """An array `data` and its gradient `diff`, as NumPy arrays: what is written into them is the net's.

    On CUDA they are copies on the host: asking for one waits for the device, and whatever was asked for since
    the last pass is copied back before the next.
    """

    def __init__(self) -> None:
        self._mirrors: dict[str, Mirror] = {}

    def __repr__(self) -> str:
        return f"<Blob {self.shape}>"

    @property
    def shape(self) -> Shape:
        """The sizes of its axes."""
        return self._held("data").shape

    def _held(self, which: str) -> Held:
        """The blob of the net whose `data` or `diff` it shows."""
        raise NotImplementedError

    def _array(self, which: str) -> Any:
        held = self._held(which)
        array = getattr(held, which)
        if not held.device.is_cuda:
            return array
        if not array.size:
            return np.empty(held.shape, held.dtype)
        key = held.device.number, array.data.ptr, array.size  # one for all who ask for that memory
        copy = _MIRRORS.setdefault(key, Mirror(array, held.device))
        self._mirrors[which] = copy  # kept as long as the blob
        return copy.pulled().reshape(held.shape)


class ParamBlob(Blob):
    """A parameter of a layer."""

    def __init__(self, param: Param):
        super().__init__()
        self._param = param

    def _held(self, which: str) -> Held:
        return self._param

    def reshape(self, *sizes: int) -> None:
        """Nothing, for its own shape. Raises ShapeError for another: the layer decides."""
        if sizes != self.shape:
            raise ShapeError(f"reshape: a parameter of {self.shape} cannot be of {sizes}")


class FlowBlob(Blob):
    """A blob that flows between layers: every value of its name in turn, as work in place makes them.

    To Caffe those are one array; here some have memory of their own. `seen` is, for data and diff, the value
    that was written last, which is what is shown.
    """

    def __init__(self, values: Sequence[Value]):
        super().__init__()
        self.values = values
        self.begin(values)
        self.computed: dict[Value, Held] = {}  # what each was when it was written
        self._seeded: Held | None = None
        self.waiting: HostBlob | None = None  # what it is until the net takes its new shape

    @property
    def shape(self) -> Shape:
        """The sizes of its axes; those that `reshape` gave, at once."""
        return super().shape if self.waiting is None else self.waiting.shape

    def reshape(self, *sizes: int) -> None:
        """Give it a shape, which the layers above take with the next pass or `net.reshape()`.

        That of a blob that a layer computes is the layer's again then. Raises ShapeError for what are no
        sizes.
        """
        before = self.data
        blob = HostBlob(self.shape, before.dtype)
        blob.reshape(*sizes)
        if blob.shape != before.shape:
            count = min(before.size, blob.count)
            blob.data.reshape(-1)[:count] = before.reshape(-1)[:count]
            self.waiting = blob

    def begin(self, values: Sequence[Value]) -> None:
        """Show what a whole pass leaves, so that an array that is held from now on is that then too.

        But for the data that no layer computes, and the gradient that a loss begins with.
        """
        first, last = values[0], values[-1]
        self.seen = {"data": last if first.producer.bottom else first}
        self.seen["diff"] = last if last.loss_weight else first

    def settle(self, fresh: Collection[Value]) -> None:
        """Have the net hold what was written since `reshape` if it took that shape; `fresh` has new memory."""
        if values := [value for value in self.values if value in fresh]:
            self.begin(values)
        mirrors, self._mirrors = self._mirrors, {}
        if (old := mirrors.get("data")) is not None and old.array is self._held("data").data:
            self._mirrors["data"] = old
        waiting, self.waiting = self.waiting, None
        for which in ("data", "diff"):
            written = waiting.given(which) if waiting is not None else None
            if written is not None and written.shape == self.shape:
                self._array(which)[...] = written
                if which in self._mirrors:
                    self._mirrors[which].host = written

    def show(self, which: str, value: Value) -> None:
        """Show a value, which a pass has just written."""
        self.seen[which] = value
        if which == "data":
            self.computed[value] = value.blob

    def bring(self, which: str, value: Value) -> None:
        """Have a value that a pass is about to read be what is shown, which a script may have written."""
        held = self._held(which)
        self.seen[which] = value
        if held is not value.blob and held.shape == value.shape:
            with held.device.current():
                held.device.xp.copyto(getattr(value.blob, which), getattr(held, which))

    def _held(self, which: str) -> Held:
        value = self.seen[which]
        if which == "diff" and value.loss_weight and not value.readers:
            if self._seeded is not value.blob:
                with value.blob.device.current():
                    value.blob.diff.fill(value.loss_weight)
            self._seeded = value.blob
        return value.blob

    def _array(self, which: str) -> Any:
        return super()._array(which) if self.waiting is None else getattr(self.waiting, which)
