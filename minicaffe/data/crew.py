"""Who makes the pieces of batches: this thread when they are asked for, threads, or processes.

A crew has `count` members. `give(member, piece)` hands one of them a piece, `take()` gives one that is made,
by its place, with what was damaged in it or the error that it raised. What is made lies in `pictures`
(slots, n, c, h, w) and `labels` (slots, n). Of batches before `wanted[0]` no more is made.
"""

from __future__ import annotations

import queue
import threading
from collections import deque

import numpy as np

from minicaffe.data.making import Damage, Maker, Piece, Place
from minicaffe.errors import DataError

Result = tuple[Place, list[Damage] | BaseException]
PATIENCE = 300  # seconds without a single piece, after which there is an error
SLOW = 5  # seconds that a thread may take for a sample before it is left to itself


class Here:
    """This thread, which makes a piece when it is taken."""

    count = 1

    def __init__(self, maker: Maker, shape: tuple[int, ...], dtype: np.dtype, labels: np.dtype):
        self.maker, self.pieces = maker, deque[Piece]()
        self.pictures, self.labels = np.empty(shape, dtype), np.empty(shape[:2], labels)
        self.wanted = np.zeros(1, np.int64)

    def give(self, member: int, piece: Piece) -> None:
        """Hand over a piece."""
        self.pieces.append(piece)

    def take(self) -> Result:
        """A piece that is made."""
        return made(self.maker, self.pieces.popleft(), self.pictures, self.labels, self.wanted)

    def close(self) -> None:
        """Nothing is held."""


class Threads:
    """Threads of this process: Pillow lets the others run while it decodes and scales."""

    def __init__(
        self, count: int, maker: Maker, shape: tuple[int, ...], dtype: np.dtype, labels: np.dtype
    ):
        self.count = count
        self.pictures, self.labels = np.empty(shape, dtype), np.empty(shape[:2], labels)
        self.wanted = np.zeros(1, np.int64)
        self.asked = [queue.SimpleQueue[Piece | None]() for _ in range(count)]
        self.done = queue.SimpleQueue[Result]()
        given = (maker, self.done, self.pictures, self.labels, self.wanted)
        self.threads = [
            threading.Thread(
                target=_serve, args=(asked, *given), name=f"minicaffe_data_{number}", daemon=True
            )
            for number, asked in enumerate(self.asked)
        ]
        for thread in self.threads:
            thread.start()

    def give(self, member: int, piece: Piece) -> None:
        """Hand over a piece."""
        self.asked[member].put(piece)

    def take(self) -> Result:
        """A piece that is made; waits for it. Raises DataError where none comes."""
        try:
            return self.done.get(timeout=PATIENCE)
        except queue.Empty:
            raise DataError(
                f"no pictures came for {PATIENCE} s: the data set does not answer"
            ) from None

    def close(self) -> None:
        """Have the threads end after the sample they are at: then nobody reads the files any more."""
        self.wanted[0] = np.iinfo(np.int64).max
        for asked in self.asked:
            asked.put(None)
        for thread in self.threads:
            if thread is not threading.current_thread():  # which may find that nobody wants the net
                thread.join(SLOW)


def _serve(
    asked: queue.SimpleQueue[Piece | None],
    maker: Maker,
    done: queue.SimpleQueue[Result],
    *there: np.ndarray,
) -> None:
    while (piece := asked.get()) is not None:
        done.put(made(maker, piece, *there))


def made(maker: Maker, piece: Piece, *there: np.ndarray) -> Result:
    """Where a piece is, and what came of it."""
    pictures, labels, wanted = there
    try:
        return piece.place, maker.make(piece, pictures[piece.slot], labels[piece.slot], wanted)
    except Exception as error:  # raised again by who waits for the batch
        return piece.place, error
