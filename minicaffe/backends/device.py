"""The device: which array library, transfers, timers. Chosen here only."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from minicaffe.backends.launch_listener import tell
from minicaffe.backends.thread_state import state
from minicaffe.errors import DeviceError, ShapeError, SpecError, mib, reason

TOO_MANY = "elements are more than a kernel's 32-bit index reaches"
FLOATS = "float16", "bfloat16", "float32", "float64"  # types that kernels are made for
PRECISIONS = "highest", "tf32"
TF32_SINCE = 80  # the compute capability of GPUs that have it: of the A100
NO_TF32 = "float32 is exact: precision tf32 needs CUDA and an A100 or later"
STAGED = 2**26  # bytes, up to which a host array goes through page-locked memory
SMALL = 2**20  # bytes, above which as many such copies to one place are under way as it has
TURNS = 2  # buffers
WORKS = "template <typename T> __global__ void works(T* x) { *x = T(0); }"  # if it can be compiled
Staged = deque[tuple[Any, Any, int]]  # copies: an event, its memory, where to
_staged: defaultdict[int, Staged] = defaultdict(deque)  # by the number of the device
_lock = threading.Lock()  # of those, and of the streams
Method = TypeVar("Method", bound=Callable[..., Any])


class Device:
    """Where arrays live: `xp` is numpy or cupy, `name` is cpu, cuda:0, ... and `reason` tells why.

    With `tf32` CUDA may multiply float32 on tensor cores, which round what they multiply to 10 bits of
    mantissa and sum in float32.
    """

    def __init__(self, name: str, xp: ModuleType, reason: str, tf32: bool = False):
        self.name, self.xp, self.reason, self.tf32 = name, xp, reason, tf32
        self.is_cuda = xp is not np
        self.number = int(name.partition(":")[2] or 0)  # of a CUDA device

    def __repr__(self) -> str:
        return f"{self.name} ({self.reason}{'; float32 by TF32' * self.tf32})"

    def current(self) -> contextlib.AbstractContextManager[Any]:
        """Within it CUDA does what this thread asks on this device, in its stream or one entered before."""
        return _current(self) if self.is_cuda else contextlib.nullcontext()

    def of_precision(self, precision: str) -> Device:
        """The same for float32 as `highest` or `tf32`; what has no TF32 says so. Raises SpecError.

        >>> device("cpu").of_precision("tf32")
        cpu (asked for; float32 is exact: precision tf32 needs CUDA and an A100 or later)
        """
        if precision not in PRECISIONS:
            raise SpecError(f"precision: expected {' or '.join(PRECISIONS)}, got {precision!r}")
        wanted = precision == "tf32"
        if wanted == self.tf32 or (wanted and NO_TF32 in self.reason):
            return self
        able = self.is_cuda and capability(self.number) >= TF32_SINCE
        if wanted and not able:
            return Device(self.name, self.xp, f"{self.reason}; {NO_TF32}")
        return Device(self.name, self.xp, self.reason, wanted)

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

        It is not waited for: page-locked memory holds it until it is copied. What is larger than SMALL takes
        two such buffers by turns, and what is larger than STAGED none.
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
        staged = _staged[self.number]
        with self.current(), _lock:
            place = target.data.ptr if source.nbytes > SMALL else 0
            turns = sum(at == place > 0 for *_, at in staged)
            while staged and (turns >= TURNS or staged[0][0].done):
                event, memory, at = staged.popleft()
                if not event.done:
                    event.synchronize()
                turns -= at == place
                del memory  # before another is asked for
            memory = self.xp.cuda.alloc_pinned_memory(source.nbytes)
            np.frombuffer(memory, np.uint8, source.nbytes)[:] = source.reshape(-1).view(np.uint8)
            target.data.copy_from_host_async(memory.ptr, source.nbytes)
            event = self.xp.cuda.Event(disable_timing=True)
            event.record()
            staged.append((event, memory, place))

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it."""
        if self.is_cuda:
            with self.current():
                self.xp.cuda.get_current_stream().synchronize()

    def memory(self) -> int:
        """Bytes of memory this device has in all."""
        if self.is_cuda:
            return int(self.xp.cuda.Device(self.number).mem_info[1])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def check_fits(self, size: int, what: str) -> None:
        """Raise ShapeError if `size` bytes cannot be had, before any of them is taken."""
        if size > self.memory():
            raise ShapeError(f"{what} needs {mib(size)}; {self.name} has {mib(self.memory())}")

    def timer(self) -> Callable[[], float]:
        """Start a stopwatch; calling it returns the ms since, by device events on CUDA."""
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


@contextlib.contextmanager
def _current(of: Device) -> Iterator[None]:
    cuda, before = of.xp.cuda, tf32()
    with cuda.Device(of.number), contextlib.ExitStack() as stack:
        if not cuda.get_current_stream().ptr:  # nobody has chosen another than the default
            stack.enter_context(_stream(cuda, of.number))
        state.tf32 = of.tf32
        try:
            yield
        finally:
            state.tf32 = before


@functools.cache
def capability(number: int) -> int:
    """The compute capability of a CUDA device, as 80 for 8.0."""
    import cupy

    return int(cupy.cuda.Device(number).compute_capability)


def tf32() -> bool:
    """Whether the device that is current in this thread may round float32 to TF32."""
    return state.tf32


def _stream(cuda: Any, number: int) -> Any:
    """The one of all nets there; the default one and it wait for each other."""
    with _lock:
        return _new_stream(cuda, number)


@functools.cache
def _new_stream(cuda: Any, number: int) -> Any:
    return cuda.Stream()


def on_its_device(method: Method) -> Method:
    """Have a method run with the `device` of its object current, whichever was before in this thread."""

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.device.is_cuda:
            return method(self, *args, **kwargs)
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
            module = cupy.RawModule(
                code=WORKS, options=("-std=c++17",), name_expressions=["works<float>"]
            )
            module.get_function("works<float>")
            cublas.gemm("N", "N", one, one)
        name = cupy.cuda.runtime.getDeviceProperties(number)["name"].decode()
        cupy.cuda.Device(number).use()  # for who goes on to compute with `xp`
    except Exception as error:  # whatever NVRTC, cuBLAS or the driver say
        raise DeviceError(f"CuPy cannot compute: {_short(error)}") from None
    return Device(f"cuda:{number}", cupy, f"{reason}: {name}")


def _short(error: Exception) -> str:
    return reason(error)[:200]


def on_cuda(array: Any) -> bool:
    """Whether an array lives on a CUDA device."""
    if array is None or isinstance(array, np.ndarray):
        return False
    return type(array).__module__.partition(".")[0] == "cupy"


def device_of(array: Any) -> Device:
    """Where an array is; what is none yet will be on the CPU."""
    if on_cuda(array):
        import cupy

        return Device(f"cuda:{array.device.id}", cupy, "where the array is")
    return Device("cpu", np, "where the array is")


def where(array: Any) -> tuple[Any, ...]:
    """An array's address, shape, distances and type: two arrays with one of these are one.

    >>> x = np.zeros(2)
    >>> where(x) == where(x[:]), where(x) == where(x.copy())
    (True, False)
    """
    address = array.data.ptr if on_cuda(array) else array.__array_interface__["data"][0]
    return address, array.shape, array.strides, array.dtype
