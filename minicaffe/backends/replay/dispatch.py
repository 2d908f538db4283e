"""Work on the CPU's threads: functions over slices of a batch, compiled loops, and replays.

All of it is recorded, if this thread records a trace.
"""

from __future__ import annotations

import functools
import os
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from minicaffe.backends.cpu import loops, threads
from minicaffe.backends.cpu.thread_pool import inside
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.backends.replay.command import Row
from minicaffe.backends.replay.numpy_schedule import Script
from minicaffe.backends.thread_state import state

ROW = 5  # words of a command
_performing = threading.Lock()  # held while a thread replays NumPy calls: two would deadlock


def in_slices(
    part: Callable[..., None],
    n: int,
    work: Any = None,
    grain: int = 1,
    worth: int = 1,
    noted: bool = False,
) -> list[Any]:
    """Run part(first, last, work) over slices of 0..n, one per thread; returns the pieces of `work` used.

    There are min(n, share(work)) slices, of at least `grain` units if there is more than one. Waking a
    thread and waiting for Python's lock take longer than a little work: if n is less than `worth`,
    this thread runs all slices. Each has an equal piece of the flat buffer `work`. The slices depend only
    on n, grain and the number of threads, so that sums over them are always computed in the same
    order. A call within a slice runs as one slice, so work is split only once; so does a call
    whose work is on CUDA. The first call that needs more than one thread limits BLAS to one, for good. With
    `noted`, a part changes arrays only through `trace.do`, so it can be replayed if no loops are
    compiled.

    >>> parts = []
    >>> len(in_slices(lambda first, last, work: parts.append(last - first), 5)) == min(threads.count(), 5)
    True
    >>> sum(parts)
    5
    """
    if inside.get():
        if n:
            part(0, n, work)
        return [work] * min(n, 1)
    recorded = noted and trace.calls_are_rows()
    if not (on_cuda(work) or recorded):
        trace.host(getattr(part, "__qualname__", repr(part)))
    slices = min(n, max(1, min(n // grain, threads.share(work))))
    apart = 0 if work is None or not slices else work.size // slices
    size = apart
    if (each := state.longest_piece) is not None:
        apart -= apart % threads.LINE
        size = min(apart, each)
    pieces = [None if work is None else work[i * apart :][:size] for i in range(slices)]
    if slices == 1:
        part(0, n, pieces[0])
    if slices <= 1:
        return pieces
    calls = [
        functools.partial(part, n * i // slices, n * (i + 1) // slices, piece)
        for i, piece in enumerate(pieces)
    ]
    everybody = threads.crew(threads.count())  # from now on BLAS has one thread
    if recorded or n < worth:
        _alone(calls)
        return pieces
    for error in everybody.run(calls):
        if error:
            raise error
    return pieces


def _alone(calls: Sequence[Callable[[], None]]) -> None:
    """Run slices one after the other in this thread."""
    token = inside.set(True)
    try:
        trace.apart(calls)
    finally:
        inside.reset(token)


def run(loop: Callable[..., None], n: int, *args: Any, grain: int = 1) -> int:
    """Run a compiled loop(*args, first, last) over slices of 0..n, one per thread; returns their number.

    A slice has at least `grain` units, if there is more than one. An argument Piece(work) is divided into
    pieces of one size, one per slice, in order. The call is recorded, if this thread records.
    """
    most = 1 if inside.get() else threads.share(None)
    slices = min(n, max(1, min(n // grain, most)))
    if slices:
        walk(Table([trace.row(loop, args, n, slices)]))
    return slices


class Table:
    """Commands as (entry, address of its words, n, slices, whether threads synchronise after it), for
    `CompiledCrew.walk`. It keeps their arguments alive. The same thread runs neighbours of one slice each,
    without synchronisation between them.
    """

    def __init__(self, rows: Sequence[Row]):
        self.rows = tuple([row for row in rows if row.slices])  # a generator would keep more memory
        self.length = len(self.rows)
        self.walkers = max([row.slices for row in self.rows], default=0)
        entry: Any = loops("call_abi", "f")
        words, self._words = array("q"), array("q")
        for i, row in enumerate(self.rows, 1):
            start = len(words)
            kinds = entry.bind(row.args, row.slices, words)
            alone = i < self.length and row.slices == self.rows[i].slices == 1
            call = entry.address(row.loop, kinds), start, row.n, row.slices, not alone
            self._words.extend(call)
        self._words.extend(words)
        self.where = self._words.buffer_info()[0]
        for i in range(1, ROW * self.length, ROW):
            self._words[i] = self.where + 8 * (ROW * self.length + self._words[i])


def walk(table: Table) -> None:
    """Run the commands of a table, with several threads unless this is within a slice."""
    walkers = 1 if inside.get() else min(table.walkers, threads.count())
    crew: Any = threads.crew(threads.count())  # the pool of compiled loops
    crew.walk(table.where, table.length, walkers)


def perform(script: Script) -> None:
    """Run a script's calls, with several threads unless this is within a slice or another thread runs one."""
    most = 1 if inside.get() else min(script.walkers, threads.count())
    if most < script.walkers or most == 1 or not _performing.acquire(blocking=False):
        token = inside.set(True)
        try:
            script.alone()
        finally:
            inside.reset(token)
        return
    try:
        script.run(threads.crew(threads.count()).run)
    finally:
        _performing.release()


def _forget() -> None:
    global _performing
    _performing = threading.Lock()


if hasattr(os, "register_at_fork"):  # a lock held by the parent's threads would stay held
    os.register_at_fork(after_in_child=_forget)
