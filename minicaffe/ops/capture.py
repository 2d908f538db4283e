"""What CUDA is asked for, as a graph that is launched as one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backend import Device
from minicaffe.kernels import Asked, heard

COUNTERS = 1024
_counters: dict[tuple[int, int, int], Any] = {}  # by device, thread and stream


def arrived(like: Any) -> Any:
    """COUNTERS int32 beside an array of CUDA, in which kernels count the blocks that are done; see block.cu.

    They are 0 before and after each kernel, and those of one thread's stream, where kernels come one after the
    other: a default stream of each thread has one name in all of them. A graph has its own.
    """
    import cupy

    key = like.device.id, threading.get_ident(), cupy.cuda.get_current_stream().ptr
    if key not in _counters:
        _counters[key] = cupy.zeros(COUNTERS, np.int32)
    return _counters[key]


class _Refusing:
    """Hears what is asked for in a capture."""

    def launched(self, asked: Asked) -> bool:
        """A kernel is welcome."""
        return True

    def host(self, why: str) -> None:
        """What no graph can hold is not."""
        raise RuntimeError(f"in a capture {why}")


def captured(device: Device, work: Callable[[], object]) -> Callable[[], Any]:
    """What some work asks of CUDA: calling it has that done, anew each time. The work is not done by this.

    Raises CuPy's errors for what cannot be captured, a wait, a copy that waits, a product by cuBLAS; and
    RuntimeError where memory is taken, which a replay would write after others have been given it.
    """
    cuda = device.xp.cuda
    with device.current():
        counters, stream = device.xp.zeros(COUNTERS, np.int32), cuda.Stream(non_blocking=True)
        key = device.number, threading.get_ident(), stream.ptr
        _counters[key] = counters
        with cuda.using_allocator(_no_memory), stream, heard(_Refusing()):
            stream.begin_capture()
            try:
                work()
                graph = stream.end_capture()
            except BaseException:
                with contextlib.suppress(Exception):  # that the capture is no good is known
                    stream.end_capture()
                raise
            finally:
                del _counters[key]

    return partial(_launch, graph, counters)


def _launch(graph: Any, kept: Any) -> None:
    """Have a graph done; what is `kept` is memory that its kernels write."""
    graph.launch()


def _no_memory(size: int) -> None:
    raise RuntimeError(f"{size} bytes of memory taken in a capture")
