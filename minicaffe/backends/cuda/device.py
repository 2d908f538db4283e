"""A GPU as a device: streams, page-locked copies, events; and whether CUDA computes here."""

import contextlib
import ctypes
import functools
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minicaffe.backends.device import Device
from minicaffe.backends.launch_listener import tell
from minicaffe.backends.thread_state import state
from minicaffe.errors import DeviceError, reason

TF32_SINCE = 80  # the compute capability of GPUs that have it: of the A100
STAGED = 2**26  # bytes, up to which a host array goes through page-locked memory
SMALL = 2**20  # bytes, above which as many such copies to one place are under way as it has
TURNS = 2  # buffers
WORKS = "template <typename T> __global__ void works(T* x) { *x = T(0); }"  # if it can be compiled
Staged = deque[tuple[Any, Any, int]]  # copies: an event, its memory, where to
_staged: defaultdict[int, Staged] = defaultdict(deque)  # by the number of the device
_lock = threading.Lock()  # of those, and of the streams


class CudaDevice(Device):
    """A GPU, by its number."""

    is_cuda = True

    def __init__(self, reason: str, number: int):
        import cupy

        super().__init__(reason, name=f"cuda:{number}", xp=cupy)
        self.number = number

    @property
    def has_tf32(self) -> bool:  # type: ignore[override]
        """Whether its tensor cores multiply float32."""
        return capability(self.number) >= TF32_SINCE

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Within it CUDA does what this thread asks on this device, in its stream or one entered before."""
        cuda, before = self.xp.cuda, state.precision
        with cuda.Device(self.number), contextlib.ExitStack() as stack:
            if not cuda.get_current_stream().ptr:  # nobody has chosen another than the default
                with _lock:
                    stack.enter_context(_stream(cuda, self.number))
            state.precision = self.precision
            try:
                yield
            finally:
                state.precision = before

    def to_host(self, array: Any) -> np.ndarray:
        """An array of this device as a NumPy array; waits for the device."""
        tell("the host reads what the device computed")
        return array.get()

    def copy_from_host(self, target: Any, source: Any) -> None:
        """Fill a device array with a host array of the same shape, which is then free for other use.

        It is not waited for: page-locked memory holds it until it is copied. What is larger than SMALL takes
        two such buffers by turns, and what is larger than STAGED none.
        """
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
        with self.current():
            self.xp.cuda.get_current_stream().synchronize()

    def memory(self) -> int:
        """Bytes of memory this device has in all."""
        return int(self.xp.cuda.Device(self.number).mem_info[1])

    def timer(self) -> Callable[[], float]:
        """Start a stopwatch; calling it returns the ms since, by device events."""
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


@functools.cache
def capability(number: int) -> int:
    """The compute capability of a CUDA device, as 80 for 8.0."""
    import cupy

    return int(cupy.cuda.Device(number).compute_capability)


@functools.cache
def multiprocessors(number: int) -> int:
    """How many multiprocessors a CUDA device has."""
    import cupy

    return int(cupy.cuda.Device(number).attributes["MultiProcessorCount"])


def precision() -> str:
    """That of float32 products on the device that is current in this thread."""
    return state.precision


@functools.cache
def _stream(cuda: Any, number: int) -> Any:
    """The one of all nets there; the default one and it wait for each other."""
    return cuda.Stream()


def has_driver() -> bool:
    """True if NVIDIA's driver is installed."""
    with contextlib.suppress(OSError):
        return bool(ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1"))
    return False


def opened(number: int, why: str) -> CudaDevice:
    """The GPU of a number, if a net can be computed on it. Raises DeviceError that says why not."""
    try:
        import cupy
    except Exception as error:  # without it, without its libraries, without a folder for its cache
        if getattr(error, "name", "") != "cupy":
            raise DeviceError(f"CuPy cannot be imported: {reason(error)[:200]}") from None
        if not has_driver():
            raise DeviceError("there is no NVIDIA driver") from None
        raise DeviceError("CuPy is not installed; the extra cuda12 or cuda13 brings it") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"CUDA does not work: {reason(error)[:200]}") from None
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
        raise DeviceError(f"CuPy cannot compute: {reason(error)[:200]}") from None
    return CudaDevice(f"{why}: {name}", number)
