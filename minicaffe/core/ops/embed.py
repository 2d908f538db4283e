"""Rows of a table by their indices, which are whole numbers held as floats, as labels are."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import launch
from minicaffe.backends.device import on_cuda
from minicaffe.core.ops.arrays import GRAIN, fill
from minicaffe.core.ops.take import put_back, take
from minicaffe.errors import DataError


def read(indices: Any, count: int, out: Any) -> Any:
    """Indices as integers, on the CPU. Raises DataError for one that is no row of `count`.

    >>> read(np.array([2.0, 0.0]), 3, np.empty(2, np.int32))
    array([2, 0], dtype=int32)
    """
    with np.errstate(invalid="ignore"):
        np.copyto(out, indices, casting="unsafe")
    if out.size and (out.min() < 0 or out.max() >= count):
        bad = indices[(out < 0) | (out >= count)][0]
        raise DataError(f"index {bad:g} is not one of the {count} rows 0..{count - 1}")
    return out


def embed(indices: Any, weight: Any, out: Any, rows: Any, refused: Any) -> Any:
    """out[i] = weight[indices[i]]; indices (m,), weight (count, f), out (m, f).

    `rows` (m,) int32 is then what was read. Raises DataError for an index that is no row; on CUDA, which is
    not waited for, its numbers are NaN. A replay sets `refused`, one int32, to 1 instead of raising.

    >>> weight = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> embed(np.array([1.0]), weight, np.empty((1, 2)), np.empty(1, np.int32), np.zeros(1, np.int32))
    array([[3., 4.]])
    """
    count, f = weight.shape
    if on_cuda(weight):
        launch("embed.cu", "embed", out.size, out, indices, weight, count, f, out)
        return out
    if (fast := loops("gather", weight.dtype)) is not None:
        run(fast.places, rows.size, indices, count, rows, refused, grain=GRAIN)
    if fast is None or refused[0]:
        refused[0] = 0
        read(indices, count, rows)
    return take(weight, rows, out)


def add_gradient(dy: Any, indices: Any, rows: Any, out: Any, empty: bool = False) -> Any:
    """out[indices[i]] += dy[i], always in one order; `rows` as `embed` left it. `empty`: out holds nothing.

    >>> rows = np.array([1, 1])
    >>> add_gradient(np.ones((2, 1)), rows * 1.0, rows, np.zeros((2, 1)))
    array([[0.],
           [2.]])
    """
    if on_cuda(dy):
        if empty:
            fill(out, 0)
        launch("embed.cu", "embed_gradient", dy.size, out, dy, indices, len(dy), *out.shape, out)
        return out
    return put_back(dy, rows, out, add=not empty)
