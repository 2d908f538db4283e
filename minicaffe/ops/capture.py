"""What CUDA is asked for, as a graph that is launched as one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from minicaffe.backend import Device
from minicaffe.kernels import heard


class _Refusing:
    """Hears what is asked for in a capture."""

    def launched(self, *kernel: object) -> None:
        """A kernel is welcome."""

    def host(self, why: str) -> None:
        """What no graph can hold is not."""
        raise RuntimeError(f"in a capture {why}")


def captured(device: Device, work: Callable[[], object]) -> Callable[[], Any]:
    """What some work asks of CUDA: calling it has that done, anew each time. The work is not done by this.

    Raises CuPy's errors for what cannot be captured, a wait, a copy that waits, a product by cuBLAS; and
    RuntimeError where memory is taken, which a replay would write after others have been given it.
    """
    cuda = device.xp.cuda
    with (
        device.current(),
        cuda.using_allocator(_no_memory),
        cuda.Stream(non_blocking=True) as stream,
        heard(_Refusing()),
    ):
        stream.begin_capture()
        try:
            work()
        except BaseException:
            with contextlib.suppress(Exception):  # that the capture is no good is known
                stream.end_capture()
            raise
        launch: Callable[[], Any] = stream.end_capture().launch
    return launch


def _no_memory(size: int) -> None:
    raise RuntimeError(f"{size} bytes of memory taken in a capture")
