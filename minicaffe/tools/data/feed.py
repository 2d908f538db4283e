"""Batches made ahead of time, by whoever makes them, in the order in which they will be asked for."""

import itertools
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data.augment import Recipe
from minicaffe.tools.data.box_recipe import BoxRecipe
from minicaffe.tools.data.reader.base import Reader

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
IN_A_ROW = 100  # damaged entries, after which there is no use in looking further
PATIENCE = 300  # seconds without a single piece, after which there is an error
SLOW = 5  # seconds that a thread may take for a sample before it is left to itself
Damage = tuple[int, str]  # an entry, and what is wrong with it
Place = tuple[int, int]  # of a piece: the number of its batch, and its first row there
Result = tuple[Place, list[Damage] | BaseException]
Key = tuple[int, int]  # the seed and the pass that a batch is of
Choose = Callable[[Key], tuple[np.ndarray, np.ndarray, int]]


def draws(key: int, epochs: np.ndarray, entries: np.ndarray, count: int) -> np.ndarray:
    """(n, count) numbers of [0, 1): row i is a function of (key, epochs[i], entries[i]), column by column.

    Whatever else is in the batch, and however many columns are asked for, a number stays what it is. Key,
    epoch, entry and column are counted into a state one after the other, mixed by SplitMix64's function.
    Source: G. Steele, D. Lea and C. Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014.

    >>> epochs, entries = np.array([0, 0, 1]), np.array([7, 8, 7])
    >>> bool((draws(1, epochs, entries, 3)[1] == draws(1, epochs[1:2], entries[1:2], 5)[0, :3]).all())
    True
    """
    state = _mixed(np.full(len(entries), key & (2**64 - 1), np.uint64))
    for number in (epochs, entries):
        state = _mixed(state + (number.astype(np.uint64) + np.uint64(1)) * _STEP)
    columns = np.arange(1, count + 1, dtype=np.uint64) * _STEP
    return (_mixed(state[:, None] + columns) >> np.uint64(11)) * 2.0**-53


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Each of 64 bits of what comes out depends on each that goes in."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass
class Piece:
    """The rows `first` and on of a batch: of each its entry and epoch; `key` is of the random numbers."""

    batch: int
    slot: int
    first: int
    entries: np.ndarray
    epochs: np.ndarray
    key: int


@dataclass(frozen=True)
class Maker:
    """Makes samples of what a reader returns. With `skip`, those that are damaged are replaced.

    What a sample becomes is a function of (key, epoch, entry). A damaged one is replaced by the next entry
    of the data set that is not, cut and coloured by its own random numbers.
    """

    reader: Reader
    recipe: Recipe | BoxRecipe
    skip: bool

    def make(
        self, piece: Piece, pictures: np.ndarray, labels: np.ndarray, wanted: np.ndarray
    ) -> list[Damage]:
        """Fill the rows of a piece, unless only later batches are `wanted`; returns what was damaged.

        Raises DataError for a damaged entry that is not to be skipped.
        """
        chance = draws(piece.key, piece.epochs, piece.entries, self.recipe.numbers)
        damaged: list[Damage] = []
        for i, entry in enumerate(piece.entries):
            if wanted[0] > piece.batch:
                break
            row = piece.first + i
            labels[row] = self._sample(int(entry), chance[i], pictures[row], damaged)
        return damaged

    def _sample(
        self, entry: int, chance: np.ndarray, out: np.ndarray, damaged: list[Damage]
    ) -> Any:
        """Make a sample; returns its label."""
        for further in range(min(IN_A_ROW, len(self.reader))):
            place = (entry + further) % len(self.reader)
            try:
                picture, label = self.reader[place]
                try:
                    return self.recipe.sample(picture, label, chance, out)
                except DataError as error:
                    raise error.at(self.reader.place(place)) from None
            except DataError as error:
                if not self.skip:
                    raise
                damaged.append((place, str(error)))
        raise DataError(f"{damaged[-1][1]}; and so are the {len(damaged) - 1} before it")


