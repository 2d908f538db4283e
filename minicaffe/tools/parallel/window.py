"""Sums in memory that the ranks of one machine share, a window of MPI: read where they lie, no messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from minicaffe.core.communicator import Work

try:
    from mpi4py import MPI
except RuntimeError as error:  # it finds no library of MPI
    raise ImportError(str(error)) from None

LENT = 2**21  # bytes that a rank lends at a time, so that they stay in the caches,
TOGETHER = 2**24  # and all ranks of a machine
KNOWN = 4  # pieces of an array of which it is known beforehand what lies where
Make = Callable[[list[Any]], Work]


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

    def adding(self, array: Any, bounds: Sequence[int], share: bool = False) -> Work:
        """What makes the part of this rank that of the sum; and `share` it, so that the array is the sum."""
        works = [self._adds] + [self._shares] * share
        return self._in_pieces(array, bounds, works)

    def sharing(self, array: Any, bounds: Sequence[int]) -> Work:
        """What has each part from the rank whose it is."""
        return self._in_pieces(array, bounds, [self._shares])

    def _in_pieces(self, array: Any, bounds: Sequence[int], works: Sequence[Make]) -> Work:
        """Works on as much of the part of each rank as is lent at a time, piece by piece."""
        parts, count = [array[a:b] for a, b in pairwise(bounds)], self.each // array.itemsize
        pieces = [
            [part[start : start + count] for part in parts]
            for start in range(0, max(part.size for part in parts), count)
        ]
        made = [work(piece) for piece in pieces[:KNOWN] for work in works]
        late = [partial(_make, work, piece) for piece in pieces[KNOWN:] for work in works]
        return partial(_do, [*made, *late])

    def _adds(self, parts: list[Any]) -> Work:
        mine, others = parts[self.rank], self._others()
        lent = self._lent([(self.rank, rank, parts[rank]) for rank in others])
        read = self._lent([(rank, self.rank, mine) for rank in others])

        def add() -> None:
            self.half = half = 1 - self.half
            for there, part in lent[half]:
                there[...] = part
            self.window.Fence()
            with np.errstate(all="ignore"):  # MPI's sums say nothing either
                for there, _ in read[half]:
                    np.add(mine, there, out=mine)

        return add

    def _shares(self, parts: list[Any]) -> Work:
        mine = parts[self.rank]
        lent = self._lent([(self.rank, self.rank, mine)])
        read = self._lent([(rank, rank, parts[rank]) for rank in self._others()])

        def share() -> None:
            self.half = half = 1 - self.half
            for there, part in lent[half]:
                there[...] = part
            self.window.Fence()
            for there, part in read[half]:
                part[...] = there

        return share

    def _others(self) -> list[int]:
        size = len(self.halves)
        return [rank % size for rank in range(self.rank + 1, self.rank + size)]

    def _lent(self, places: Sequence[tuple[int, int, Any]]) -> list[list[tuple[Any, Any]]]:
        """By half: what a rank lends of a part, each beside the array it is as long as, and of whose type."""
        return [
            [
                (self.halves[rank][half, part, : like.nbytes].view(like.dtype), like)
                for rank, part, like in places
            ]
            for half in (0, 1)
        ]


def _make(work: Make, parts: list[Any]) -> None:
    work(parts)()


def _do(works: Sequence[Work]) -> None:
    for work in works:
        work()
