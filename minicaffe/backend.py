"""The device: which array library, transfers, kernels, random streams, timers. Chosen here only."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from minicaffe.errors import DeviceError, ShapeError
from minicaffe.kernels import CTYPES, OPTIONS, ask, source, tell

THREADS = 256  # of a CUDA block, where nothing else is said
GRID = 65535  # blocks at the most; a thread then takes more than one element
STAGED = 2**20  # bytes, up to which a host array goes through page-locked memory
Method = TypeVar("Method", bound=Callable[..., Any])


class Device:
    """Where arrays live: `xp` is numpy or cupy, `name` is cpu, cuda:0, ... and `reason` tells why."""

    def __init__(self, name: str, xp: ModuleType, reason: str):
        self.name, self.xp, self.reason = name, xp, reason
        self.is_cuda = xp is not np
        self.number = int(name.partition(":")[2] or 0)  # of a CUDA device
        self._staged: deque[tuple[Any, Any]] = deque()  # copies under way: an event, its memory
        self._staging = threading.Lock()

    def __repr__(self) -> str:
        return f"{self.name} ({self.reason})"

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Within it, what this thread asks of CUDA is done on this device, in its memory."""
        return self.xp.cuda.Device(self.number) if self.is_cuda else contextlib.nullcontext()

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        """A host array as an array of this device."""
        with self.current():
            return self.xp.asarray(array, dtype=dtype)

    def to_host(self, array: Any) -> np.ndarray:
        """An array of this device as a NumPy array; waits for the device."""
        if not self.is_cuda:
            return array
        tell("the host reads what the device computed")
        return array.get()

    def copy_from_host(self, target: Any, source: Any) -> None:
        """Fill a device array with a host array of the same shape, which is then free for other use.

        A small one is not waited for: page-locked memory holds it until it is copied.
        """
        if not self.is_cuda:
            with np.errstate(over="ignore"):
                np.copyto(target, source, casting="same_kind")
            return
        tell("the host gives the device something")
        source = np.asarray(source, dtype=target.dtype, order="C")
        if not (0 < source.nbytes <= STAGED and target.flags.c_contiguous):
            target.set(source)
            return
        with self.current(), self._staging:
            cuda = self.xp.cuda
            while self._staged and self._staged[0][0].done:
                self._staged.popleft()
            memory = cuda.alloc_pinned_memory(source.nbytes)
            staged = np.frombuffer(memory, np.uint8, source.nbytes)
            staged[:] = source.reshape(-1).view(np.uint8)
            target.data.copy_from_host_async(memory.ptr, source.nbytes)
            event = cuda.Event(disable_timing=True)
            event.record()
            self._staged.append((event, memory))

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        if self.is_cuda:
            with self.current():
                self.xp.cuda.get_current_stream().synchronize()

    def memory(self) -> int:
        """Bytes of memory this device has in all."""
        if self.is_cuda:
            with self.current():
                return int(self.xp.cuda.Device().mem_info[1])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def check_fits(self, size: int, what: str) -> None:
        """Raise ShapeError if `size` bytes cannot be had, before any of them is taken."""
        if size > self.memory():
            raise ShapeError(f"{what} needs {mib(size)}; {self.name} has {mib(self.memory())}")

    def timer(self) -> Callable[[], float]:
        """Start a stopwatch; calling it gives the ms since, by device events on CUDA."""
        if not self.is_cuda:
            start = time.perf_counter()
            return lambda: (time.perf_counter() - start) * 1e3
        cuda = self.xp.cuda
        with self.current():
            first, last = cuda.Event(), cuda.Event()
            first.record()

        def stop() -> float:
            with self.current():
                last.record()
            last.synchronize()
            return float(cuda.get_elapsed_time(first, last))

        return stop


