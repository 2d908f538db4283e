"""Traces, and the command buffer: recorded commands that can be run again.

A trace has the commands that ops run on the CPU, and the kernels that they launch on CUDA. On the CPU a
command is a compiled loop, which `cpu.threads.run` runs, or NumPy calls: see cpu.slices.by_numpy. These have a
schedule for threads, which synchronise only if one needs another's results.

with recording() as trace:
    layer.forward()
trace.rows      # the commands that ran on the CPU, in order
trace.launches  # the kernels of this project that were launched, with their arguments
trace.hosts     # why some of it cannot be replayed; empty if all of it can
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from minicaffe.backends import cpu
from minicaffe.backends.cpu import threads
from minicaffe.backends.cpu.command import Apart, Calls, Command, name_of, place, touched, written
from minicaffe.backends.cpu.threads import Table, walk
from minicaffe.backends.cuda import cublas, fusion
from minicaffe.backends.cuda.capture import captured
from minicaffe.backends.device import Device
from minicaffe.backends.launch_listener import Asked, heard
from minicaffe.backends.thread_state import inside, state


@dataclass
class Recording:
    """What one thread ran: commands, and reasons why other work cannot be replayed."""

    rows: list[Command] = field(default_factory=list)
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    part: list[partial[Any]] | None = None  # the calls of the current command, if there are any

    def called(self, call: partial[Any]) -> None:
        """Record a NumPy call, which is a command if no loops are compiled."""
        assert "out" in call.keywords or not isinstance(call.func, np.ufunc), call
        if cpu.available():
            self.host(f"{name_of(call.func)} by NumPy")
            return
        if self.part is None:
            self.part = []
            self.rows.append(Calls([self.part]))
        self.part.append(call)

    def ran(self, row: Command) -> None:
        """Record a command; later calls belong to a new one."""
        self.rows.append(row)
        self.part = None

    def launched(self, asked: Asked) -> bool:
        """Record a kernel launch; two are equal if they do the same."""
        self.launches.append((asked.name, asked.types, asked.grid, place(asked.args)))
        return True

    def apart(self, slices: Sequence[Callable[[], None]]) -> None:
        """Run slices one after the other, and record what they do as one command."""
        calls: list[list[partial[Any]]] = [[] for _ in slices]
        before, loops = self.rows, list[list[Any]]()
        for run, self.part in zip(slices, calls, strict=True):
            self.rows = []
            run()
            loops.append(self.rows)
        self.rows = before
        if sum(map(len, loops)) > 2**15:  # each of some 600 bytes
            self.host("more loops than it pays to keep")
        self.ran(Apart(loops) if cpu.available() else Calls(calls))

    def host(self, why: str) -> None:
        """Record why the work cannot be replayed."""
        self.hosts.append(why)


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Record what this thread runs, until the end of the block; an outer recording does not see it."""
    before, trace = state.trace, Recording()
    state.trace = trace
    try:
        with heard(trace):
            yield trace
    finally:
        state.trace = before


RUNS = 8  # measurements with one and with several threads, before the faster is chosen
WORTH = 0.9  # several threads must take less than this part of one thread's time, which varies
Span = tuple[int, int]  # the first address, and the one after the last
Call = Callable[[], None]
Together = Callable[[Sequence[Call], Call], Sequence[BaseException | None]]


class Script:
    """NumPy commands, slice t of each for thread t. It keeps their arguments alive.

    Threads meet between stages only: in a stage no call reads or writes what another thread writes. A call is
    in the earliest possible stage: it may run before calls recorded earlier, but calls that use the same
    memory keep their order. A thread's work for the others comes first if possible, before they are woken.
    """

    def __init__(self, rows: Sequence[Calls]):
        self.rows = tuple(rows)
        self.walkers = max([1, *(row.slices for row in rows)])
        self.stages: list[list[list[partial[Any]]]] = [[[] for _ in range(self.walkers)]]
        self.seconds: tuple[list[float], list[float]] = ([], [])  # with one thread, with all
        seen = [[Touched()] * self.walkers]  # memory used in each stage, by thread
        by_any = [Touched()]  # and by all threads
        for parts in itertools.chain.from_iterable(map(units, self.rows)):
            here, at = [Touched.of(part) for part in parts], int(len(parts) > 1)
            for t, mine in enumerate(here):
                met = (i for i in reversed(range(at, len(seen))) if mine.collides(by_any[i]))
                if (last := next(met, None)) is not None:
                    at = last + any(map(mine.collides, seen[last][:t] + seen[last][t + 1 :]))
            if at == len(seen):
                self.stages.append([[] for _ in range(self.walkers)])
                seen.append([Touched()] * self.walkers)
                by_any.append(Touched())
            for t, part in enumerate(parts):
                self.stages[at][t] += part
                seen[at][t] += here[t]
            by_any[at] = sum(here, by_any[at])

    def run(self, run: Together) -> None:
        """Run all calls by one thread or all, whichever was faster: synchronising takes as long as several."""
        alone, together = self.seconds
        known = len(together) == RUNS
        shared = min(together) < WORTH * min(alone) if known else len(together) < len(alone)
        start = time.perf_counter()
        if shared:
            self.together(run)
        else:
            self.alone()
        if not known:
            self.seconds[shared].append(time.perf_counter() - start)

    def alone(self) -> None:
        """Run all calls in this thread."""
        with np.errstate(all="ignore"):
            for call in itertools.chain.from_iterable(itertools.chain.from_iterable(self.stages)):
                call()

    def together(self, run: Together) -> None:
        """Run all calls, one thread a slice, by run(functions, what to call if one of them fails)."""
        with np.errstate(all="ignore"):
            for call in self.stages[0][0]:
                call()
        meeting = threading.Barrier(self.walkers)
        walks = [partial(self._walk, t, meeting) for t in range(self.walkers)]
        raised = [error for error in run(walks, meeting.abort) if error is not None]
        raised.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
        if raised:  # what broke the barrier first
            raise raised[0]

    def _walk(self, t: int, meeting: threading.Barrier) -> None:
        try:
            with np.errstate(all="ignore"):
                for i, stage in enumerate(self.stages[1:]):
                    if i:
                        meeting.wait()
                    for call in stage[t]:
                        call()
        except BaseException:  # so that the others do not wait for this one
            meeting.abort()
            raise


