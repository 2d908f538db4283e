"""Who makes the pieces of batches: this thread when they are asked for, or threads.

A crew has `count` members. `give(member, piece)` hands one of them a piece, `take()` returns one that is made,
by its place, with what was damaged in it or the error that it raised. What is made lies in `pictures`
(slots, n, c, h, w) and `labels` (slots, n). Of batches before `wanted[0]` no more is made. `close()` ends
a crew, and so does its own end.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data.making import Damage, Maker, Piece, Place

Result = tuple[Place, list[Damage] | BaseException]
PATIENCE = 300  # seconds without a single piece, after which there is an error
SLOW = 5  # seconds that a thread may take for a sample before it is left to itself


class Here:
    """This thread, which makes a piece when it is taken."""

    count = 1

    def __init__(self, maker: Maker, shape: tuple[int, ...], dtype: np.dtype, labels: np.dtype):
        self.maker, self.pieces = maker, deque[Piece]()
        self.close = weakref.finalize(self, int)  # nothing is held
        self.pictures, self.labels = np.empty(shape, dtype), np.empty(shape[:2], labels)
        self.wanted = np.zeros(1, np.int64)

    def give(self, member: int, piece: Piece) -> None:
        """Hand over a piece."""
        self.pieces.append(piece)

    def take(self) -> Result:
        """A piece that is made."""
        return made(self.maker, self.pieces.popleft(), self.pictures, self.labels, self.wanted)


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
        self.threads: list[threading.Thread] = []
        self.close = weakref.finalize(self, _end, self.wanted, self.asked, self.threads)
        for number, asked in enumerate(self.asked):
            name = f"minicaffe_data_{number}"
            thread = threading.Thread(target=_serve, args=(asked, *given), name=name, daemon=True)
            self.threads.append(thread)
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


def _serve(
    asked: queue.SimpleQueue[Piece | None],
    maker: Maker,
    done: queue.SimpleQueue[Result],
    *there: np.ndarray,
) -> None:
    while (piece := asked.get()) is not None:
        done.put(made(maker, piece, *there))


def _end(
    wanted: np.ndarray,
    asked: list[queue.SimpleQueue[Piece | None]],
    threads: list[threading.Thread],
) -> None:
    """Have the threads end after the sample they are at: then nobody reads the files any more."""
    wanted[0] = np.iinfo(np.int64).max
    for one in asked:
        one.put(None)
    for thread in threads:  # one of which may find that nobody wants the net
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(SLOW)


def made(maker: Maker, piece: Piece, *there: np.ndarray) -> Result:
    """Where a piece is, and what came of it."""
    pictures, labels, wanted = there
    try:
        return piece.place, maker.make(piece, pictures[piece.slot], labels[piece.slot], wanted)
    except Exception as error:  # raised again by who waits for the batch
        return piece.place, error
