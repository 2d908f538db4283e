"""Addresses made up; the device, its events and streams; copies."""

from __future__ import annotations

import bisect
import ctypes
from typing import Any, ClassVar

import cupy
import numpy as np
from cupy.cuda.memory import MemoryPointer, UnownedMemory
from cupy_backends.cuda.api import runtime

from dry_run.record import Operation, record

bases: list[int] = []  # of all allocations, in rising order
sizes: dict[int, int] = {}
current = [1]  # the numbers of the devices entered; that of the thread, the first, is not the nets'


def allocate(size: int) -> MemoryPointer:
    """What CuPy's pool would give: memory of its own for each array, never used again."""
    base = 0x7F0000000000 if not bases else bases[-1] + (sizes[bases[-1]] + 1023) // 512 * 512
    bases.append(base)
    sizes[base] = size
    record.note("allocation", f"{size} bytes")
    return MemoryPointer(UnownedMemory(base, max(size, 1), None, current[-1]), 0)


def room(address: int) -> tuple[int, int]:
    """Where the allocation that an address lies in begins and ends."""
    base = bases[bisect.bisect(bases, address) - 1]
    return base, base + sizes[base]


class Pointer(MemoryPointer):
    """`ndarray.data`: copies and fills of bytes."""

    def __init__(self, array: Any, real: Any):
        super().__init__(real.mem, real.ptr - real.mem.ptr)
        self.array = array

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        if size:
            record.note("fill", "memset", value, size, self.array)

    def copy_from_async(self, source: Pointer, size: int, stream: Any = None) -> None:
        same = source.ptr == self.ptr
        record.note("self copy" if same else "copy", "memcpy", self.array, source.array, size)

    def copy_from_host_async(self, address: int, size: int, stream: Any = None) -> None:
        assert type(address) is int and type(size) is int
        _, end = room(self.ptr)
        assert self.ptr + size <= end, f"{size} bytes copied behind {end - self.ptr}"
        locked = any(at <= address <= at + held - size for at, held in _locked.items())
        record.note("upload" if locked else "pageable upload", "memcpy", self.array, size)


_locked: dict[int, int] = {}  # page-locked memory of the host, by address


class Pinned(np.ndarray):
    """What alloc_pinned_memory gives."""

    ptr = property(lambda self: self.ctypes.data)

    def __del__(self) -> None:
        if ctypes is not None and isinstance(self.base, ctypes.Array):  # Python may be ending
            _locked.pop(self.ctypes.data, None)


def pinned(size: int) -> Pinned:
    """Page-locked memory, until it is let go."""
    block = np.frombuffer((ctypes.c_char * size)(), np.uint8).view(Pinned)
    _locked[block.ptr] = size
    return block


class Device:
    """cupy.cuda.Device."""

    mem_info = (80 << 30, 80 << 30)
    compute_capability = "90"
    attributes = property(lambda self: {"MultiProcessorCount": 132})

    def __init__(self, device: Any = None):
        self.id = current[-1] if device is None else int(device)

    def __enter__(self) -> Device:
        current.append(self.id)
        return self

    def __exit__(self, *error: Any) -> None:
        current.pop()

    def use(self) -> None:
        current[-1] = self.id

    def synchronize(self) -> None:
        record.note("wait", "Device.synchronize")


class Event:
    """cupy.cuda.Event: recorded, and done when the host next looks."""

    done = True

    def __init__(
        self, block: bool = True, disable_timing: bool = False, interprocess: bool = False
    ):
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        record.note("wait", "Event.synchronize")


class Graph:
    """cupy.cuda.Graph."""

    def __init__(self, operations: list[Operation]):
        self.operations = operations

    def launch(self, stream: Any = None) -> None:
        record.note("graph", f"of {len(self.operations)}", *self.operations)


class Stream:
    """cupy.cuda.Stream."""

    entered: ClassVar[list[Stream]] = []

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False):
        self.ptr, self.device_id = 0 if null else id(self), current[-1]

    def __enter__(self) -> Stream:
        self.entered.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self.entered.remove(self)

    def begin_capture(self, mode: Any = None) -> None:
        record.begin()

    def end_capture(self) -> Graph:
        return Graph(record.end())

    def synchronize(self) -> None:
        record.note("wait", "Stream.synchronize")

    def record(self, event: Any = None) -> Event:
        return event or Event()


def current_stream() -> Stream:
    """cupy.cuda.get_current_stream."""
    mine = [stream for stream in Stream.entered if stream.device_id == current[-1]]
    return mine[-1] if mine else Stream(null=True)


def get(
    self: Any, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
) -> Any:
    """ndarray.get: zeros, for there are no values."""
    record.note("wait", "get", self)
    return np.zeros(self.shape, self.dtype) if out is None else out


def set_(self: Any, arr: Any, stream: Any = None) -> None:
    """ndarray.set, with CuPy's own checks."""
    assert isinstance(arr, np.ndarray) and (arr.dtype, arr.shape) == (self.dtype, self.shape)
    assert self.flags.c_contiguous or self.flags.f_contiguous
    record.note("pageable upload", "set", self)


def array(obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", **others: Any) -> Any:
    """cupy.array: host arrays go by way of page-locked memory of CuPy's own."""
    if isinstance(obj, cupy.ndarray):
        return obj.astype(obj.dtype if dtype is None else dtype, copy=copy)
    host = np.array(obj, dtype)
    made = cupy.empty(host.shape, host.dtype)
    if host.size:
        record.note("upload", "array", made)
    return made


def asarray(a: Any, dtype: Any = None, order: Any = None, **others: Any) -> Any:
    """cupy.asarray."""
    return array(a, dtype, copy=False)


def install() -> None:
    """Take the device's place in CuPy."""
    cupy.cuda.set_allocator(allocate)
    real = cupy.ndarray.__mro__[1].data
    cupy.ndarray.data = property(lambda self: Pointer(self, real.__get__(self)))
    cupy.ndarray.get, cupy.ndarray.set = get, set_
    cupy.array, cupy.asarray = array, asarray
    cuda = cupy.cuda
    cuda.Device, cuda.Event, cuda.Stream = Device, Event, Stream
    cuda.alloc_pinned_memory, cuda.get_current_stream = pinned, current_stream
    for module in (cuda.runtime, runtime):
        module.getDevice, module.setDevice = lambda: current[-1], lambda number: None