class Crew:
    """Who makes the pieces of batches: `count` threads, or with 0 this one when a piece is taken.

    Pillow lets other threads run while it decodes and scales. `give(member, piece)` hands one of `members` a
    piece, `take()` returns one that is made, by its place, with what was damaged in it or the error that it
    raised. What is made lies in `pictures` (slots, n, c, h, w) and `labels` (slots, n). Of batches before
    `wanted[0]` no more is made. `close()` ends a crew, and so does its own end.
    """

    def __init__(
        self, count: int, maker: Maker, shape: tuple[int, ...], dtype: np.dtype, labels: np.dtype
    ):
        self.pictures, self.labels = np.empty(shape, dtype), np.empty(shape[:2], labels)
        self.wanted = np.zeros(1, np.int64)
        self.members = max(1, count)
        self.asked = [queue.SimpleQueue[Piece | None]() for _ in range(self.members)]
        self.done = queue.SimpleQueue[Result]()
        self.given = maker, self.done, self.pictures, self.labels, self.wanted
        self.threads: list[threading.Thread] = []
        self.close = weakref.finalize(self, _end, self.wanted, self.asked, self.threads)
        for number, asked in enumerate(self.asked[:count]):
            name, args = f"minicaffe_data_{number}", (asked, *self.given)
            thread = threading.Thread(target=_serve, args=args, name=name, daemon=True)
            self.threads.append(thread)
            thread.start()

    def give(self, member: int, piece: Piece) -> None:
        """Hand over a piece."""
        self.asked[member].put(piece)

    def take(self) -> Result:
        """A piece that is made; waits for it. Raises DataError where none comes."""
        if not self.threads:
            _make(self.asked[0].get(), *self.given)
        try:
            return self.done.get(timeout=PATIENCE)
        except queue.Empty:
            problem = "the data set does not answer"
            raise DataError(f"no pictures came for {PATIENCE} s: {problem}") from None


def _serve(asked: queue.SimpleQueue[Piece | None], *work: Any) -> None:
    while (piece := asked.get()) is not None:
        _make(piece, *work)


def _make(piece: Any, maker: Maker, done: queue.SimpleQueue[Result], *arrays: np.ndarray) -> None:
    """Make a piece; puts where it is, and what came of it, into `done`."""
    pictures, labels, wanted = arrays
    place = piece.batch, piece.first
    try:
        done.put((place, maker.make(piece, pictures[piece.slot], labels[piece.slot], wanted)))
    except Exception as error:  # raised again by who waits for the batch
        done.put((place, error))


def _end(wanted: np.ndarray, asked: list[Any], threads: list[threading.Thread]) -> None:
    """Have the threads end after the sample they are at: then nobody reads the files any more."""
    wanted[0] = np.iinfo(np.int64).max
    for one in asked:
        one.put(None)
    for thread in threads:  # one of which may find that nobody wants the net
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(SLOW)


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

    def __init__(self, crew: Crew, choose: Choose):
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
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                self._give_up()
                raise outcome
        slot = batch.number % self.ahead
        damaged = [one for outcome in outcomes if isinstance(outcome, list) for one in outcome]
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
        n, members = len(entries), self.crew.members
        cuts = [n * i // members for i in range(members + 1)]
        with self._closed_where_it_fails():
            batch = Batch((seed, passes), self.number, 0)
            self.waiting.append(batch)
            self.number += 1
            for member, (first, last) in enumerate(itertools.pairwise(cuts)):
                if first < last:
                    where = batch.number, batch.number % self.ahead, first
                    samples = entries[first:last].copy(), epochs[first:last].copy()
                    self.crew.give(member, Piece(*where, *samples, key))
                    batch.missing += 1

    def _await(self, batch: Batch) -> None:
        with self._closed_where_it_fails():
            while batch.missing:
                (number, first), outcome = self.crew.take()
                its = self.waiting[number - self.waiting[0].number]
                its.found[first] = outcome
                its.missing -= 1

    def _give_up(self) -> None:
        """Wait until nothing is under way any more; of what is, no further sample is made."""
        self.crew.wanted[0] = self.number
        for batch in self.waiting:
            self._await(batch)
        self.waiting.clear()
