"""Products of a few vectors with a large matrix on the CPU, which BLAS would copy first. Needs Numba."""

import functools
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops, no_bias
from minicaffe.backends.cpu.threads import run, share

FEW = range(2, 65)  # vectors: one has loops of its own, and of more BLAS makes up for its copy
# Rows that lie a multiple of MEET bytes apart share a few places of a cache. Fewer vectors are few then, where
# registers are not wide: of a matrix read by columns, as forward, or by rows, as backward.
MEET = 2**10
CROWDED, CROWDED_ROWS = range(2, 33), range(2, 9)
SMALL = 10**6  # multiply-adds of a thread up to which OpenBLAS copies nothing
LEAST = 64  # the shorter side of a matrix that is large
LONG = 2**12  # bytes that a thread takes of a row, from which rows are streams from memory,
STREAMS, MANY = 8, 512  # and how many rows are taken at a time then, or else
CLOSE = 2**17  # entries of b, where its rows are few, that stay in a cache while c is written
NEAR = 18 * 2**10  # bytes of b, of narrow vectors, that stay in the first cache with all beside it


def multiply(
    a: Any, a_turned: bool, b: Any, b_turned: bool, c: Any, add: bool, sizes: tuple[int, int, int]
) -> bool:
    """c = a b, or c += a b, if that is such a product: a (m, k), b (k, n), c (m, n), flat; (m, n, k).

    What is `turned` lies in memory by columns. b is the large one, or c, where k is small.

    >>> a, b, c = np.ones((3, 3), np.float32)
    >>> multiply(a, False, b, False, c, False, (1, 1, 3))
    False
    """
    m, n, k = sizes
    if b_turned:
        return not a_turned and dots(a, b, no_bias(c.dtype), c, add, sizes)
    if (compiled := _loops(sizes, c)) is None:
        return False
    lanes, few = compiled.lanes(c.dtype), _few(compiled, n, c, CROWDED_ROWS)
    rows = m not in few
    if (rows and k not in few) or min(n, m if rows else k) < LEAST:
        return False
    vectors, steps = n // lanes, table(k, m if a_turned else 1, n)
    units = -(-m // compiled.FEW_ROWS) if rows else -(-vectors // compiled.FEW_COLUMNS)
    blocks = _blocks(compiled, sizes, rows, c)
    run(compiled.product, units, sizes, a, a_turned, b, add, rows, *blocks, steps, vectors, c)
    return True


def dots(a: Any, b: Any, bias: Any, c: Any, add: bool, sizes: tuple[int, int, int]) -> bool:
    """c = a b + bias, or c += a b, if m vectors are few and b is large and lies in memory by columns."""
    m, n, k = sizes
    compiled = _loops(sizes, c)
    if compiled is None or m not in _few(compiled, k, c, CROWDED) or min(n, k) < LEAST:
        return False
    lanes = compiled.lanes(c.dtype)
    tables = table(m, n, k), table(k // lanes, lanes, lanes)
    run(compiled.dots, -(-n // compiled.FEW_ROWS), sizes, a, b, bias, add, *tables, lanes, c)
    return True


def _loops(sizes: tuple[int, int, int], like: Any) -> Any:
    """The loops, for a product that BLAS would copy, and that can be counted in 32 bits."""
    m, n, k = sizes
    small = m * n * k <= SMALL * share()
    return None if small or max(n * k, m * n) >= 2**31 else loops("gemm_small_m", like.dtype)


def _few(compiled: Any, row: int, like: Any, crowded: range) -> range:
    """How many vectors are few, where rows of so many entries are read."""
    return FEW if compiled.wide() or row * like.itemsize % MEET else crowded


def _blocks(compiled: Any, sizes: tuple[int, int, int], rows: bool, like: Any) -> tuple[int, int]:
    """How many rows of b are taken at a time, and how many vectors of these."""
    (m, n, k), lanes = sizes, compiled.lanes(like.dtype)
    vectors = n // lanes
    if not rows and m <= STREAMS and n * like.itemsize >= LONG * share():
        return STREAMS, vectors
    if compiled.wide():
        return MANY, max(1, CLOSE // (k * lanes)) if rows else vectors
    near = max(1, NEAR // (compiled.FEW_COLUMNS * lanes * like.itemsize))  # tiles' rows of b
    return (k, compiled.FEW_COLUMNS * max(1, near // k)) if rows else (near, vectors)


@functools.lru_cache(4096)
def table(count: int, a: int, b: int) -> Any:
    """Where each of so many lies in two arrays, (count, 2) int32."""
    return np.arange(count, dtype=np.int32)[:, None] * np.array([a, b], np.int32)
