"""Rows of an array, over which normalisations sum: their entries, their statistics, work for their sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minicaffe.backend import THREADS
from minicaffe.ops.loops import loops
from minicaffe.ops.sums import BLOCKS, EACH, SECTOR, in_sum_type
from minicaffe.ops.threads import in_slices

KINDS = ("variance", "deviation", "mean", "length")  # as the kernels count them
LONG = 2**15  # entries from which threads pay
PARTIAL = BLOCKS * SECTOR  # rows, in parts, of which sums are kept


@dataclass(frozen=True)
class Rows:
    """An array seen as (batch, outer, kept, inner): row (b, k) is made of all its outer and inner entries."""

    batch: int
    outer: int
    kept: int
    inner: int

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.batch * self.kept

    @property
    def length(self) -> int:
        """How many entries a row has."""
        return self.outer * self.inner

    @property
    def seen(self) -> tuple[int, int, int]:
        """(outer, kept, inner), for loops and kernels."""
        return self.outer, self.kept, self.inner

    def loops(self, x: Any) -> Any:
        """The compiled loops, which go along a row: None where its entries lie apart."""
        return loops("normalize", x.dtype) if self.inner > 1 or self.kept == 1 else None

    def in_slices(self, part: Callable[..., None]) -> None:
        """Run part(first, last, work) over slices of the rows, one a thread, where that pays."""
        if self.count * self.length < LONG:
            part(0, self.count, None)
        else:
            in_slices(part, self.count)

    def of(self, x: Any) -> Any:
        """The array as the rows see it."""
        return x.reshape(self.batch, self.outer, self.kept, self.inner)

    def sum(self, x: Any, out: Any, work: Any) -> Any:
        """The sum of each row into `out`, on the CPU, taken in float64; `work` lends its end for that."""
        wide, out = out, self.each(out)
        if x.dtype != np.float64:
            first = (work.size - 2 * self.count) // 2 * 2
            wide = work[first : first + 2 * self.count].view(np.float64)
        np.sum(self.of(x), axis=(1, 3), dtype=np.float64, keepdims=True, out=self.each(wide))
        np.copyto(out, self.each(wide))
        return out

    def each(self, values: Any) -> Any:
        """One number a row, to be stretched along it."""
        return values.reshape(self.batch, 1, self.kept, 1)


@dataclass(frozen=True)
class Norm:
    """How a row's spread becomes its rate."""

    kind: Literal["variance", "deviation", "mean", "length"]
    eps: float


@dataclass(frozen=True)
class Statistics:
    """Of each row its mean, its spread (variance, or the sum of squares) and its rate, each (rows,)."""

    mean: Any
    spread: Any
    rate: Any

    @classmethod
    def empty(cls, xp: Any, rows: Rows, dtype: Any) -> Statistics:
        """The buffers for rows."""
        return cls(*(xp.empty(rows.count, dtype) for _ in range(3)))


@dataclass(frozen=True)
class Affine:
    """A learned scale and bias, either of which may be None, a number a row of `rows` (batch 1)."""

    rows: Rows
    scale: Any
    bias: Any

    @property
    def places(self) -> int:
        """How many neighbours have the same feature."""
        return self.rows.inner


def workspace(xp: Any, size: int, rows: Rows, features: int = 0) -> int:
    """Elements of work for the functions below, of an array of `size` entries."""
    most = max(rows.count, features)
    if xp is np:
        return 2 * size + 4 * most + 2
    return 4 * (most + max(PARTIAL, most))  # twice: of 16 bits, work in float32


def by_channel(x: tuple[int, ...]) -> Rows:
    """The rows of a batch: the channels, along axis 1, of all samples and places; one axis is one channel.

    >>> by_channel((2, 3, 4, 5))
    Rows(batch=1, outer=2, kept=3, inner=20)
    """
    channels = x[1] if len(x) > 1 else 1
    return Rows(1, x[0], channels, math.prod(x[2:]))


def cut(rows: Rows, work: Any, like: Any) -> tuple[Any, Any, tuple[int, int], int]:
    """Room for two numbers a row and for those of each part, the grid, and how many rows a block has."""
    wide = SECTOR if rows.inner == 1 and rows.kept > 1 else 1
    while THREADS // wide > max(1, rows.length):  # more lanes than entries
        wide *= 2
    blocks = -(-rows.count // wide)
    room = in_sum_type(work, like)
    means, room = room[: 2 * rows.count], room[2 * rows.count :]
    most = min(BLOCKS // max(1, blocks), rows.length * wide // (EACH * THREADS))
    parts = max(1, min(most, room.size // (2 * max(1, rows.count))))
    return means, room, (blocks, parts), wide