def units(row: Calls) -> list[list[list[partial[Any]]]]:
    """The parts of a command that are scheduled together: all slices, or, with one slice, each call."""
    return [row.parts] if row.slices > 1 else [[[call]] for part in row.parts for call in part]


class Touched:
    """The memory that some calls read and write: sorted spans that do not overlap."""

    def __init__(self, reads: Iterable[Span] = (), writes: Iterable[Span] = ()):
        self.reads, self.writes = merged(reads), merged(writes)

    @classmethod
    def of(cls, calls: Iterable[partial[Any]]) -> Touched:
        """The memory of these calls; memory that they write counts as read too."""
        calls = list(calls)
        reads, writes = (
            {byte_bounds(array) for call in calls for array in arrays(call)}
            for arrays in (touched, written)
        )
        return cls(reads, writes)

    def __add__(self, other: Touched) -> Touched:
        return Touched(self.reads + other.reads, self.writes + other.writes)

    def collides(self, other: Touched) -> bool:
        """Whether one writes what the other reads or writes."""
        return meet(self.reads, other.writes) or meet(self.writes, other.reads)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans; those that overlap or touch are merged.

    >>> merged([(5, 8), (0, 2), (2, 3), (7, 9)])
    [(0, 3), (5, 9)]
    """
    apart: list[Span] = []
    for start, end in sorted(spans):
        if apart and start <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(apart[-1][1], end)
        elif end > start:
            apart.append((start, end))
    return apart


def meet(some: Sequence[Span], others: Sequence[Span]) -> bool:
    """Whether any span of one sorted list shares an address with any of the other.

    >>> meet([(0, 3), (8, 9)], [(3, 8)]), meet([(0, 3), (8, 9)], [(4, 5), (6, 10)])
    (False, True)
    """
    i = j = 0
    while i < len(some) and j < len(others):
        if some[i][1] <= others[j][0]:
            i += 1
        elif others[j][1] <= some[i][0]:
            j += 1
        else:
            return True
    return False


_performing = threading.Lock()  # held while a thread replays NumPy calls: two would deadlock


class Program:
    """Commands, all compiled loops or all NumPy calls, whose arguments it keeps alive; `run` runs them."""

    def __init__(self, rows: Sequence[Command]):
        calls = [row for row in rows if isinstance(row, Calls)]
        assert len(calls) in (0, len(rows))
        others = [row for row in rows if not isinstance(row, Calls)]
        program: Any = Script(calls) if calls else Table(others)
        self.rows = program.rows
        self.run: Callable[[], None] = partial(perform if calls else walk, program)

    def times(self, repeats: int = 10) -> list[float]:
        """Run all commands `repeats` times; returns the least seconds of each."""
        alone = [Program([row]) for row in self.rows]
        seconds = [float("inf")] * len(alone)
        for _ in range(repeats):
            for i, one in enumerate(alone):
                start = time.perf_counter()
                one.run()
                seconds[i] = min(seconds[i], time.perf_counter() - start)
        return seconds


def replayed(call: Callable[[], object]) -> Callable[[], object]:
    """Record a call, which runs, on the CPU; returns a function that replays it, or the call if none can."""
    with recording() as trace:
        call()
    return call if trace.hosts else Program(trace.rows).run


def as_training_would(
    call: Callable[[], object], device: Device, calls: int
) -> tuple[Callable[[], object], int]:
    """A function that replays a call, and how many it does: `calls` on CUDA, in one graph, else one."""
    if not device.is_cuda:
        return replayed(call), 1
    if cublas.library() is None:
        return call, 1

    def work() -> None:
        with fusion.joined():
            for _ in range(calls):
                call()

    graph = captured(device, work, [cublas.work])
    graph()  # the first launch transfers it to the device
    return graph, calls


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
