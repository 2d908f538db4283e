"""Sums in memory that the ranks of one machine share, a window of MPI: read where they lie, no messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI

LENT = 2**21  # bytes that a rank lends at a time, so that they stay in the caches,
TOGETHER = 2**24  # and all ranks of a machine


class Window:
    """What each rank lends the others: a part of an array for each of them.

    Of a sum each rank adds one part, which the others then read: the same bits on all, and whenever it is
    taken anew, for rank r adds in the order r, r + 1, ..., size - 1, 0, ..., r - 1. MPI has the ranks meet
    once behind what is lent; what is lent next goes into the other half of the memory, and behind that
    meeting the first is free again. All must call the same in the same order, with arrays of one size.
    Source: T. Hoefler et al., MPI + MPI: a new hybrid approach to parallel programming with MPI plus shared
    memory, Computing 95, 2013.
    """

    def __init__(self, comm: Any):
        self.rank, size = comm.Get_rank(), comm.Get_size()
        self.each = max(64, min(LENT, TOGETHER // size) // size // 64 * 64)  # bytes of a part
        self.window = MPI.Win.Allocate_shared(2 * self.each * size, 1, comm=comm)
        lent = [
            np.asarray(self.window.Shared_query(rank)[0]).view(np.uint8) for rank in range(size)
        ]
        self.halves = [memory.reshape(2, size, self.each) for memory in lent]
        self.half = 0

    def add(self, array: Any, bounds: Sequence[int], share: bool = False) -> None:
        """Make the part of this rank that of the sum; and `share` it, so that the array is the sum."""
        for parts in self._cut(array, bounds):
            self._add(parts)
            if share:
                self._share(parts)

    def share(self, array: Any, bounds: Sequence[int]) -> None:
        """Have each part from the rank whose it is."""
        for parts in self._cut(array, bounds):
            self._share(parts)

    def _cut(self, array: Any, bounds: Sequence[int]) -> Iterator[list[Any]]:
        """Of the part of each rank as much as is lent at a time."""
        parts, count = [array[a:b] for a, b in pairwise(bounds)], self.each // array.itemsize
        for start in range(0, max(part.size for part in parts), count):
            yield [part[start : start + count] for part in parts]

    def _add(self, parts: list[Any]) -> None:
        mine, self.half = parts[self.rank], 1 - self.half
        for rank in self._others():
            self._lent(self.rank, rank, parts[rank])[...] = parts[rank]
        self.window.Fence()
        with np.errstate(all="ignore"):  # MPI's sums say nothing either
            for rank in self._others():
                np.add(mine, self._lent(rank, self.rank, mine), out=mine)

    def _share(self, parts: list[Any]) -> None:
        mine, self.half = parts[self.rank], 1 - self.half
        self._lent(self.rank, self.rank, mine)[...] = mine
        self.window.Fence()
        for rank in self._others():
            parts[rank][...] = self._lent(rank, rank, parts[rank])

    def _others(self) -> Iterator[int]:
        size = len(self.halves)
        return (rank % size for rank in range(self.rank + 1, self.rank + size))

    def _lent(self, rank: int, part: int, like: Any) -> Any:
        """What a rank lends of a part this time: as much, and of that type, as another array."""
        return self.halves[rank][self.half, part, : like.nbytes].view(like.dtype)
