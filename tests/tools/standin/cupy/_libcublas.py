"""libcublas: cuBLAS's own functions, found by the library's name in a process that has loaded it."""

import ctypes
import functools
import threading
from pathlib import Path

import numpy as np

from . import _blas
from ._array import at_address, place, queue
from ._raw import CompilerMissingError, compiled

SOURCE = Path(__file__).parent.parent / "cublas.cpp"
INT, LONG, AT = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
MATRIX = AT, INT, INT, LONG
TYPES = {
    "stream": (AT, AT),
    "workspace": (AT, AT, ctypes.c_size_t),
    "gemm": (AT, *[INT] * 5, AT, *MATRIX, *MATRIX, AT, *MATRIX, INT, INT, INT),
}


class _Handle(threading.local):
    """That of a thread: its stream, and memory to work in."""

    stream, work = 0, None


_here = _Handle()


@functools.cache
def load():
    """Load it, for whoever asks for it by name; not where there is no compiler."""
    try:
        library = ctypes.CDLL(str(compiled(SOURCE, f"libcublas.so.{_blas.VERSION // 10000}")))
    except CompilerMissingError:
        return
    library.standin_call(*_CALLED)


def _stream(handle, stream):
    """The handle's own memory is taken again, whatever it was given."""
    _here.stream, _here.work = stream or 0, None


def _workspace(handle, at, size):
    if at % 256:
        raise _blas.CUBLASError(f"a workspace at {at:#x}, not at a multiple of 256")
    _here.work = at_address(at, (size,), np.uint8, (1,))


def _gemm(*given):
    action = _blas.product(*(value or 0 for value in given))
    if place.capture is not None:
        if _here.stream != place.capturing.ptr:
            raise RuntimeError("cudaErrorStreamCaptureImplicit: another stream than the captured")
        if _here.work is None:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported: a workspace taken in a capture")
    work = _here.work

    def run():
        if work is not None:
            work[:64] = 0xFF
        action()

    queue(run)


def _called(name, function):
    def call(*given):
        try:
            if given[0] != _blas.HANDLE:
                raise _blas.CUBLASError("a handle that is none")
            function(*given)
        except Exception as error:  # C knows a status
            _blas.CUBLASError.last = str(error)
            return 7
        return 0

    return ctypes.CFUNCTYPE(INT, *TYPES[name])(call)


_CALLED = [
    _called(name, function)
    for name, function in (("stream", _stream), ("workspace", _workspace), ("gemm", _gemm))
]
