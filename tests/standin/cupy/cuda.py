"""cupy.cuda: one device, whose clock is the host's and which has done all that was asked of it."""

import time

from . import _blas as cublas
from ._array import count, memory

TOTAL_MEMORY = 8 << 30
_ERRORS = {
    35: "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
}


class runtime:  # noqa: N801
    """cupy.cuda.runtime."""

    CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF = 0, 1, 2, 14

    class CUDARuntimeError(RuntimeError):
        def __init__(self, status):
            self.status = status
            super().__init__(_ERRORS.get(status, f"CUDA error {status}"))

    @staticmethod
    def getDeviceCount():  # noqa: N802
        return 1

    @staticmethod
    def getDevice():  # noqa: N802
        return 0

    @staticmethod
    def getDeviceProperties(device):  # noqa: N802
        _check(device)
        return {
            "name": b"stand-in (host C++ compiler)",
            "totalGlobalMem": TOTAL_MEMORY,
            "multiProcessorCount": 1,
            "major": 9,
            "minor": 0,
            "warpSize": 32,
            "maxThreadsPerBlock": 1024,
        }

    @staticmethod
    def driverGetVersion():  # noqa: N802
        return 13000

    @staticmethod
    def runtimeGetVersion():  # noqa: N802
        return 13000

    @staticmethod
    def deviceSynchronize():  # noqa: N802
        count("synchronizations")


def _check(device):
    if not 0 <= device < runtime.getDeviceCount():
        raise runtime.CUDARuntimeError(101)


class compiler:  # noqa: N801
    """cupy.cuda.compiler."""

    class CompileException(Exception):  # noqa: N818
        def __init__(self, msg, source, name, options, backend="nvrtc"):
            super().__init__(msg)
            self.source, self.name, self.options, self.backend = source, name, options, backend


class Device:
    """cupy.cuda.Device."""

    compute_capability = "90"

    def __init__(self, device=None):
        self.id = 0 if device is None else int(device)

    def use(self):
        _check(self.id)

    def synchronize(self):
        count("synchronizations")

    @property
    def mem_info(self):
        return TOTAL_MEMORY - memory.used, TOTAL_MEMORY

    @property
    def attributes(self):
        return {"MaxThreadsPerBlock": 1024, "MultiProcessorCount": 1, "WarpSize": 32}

    def __enter__(self):
        self.use()
        return self

    def __exit__(self, *error):
        pass

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __int__(self):
        return self.id

    def __repr__(self):
        return f"<CUDA Device {self.id}>"


class Event:
    """cupy.cuda.Event."""

    done = True

    def __init__(self, block=True, disable_timing=False, interprocess=False):
        self.timed, self.time = not disable_timing, None

    def record(self, stream=None):
        self.time = time.perf_counter()

    def synchronize(self):
        count("synchronizations")


def get_elapsed_time(start_event, end_event):
    """Milliseconds between two recorded events."""
    for event in (start_event, end_event):
        if event.time is None or not event.timed:
            raise RuntimeError("cudaErrorInvalidResourceHandle: an event without a time")
    return (end_event.time - start_event.time) * 1e3


class Stream:
    """cupy.cuda.Stream; whatever the stream, work is done when it is asked for."""

    done = True

    def __init__(self, null=False, non_blocking=False, ptds=False):
        self.ptr = 0 if null else id(self)

    def synchronize(self):
        count("synchronizations")

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        pass

    def use(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


Stream.null = Stream(null=True)


def get_cublas_handle():
    return cublas.HANDLE


def get_current_stream():
    return Stream.null


def is_available():
    return runtime.getDeviceCount() > 0


class MemoryPool:
    """What cupy.get_default_memory_pool() returns; nothing is kept for later use."""

    def used_bytes(self):
        return memory.used

    def total_bytes(self):
        return memory.used

    def free_bytes(self):
        return 0

    def free_all_blocks(self, stream=None):
        pass
