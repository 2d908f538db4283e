"""Arrays that begin at a cache line (64 bytes), unlike NumPy's; long arrays lie in huge pages.

A vector of AVX-512 is as long as a cache line; in an array that begins elsewhere each is read from two. The
processor looks up few huge pages, each contiguous in its caches; Linux may have fewer than are asked for.
"""

import contextlib
import math
import mmap
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

LINE = 64  # bytes of a line of the cache,
ENTRIES = 16  # and what it holds of float32
PAGE = 2**21  # of a huge page
LONG = PAGE // 2  # an array that is worth one


def empty(xp: Any, shape: tuple[int, ...] | int, dtype: Any) -> Any:
    """An array of NumPy's or CuPy's, whose memory always is so; what it holds is whatever was there.

    >>> empty(np, (3, 5), np.float32).ctypes.data % LINE
    0
    """
    return _made(np.empty, shape, dtype) if xp is np else xp.empty(shape, dtype)


def zeros(xp: Any, shape: tuple[int, ...] | int, dtype: Any) -> Any:
    """An array of zeros.

    >>> zeros(np, 2, np.float64)
    array([0., 0.])
    """
    return _made(np.zeros, shape, dtype) if xp is np else xp.zeros(shape, dtype)


def _made(make: Callable[..., Any], shape: tuple[int, ...] | int, dtype: Any) -> Any:
    sizes: Any = (shape,) if np.ndim(shape) == 0 else shape
    shape, dtype = tuple(map(operator.index, sizes)), np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = _pages(size) if size >= LONG else None
    if memory is None:
        memory = make(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def _pages(size: int) -> np.ndarray | None:
    """Zeros in whole huge pages, up to one more than they hold; nothing where none can be asked for."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        pages = mmap.mmap(-1, (-(-size // PAGE) + 1) * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError):  # NumPy may have so much, or tells
        return None
    with contextlib.suppress(OSError):  # a system without them: it was but advice
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    start = -whole.ctypes.data % PAGE
    return whole[start : start - PAGE]