def on_its_device(method: Method) -> Method:
    """Have a method run with the `device` of its object current, whichever was before in this thread."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.device.current():
            return method(self, *args, **kwargs)

    return run  # type: ignore[return-value]


def device(name: str | None = None) -> Device:
    """The device called `cpu`, `cuda`, `cuda:1`; without a name CUDA if it works, else the CPU.

    >>> device("cpu")
    cpu (asked for)
    """
    if name == "cpu":
        return Device("cpu", np, "asked for")
    if name is None:
        try:
            return _cuda(0, "CUDA works")
        except DeviceError as error:
            return Device("cpu", np, str(error))
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not (number.isascii() and number.isdigit())):
        raise DeviceError(f"unknown device {name!r}; expected cpu, cuda or cuda:N")
    try:
        return _cuda(int(number or 0), "asked for")
    except DeviceError as error:
        raise error.at(f"device {name}") from None


def _cuda(number: int, reason: str) -> Device:
    try:
        import cupy
    except Exception as error:  # without it, without its libraries, without a folder for its cache
        if getattr(error, "name", "") != "cupy":
            raise DeviceError(f"CuPy cannot be imported: {_short(error)}") from None
        raise DeviceError("CuPy is not installed; the extra cuda12 or cuda13 brings it") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"CUDA does not work: {_short(error)}") from None
    if number >= count:
        raise DeviceError(f"there is no cuda:{number}; {count} CUDA device(s) were found")
    try:  # a kernel compiled from source and a product of matrices are what a net needs
        from cupy import cublas

        with cupy.cuda.Device(number):
            one = cupy.ones((1, 1), dtype="float32")
            kernels("im2col.cu", "float", number)
            cublas.gemm("N", "N", one, one)
        name = cupy.cuda.runtime.getDeviceProperties(number)["name"].decode()
        cupy.cuda.Device(number).use()  # for who goes on to compute with `xp`
    except Exception as error:  # whatever NVRTC, cuBLAS or the driver say
        raise DeviceError(f"CuPy cannot compute: {_short(error)}") from None
    return Device(f"cuda:{number}", cupy, f"{reason}: {name}")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def on_cuda(array: Any) -> bool:
    """Whether an array lives on a CUDA device."""
    return type(array).__module__.partition(".")[0] == "cupy"


@functools.cache
def kernels(file: str, template: str, device: int) -> dict[str, Any]:
    """Every kernel of minicaffe/kernels/`file`, by name, for one list of template arguments; compiled once."""
    import cupy

    code, names = source(file, template)
    expressions = [f"{name}<{template}>" for name in names]
    module = cupy.RawModule(code=code, options=OPTIONS, name_expressions=expressions)
    return dict(zip(names, map(module.get_function, expressions), strict=True))


def launch(file: str, name: str, total: int, out: Any, *args: Any, of: Any = ()) -> None:
    """Run kernel `name` for the type of `out`, and structs `of`, over `total` elements; an int is an int32."""
    if total + GRID * THREADS >= 2**31:
        raise ShapeError(f"{name}: {total} elements are more than a kernel's 32-bit index reaches")
    blocks = min((total + THREADS - 1) // THREADS, GRID)
    launch_blocks(file, name, (blocks,), (out, *of), total, *args)


def launch_blocks(
    file: str, name: str, grid: Any, types: tuple[Any, ...], *args: Any, threads: int = 0
) -> None:
    """Run blocks of a kernel, of THREADS or so many, for `types`: arrays, numbers, or names, of such."""
    for arg in args:
        if type(arg) is int and arg >= 2**31:
            raise ShapeError(
                f"{name}: {arg} elements are more than a kernel's 32-bit index reaches"
            )
    if 0 in grid:
        return
    template = ", ".join(CTYPES[t.dtype.name] if hasattr(t, "dtype") else str(t) for t in types)
    typed = tuple(np.int32(arg) if type(arg) is int else arg for arg in args)

    def do(given: tuple[Any, ...]) -> None:
        kernels(file, template, types[0].device.id)[name](grid, (threads or THREADS,), given)

    ask(name, template, grid, typed, do)


def random_key(seed: int, *names: str | int) -> tuple[int, int]:
    """A 128-bit Philox key, as two words, that is a function of (seed, names) alone."""
    text = "\0".join(str(part) for part in (seed, *names)).encode()
    digest = hashlib.blake2b(text, digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def random_stream(seed: int, *names: str | int) -> np.random.Generator:
    """NumPy's generator for (seed, names): the same stream whenever and wherever it is asked for.

    >>> random_stream(1, "conv1", 0).random() == random_stream(1, "conv1", 0).random()
    True
    """
    low, high = random_key(seed, *names)
    return np.random.Generator(np.random.Philox(key=np.array([low, high], dtype=np.uint64)))


def mib(size: int) -> str:
    """Bytes as people read them.

    >>> mib(3 << 20)
    '3.0 MiB'
    """
    return f"{size / 2**20:.1f} MiB"
