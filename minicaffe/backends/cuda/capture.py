"""What CUDA is asked for, as a graph that is launched as one."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backends.device import Device
from minicaffe.backends.launch_listener import Asked, heard

COUNTERS = 1024
Make = Callable[[], Any]
_kept: dict[tuple[int, int, int], dict[Make, Any]] = {}  # by device, thread and stream


def arrived() -> Any:
    """COUNTERS int32, 0 before and after each kernel, in which kernels count the blocks done: see block.cu."""
    return kept(_counters)


def kept(make: Make) -> Any:
    """What `make` returns, memory that work on CUDA has to itself, one behind the other: made once.

    It is of one thread's stream on the current device: a default stream of each thread has one name in all of
    them. A graph has its own. That of threads that have ended is let go.
    """
    import cupy

    key = cupy.cuda.Device().id, threading.get_ident(), cupy.cuda.get_current_stream().ptr
    if key not in _kept:
        alive = {thread.ident for thread in threading.enumerate()}
        for ended in [one for one in list(_kept) if one[1] not in alive]:
            _kept.pop(ended, None)
    mine = _kept.setdefault(key, {})
    if make not in mine:
        mine[make] = make()
    return mine[make]


def _counters() -> Any:
    import cupy

    return cupy.zeros(COUNTERS, np.int32)


class _Refusing:
    """Hears what is asked for in a capture."""

    def launched(self, asked: Asked) -> bool:
        return True

    def host(self, why: str) -> None:
        raise RuntimeError(f"in a capture {why}")


def captured(
    device: Device, work: Callable[[], object], needs: Iterable[Make] = ()
) -> Callable[[], Any]:
    """What some work asks of CUDA: calling it has that done, anew each time. The work is not done by this.

    `needs` is memory that it is to find `kept`. Raises CuPy's errors for what cannot be captured, such as a
    wait; and RuntimeError where memory is taken, which a replay would write after others have been given it.
    """
    cuda, thread = device.xp.cuda, threading.get_ident()
    with device.current():
        own = {make: make() for make in (_counters, *needs)}
        stream = cuda.Stream(non_blocking=True)
        key = device.number, thread, stream.ptr
        _kept[key] = own
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
                _kept.pop(key, None)
    return partial(_launch, graph, own)


def _launch(graph: Any, memory: Any) -> None:
    """Have a graph done; its kernels write the memory."""
    graph.launch()


def _no_memory(size: int) -> None:
    raise RuntimeError(f"{size} bytes of memory taken in a capture")
