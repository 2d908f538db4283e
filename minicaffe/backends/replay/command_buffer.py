"""The command buffer: recorded commands that can be run again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence

from minicaffe.backends.cpu import threads
from minicaffe.backends.cpu.command import Calls, Command
from minicaffe.backends.cpu.run import Table, walk
from minicaffe.backends.cuda import cublas
from minicaffe.backends.cuda.capture import captured
from minicaffe.backends.device import Device
from minicaffe.backends.replay.numpy_schedule import Script
from minicaffe.backends.replay.trace import recording
from minicaffe.backends.thread_state import inside

_performing = threading.Lock()  # held while a thread replays NumPy calls: two would deadlock


class Program:
    """Commands, all compiled loops or all NumPy calls, run in order on their recorded arguments, which it
    keeps alive.
    """

    def __init__(self, rows: Sequence[Command]):
        calls = [row for row in rows if isinstance(row, Calls)]
        assert len(calls) in (0, len(rows))
        self._made = (
            Script(calls) if calls else Table([row for row in rows if not isinstance(row, Calls)])
        )
        self.rows = self._made.rows

    def run(self) -> None:
        """Run all commands, one after the other."""
        if isinstance(self._made, Script):
            perform(self._made)
        else:
            walk(self._made)

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
    with recording() as made:
        call()
    return call if made.hosts else Program(made.rows).run


def as_training_would(
    call: Callable[[], object], device: Device, calls: int
) -> tuple[Callable[[], object], int]:
    """A function that replays a call, and how many it does: `calls` on CUDA, in one graph, else one."""
    if not device.is_cuda:
        return replayed(call), 1
    if cublas.library() is None:
        return call, 1
    graph = captured(device, lambda: [call() for _ in range(calls)], [cublas.work])
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
