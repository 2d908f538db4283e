"""cupy.cuda: devices whose clock is the host's and which have done all that was asked of them."""

import contextlib
import sys
import time
import weakref

import numpy as np

from . import _blas as cublas
from . import _nccl as nccl  # noqa: F401
from ._array import count, memory, place, queue

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
        return sys.modules[__package__].device_count

    @staticmethod
    def getDevice():  # noqa: N802
        return place.device

    @staticmethod
    def getDeviceProperties(device):  # noqa: N802
        _check(device)
        sizes = {"totalGlobalMem": TOTAL_MEMORY, "maxThreadsPerBlock": 1024, "warpSize": 32}
        version = {"major": 9, "minor": 0, "multiProcessorCount": 1}
        return {"name": b"stand-in (host C++ compiler)", **sizes, **version}

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

    compute_capability = "86"

    def __init__(self, device=None):
        self.id = place.device if device is None else int(device)
        self.before = []

    def use(self):
        _check(self.id)
        place.device = self.id

    def synchronize(self):
        count("synchronizations")

    @property
    def mem_info(self):
        return TOTAL_MEMORY - memory.used, TOTAL_MEMORY

    @property
    def attributes(self):
        return {"MaxThreadsPerBlock": 1024, "MultiProcessorCount": 132, "WarpSize": 32}

    def __enter__(self):
        before = place.device
        self.use()
        self.before.append(before)
        return self

    def __exit__(self, *error):
        place.device = self.before.pop()

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

    done = property(lambda self: not place.late)

    def __init__(self, block=True, disable_timing=False, interprocess=False):
        self.timed, self.time = not disable_timing, None
        self.stream = self.captured = None

    def record(self, stream=None):
        self.time = time.perf_counter()
        self.stream = stream
        inside = stream is not None and (
            stream is place.capturing or stream.forked is place.capture
        )
        self.captured = place.capture if place.capture is not None and inside else None

    def synchronize(self):
        count("synchronizations")


def get_elapsed_time(start_event, end_event):
    """Milliseconds between two recorded events."""
    for event in (start_event, end_event):
        if event.time is None or not event.timed:
            raise RuntimeError("cudaErrorInvalidResourceHandle: an event without a time")
    return (end_event.time - start_event.time) * 1e3


_streams = weakref.WeakValueDictionary()  # by their addresses


def stream_at(address):
    """The stream that an address is of."""
    return _streams[address]


class Stream:
    """cupy.cuda.Stream; whatever the stream, work is done when it is asked for."""

    done = True

    def __init__(self, null=False, non_blocking=False, ptds=False):
        self.ptr, self.device_id = 0 if null else id(self), place.device
        self.waiting, self.forked = (
            [],
            None,
        )  # what is to be done here; the capture it was brought into
        _streams[self.ptr] = self

    def synchronize(self):
        count("synchronizations")

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        """What is waiting in the event's stream is done before all that follows here."""
        if place.capture is not None and event.captured is not place.capture:
            raise RuntimeError("cudaErrorStreamCaptureIsolation: an event from outside the capture")
        if place.capture is not None and self is not place.capturing:
            self.forked = place.capture
        if event.stream is not None and event.stream is not self:
            while event.stream.waiting:
                queue(event.stream.waiting.pop(0))

    def later(self, action):
        """Something to be done here, once another stream waits for it."""
        if place.capture is not None and self.forked is not place.capture:
            raise RuntimeError("cudaErrorStreamCaptureImplicit: a stream outside the capture")
        self.waiting.append(action)

    def use(self):
        return self

    def begin_capture(self, mode=None):
        """What is asked for from now on is noted, and not done."""
        if self.ptr == 0:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported: the null stream")
        if place.capture is not None:
            raise RuntimeError("cudaErrorIllegalState: a capture is under way")
        place.capture, place.capturing = [], self

    def end_capture(self):
        """The graph of it."""
        actions, place.capture = place.capture, None
        if any(stream.forked is actions and stream.waiting for stream in _streams.values()):
            raise RuntimeError("cudaErrorStreamCaptureUnjoined: a stream was not led back")
        return Graph(actions)

    def is_capturing(self):
        return place.capture is not None

    def __enter__(self):
        place.streams.append(self)
        return self

    def __exit__(self, *error):
        place.streams.remove(self)


class Graph:
    """cupy.cuda.Graph: operations with the arguments they were captured with, done anew by each launch."""

    def __init__(self, actions):
        self.actions = actions

    def launch(self, stream=None):
        queue(self._run)
        sys.modules[__package__].graphs += 1

    def upload(self, stream=None):
        pass

    def _run(self):
        for action in self.actions:
            action()


Stream.null = Stream(null=True)


class PinnedMemory(np.ndarray):
    """What alloc_pinned_memory gives: memory of the host that the device copies from on its own."""

    ptr = property(lambda self: self.ctypes.data)


pinned = weakref.WeakValueDictionary()  # all that is held, by address


def alloc_pinned_memory(size):
    """Poisoned when nobody holds it any more."""
    memory = np.empty(size, np.uint8)
    block = memory.view(PinnedMemory)
    weakref.finalize(block, memory.fill, 0xFF)
    pinned[block.ptr] = block
    return block


@contextlib.contextmanager
def using_allocator(allocator=None):
    """What is taken in a capture is refused anyway."""
    yield


def get_cublas_handle():
    """Of what minicaffe imports as CuPy, whose library is then there."""
    if __package__ == "cupy":
        from ._libcublas import load

        load()
    return cublas.HANDLE


def get_current_stream():
    mine = [stream for stream in place.streams if stream.device_id == place.device]
    return mine[-1] if mine else Stream.null


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
