"""Loops compiled by Numba for the CPU (extra `cpu`), used where they are faster than NumPy's calls.

Each is serial and releases the GIL, so that threads run them side by side; arrays come flat. Indices are
made unsigned (`at`), for else Numba asks of each whether it counts from the end.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import math
import os
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
at: Any = np.uintp
REORDERED = {"reassoc", "contract"}  # what LLVM may do to sums
# Compiled, too, but no kernels
MACHINERY = ("blas", "call_abi", "microkernel", "thread_pool_loops")
_modules: dict[str, ModuleType] = {}
_import = threading.RLock()  # Numba must not be imported by two threads at once


@functools.cache
def available() -> bool:
    """Whether Numba, 0.62 or newer, compiles: not with MINICAFFE_NUMBA=0, nor with NUMBA_DISABLE_JIT=1."""
    if os.environ.get("MINICAFFE_NUMBA") == "0":
        return False
    try:
        with _import:
            import numba
    except ImportError:
        return False
    settings: Any = numba.config
    return not settings.DISABLE_JIT and numba.version_info.short >= (0, 62)


def versions() -> list[str]:
    """What compiles and multiplies, for the name of a machine under which measurements are kept."""
    numba = f"Numba {importlib.metadata.version('numba')}" if available() else ""
    blas = "BLAS called from loops" if with_blas("blas", np.float32)[1] else ""
    return [part for part in (numba, blas) if part]


@contextlib.contextmanager
def by_numpy() -> Iterator[None]:
    """Has NumPy compute, as with MINICAFFE_NUMBA=0, what is built and run within.

    >>> with by_numpy():
    ...     available()
    False
    """
    before = os.environ.get("MINICAFFE_NUMBA")
    os.environ["MINICAFFE_NUMBA"] = "0"
    available.cache_clear()
    try:
        yield
    finally:
        del os.environ["MINICAFFE_NUMBA"]
        if before is not None:
            os.environ["MINICAFFE_NUMBA"] = before
        available.cache_clear()


def loops(name: str, dtype: Any) -> ModuleType | None:
    """The module of compiled loops `name` if they serve this type, else None: use NumPy.

    >>> loops("im2col", np.float16) is None
    True
    """
    if not available() or np.dtype(dtype).char not in "fd":
        return None
    if name not in _modules:
        with _import:
            room = "cpu" if name in MACHINERY else "cpu.kernels"
            _modules[name] = importlib.import_module(f"minicaffe.backends.{room}.{name}")
    return _modules[name]


class Piece:
    """An argument of a loop: a flat buffer, of which each slice gets an equal piece of its own."""

    def __init__(self, work: Any):
        self.work = work


class Tail:
    """What a loop calls for each part of y that it has computed: loop(*args, first, last), of `size` units."""

    def __init__(self, loop: Any = None, args: tuple[Any, ...] = (), size: int = 1):
        self.loop, self.args, self.size = loop, args, size
        self.words: Any = None  # its arguments, as `call_abi` lays them out


NOTHING = Tail()


@functools.cache
def no_bias(dtype: Any) -> Any:
    """What loops are given where there is no bias: always the same, so that what is recorded is."""
    return np.empty(0, dtype)


def no_epilogue(out: Any) -> tuple[Any, Any]:
    """What loops are given whose outputs nothing follows: the epilogue, see `filters`, and these, flat."""
    return (0, (out.shape[1], math.prod(out.shape[2:])), NOTHING), out.reshape(-1)


def with_blas(name: str, dtype: Any) -> tuple[Any, int]:
    """The module of loops `name` that call BLAS, and its address; (None, 0) if they cannot serve a type."""
    products: Any = loops("blas", dtype)
    blas = products and products.address(dtype)
    return (loops(name, dtype), blas) if blas else (None, 0)


def for_rows(name: str, dtype: Any, blas: bool) -> tuple[Any, ...] | None:
    """What a row takes first: the module of loops `name`, and with `blas` its address; None without loops."""
    first = with_blas(name, dtype) if blas else (loops(name, dtype),)
    return None if first[0] is None else first


def compiled(function: F, fastmath: Any = False) -> F:
    """The loop as machine code that holds no GIL, kept on disk for the next run."""
    import numba

    from minicaffe.backends.cpu.compile_cache import Kept
    from minicaffe.backends.cpu.compiler import LoopCompiler

    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    jit: Any = numba.njit(pipeline_class=LoopCompiler, **options)
    # Its name in machine code, where all that factories return would be called alike.
    function.__qualname__ = function.__name__
    loop = jit(function)
    loop._cache = Kept(function)
    return cast(F, loop)


def helper(function: F, fastmath: Any = False) -> F:
    """A function that loops call entry by entry, compiled into each of them; Python cannot call it."""
    from minicaffe.backends.cpu.compiler import part

    return cast(F, part(function, nogil=True, error_model="numpy", fastmath=fastmath))


# The same, whose sums may be taken in another order, eight or sixteen at a time
helper_sums = functools.partial(helper, fastmath=REORDERED)
compiled_sums = functools.partial(compiled, fastmath=REORDERED)
