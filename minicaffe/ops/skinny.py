"""Products of a few vectors with a large matrix on the CPU, which BLAS would copy first. Needs Numba."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minicaffe.ops.loops import loops, no_bias
from minicaffe.ops.threads import run, share

FEW = range(2, 65)  # vectors: one has loops of its own, and of more BLAS makes up for its copy
SMALL = 10**6  # multiply-adds of a thread up to which OpenBLAS copies nothing
LEAST = 64  # the shorter side of a matrix that is large
LONG = 2**12  # bytes that a thread takes of a row, from which rows are streams from memory,
STREAMS, MANY = 8, 512  # and how many rows are taken at a time then, or else
CLOSE = 2**17  # entries of b, where its rows are few, that stay in a cache while c is written


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
    fast, rows = _loops(c, sizes, m in FEW, k in FEW), m not in FEW
    if fast is None:
        return False
    lanes = fast.lanes(c.dtype)
    streams = m <= STREAMS and n * b.itemsize >= LONG * share(None)
    vectors = n // lanes
    blocks = STREAMS if streams else MANY, max(1, CLOSE // (k * lanes)) if rows else vectors
    tables = _table(k, m if a_turned else 1, n), _table(vectors, lanes, lanes)
    units = -(-m // fast.ROWS) if rows else -(-vectors // fast.COLUMNS)
    run(fast.product, units, sizes, a, a_turned, b, add, rows, *blocks, *tables, lanes, c)
    return True


def dots(a: Any, b: Any, bias: Any, c: Any, add: bool, sizes: tuple[int, int, int]) -> bool:
    """c = a b + bias, or c += a b, if m vectors are few and b is large and lies in memory by columns."""
    m, n, k = sizes
    if (fast := _loops(c, sizes, m in FEW, False)) is None:
        return False
    lanes = fast.lanes(c.dtype)
    tables = _table(m, n, k), _table(k // lanes, lanes, lanes)
    run(fast.dots, -(-n // fast.ROWS), sizes, a, b, bias, add, *tables, lanes, c)
    return True


def _loops(c: Any, sizes: tuple[int, int, int], few: bool, low: bool) -> Any:
    """The loops, if they are to multiply: m is small, or k is."""
    m, n, k = sizes
    large = min(n, k) if few else min(m, n) if low else 0
    work = m * n * k
    if large < LEAST or work <= SMALL * share(None) or max(n * k, m * n) >= 2**31:
        return None
    return loops("skinny", c.dtype)


@functools.lru_cache(4096)
def _table(count: int, a: int, b: int) -> Any:
    """Where each of so many lies in two arrays."""
    return np.arange(count, dtype=np.int32)[:, None] * np.array([a, b], np.int32)
