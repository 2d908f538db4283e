"""Batches made ahead of time, by whoever makes them, in the order in which they will be asked for."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from minicaffe.tools.data.crew import Here, Threads
from minicaffe.tools.data.making import Damage, Piece

Key = tuple[int, int]  # the seed and the pass that a batch is of
Choose = Callable[[Key], tuple[np.ndarray, np.ndarray, int]]


@dataclass
class Batch:
    """A batch: how many of its pieces are not made yet, and what came of the others."""

    key: Key
    number: int
    missing: int
    found: dict[int, list[Damage] | BaseException] = field(default_factory=dict)


class Feed:
    """The batches of passes, of which up to `ahead` are made, or being made, before they are asked for.

    `choose` returns the entries and epochs of a batch's samples, and the key of its random numbers. A pass
    that does not follow the last one, or another seed, begins anew: what is under way is given up.
    Memory: what `ahead` batches take, once.
    """

    def __init__(self, crew: Here | Threads, choose: Choose):
        self.crew, self.choose = crew, choose
        self.ahead = len(crew.pictures)
        self.waiting: deque[Batch] = deque()
        self.number = 0  # batches begun
        self.owner = os.getpid()
        self.close = crew.close

    def get(self, seed: int, passes: int) -> tuple[np.ndarray, np.ndarray, list[Damage]]:
        """Pictures, labels and what was damaged of a pass, until `done`. Raises what reading it raised."""
        if self.waiting and self.waiting[0].key != (seed, passes):
            self._give_up()
        while len(self.waiting) < self.ahead:
            self._begin(seed, passes + len(self.waiting))
        batch = self.waiting[0]
        self._await(batch)
        outcomes = [batch.found[first] for first in sorted(batch.found)]
        for found in outcomes:
            if isinstance(found, BaseException):
                self._give_up()
                raise found
        slot = batch.number % self.ahead
        damaged = [one for found in outcomes if isinstance(found, list) for one in found]
        return self.crew.pictures[slot], self.crew.labels[slot], damaged

    def done(self) -> None:
        """The batch is taken: its memory serves the next one, which is begun."""
        seed, passes = self.waiting.popleft().key
        self._begin(seed, passes + self.ahead)

    @property
    def usable(self) -> bool:
        """Whether it goes on: not where it was closed, or in a process forked off."""
        return self.close.alive and self.owner == os.getpid()

    @contextmanager
    def _closed_where_it_fails(self) -> Iterator[None]:
        """A worker that is gone, Ctrl-C: nobody knows what is under way, and all of it is given up."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _begin(self, seed: int, passes: int) -> None:
        """Hand out the pieces of a batch, one to each member of the crew."""
        entries, epochs, key = self.choose((seed, passes))
        n, members = len(entries), self.crew.count
        cuts = [n * i // members for i in range(members + 1)]
        with self._closed_where_it_fails():
            batch = Batch((seed, passes), self.number, 0)
            self.waiting.append(batch)
            self.number += 1
            for member, (first, last) in enumerate(itertools.pairwise(cuts)):
                if first < last:
                    given = batch.number, batch.number % self.ahead, first
                    samples = entries[first:last].copy(), epochs[first:last].copy()
                    self.crew.give(member, Piece(*given, *samples, key))
                    batch.missing += 1

    def _await(self, batch: Batch) -> None:
        with self._closed_where_it_fails():
            while batch.missing:
                (number, first), found = self.crew.take()
                its = self.waiting[number - self.waiting[0].number]
                its.found[first] = found
                its.missing -= 1

    def _give_up(self) -> None:
        """Wait until nothing is under way any more; of what is, no further sample is made."""
        self.crew.wanted[0] = self.number
        for batch in self.waiting:
            self._await(batch)
        self.waiting.clear()
