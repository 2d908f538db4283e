"""Rows of a table by their indices, which are whole numbers held as floats, as labels are."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops.take import put_back, take
from minicaffe.errors import DataError


@op(replays=False)
def read(indices: Any, count: int, out: Any, refused: Any = None) -> Any:
    """Indices as integers, on the CPU. Raises DataError for one that is no row of `count`.

    A replay sets `refused` instead: see `embed`.

    >>> read(np.array([2.0, 0.0]), 3, np.empty(2, np.int32))
    array([2, 0], dtype=int32)
    """
    with np.errstate(invalid="ignore"):
        np.copyto(out, indices, casting="unsafe")
    if out.size and (out.min() < 0 or out.max() >= count):
        bad = indices[(out < 0) | (out >= count)][0]
        raise DataError(f"index {bad:g} is not one of the {count} rows 0..{count - 1}")


@op(traced=False)
def embed(indices: Any, weight: Any, out: Any, rows: Any, refused: Any) -> Any:
    """out[i] = weight[indices[i]]; indices (m,), weight (count, f), out (m, f).

    `rows` (m,) int32 is then what was read. Raises DataError for an index that is no row; on CUDA, which is
    not waited for, its numbers are NaN. A replay sets `refused`, one int32, to 1 instead of raising.

    >>> weight = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> embed(np.array([1.0]), weight, np.empty((1, 2)), np.empty(1, np.int32), np.zeros(1, np.int32))
    array([[3., 4.]])
    """
    read(indices, len(weight), rows, refused)
    take(weight, rows, out)


@op(traced=False)
def add_gradient(dy: Any, indices: Any, rows: Any, out: Any, empty: bool = False) -> Any:
    """out[indices[i]] += dy[i], always in one order; `rows` as `embed` left it. `empty`: out holds nothing.

    >>> rows = np.array([1, 1])
    >>> add_gradient(np.ones((2, 1)), rows * 1.0, rows, np.zeros((2, 1)))
    array([[0.],
           [2.]])
    """
    put_back(dy, rows, out, add=not empty)
