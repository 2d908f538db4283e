"""The command buffer: recorded commands that can be run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from minicaffe.backends.replay import dispatch
from minicaffe.backends.replay.command import Calls, Row
from minicaffe.backends.replay.dispatch import Table
from minicaffe.backends.replay.numpy_schedule import Script
from minicaffe.backends.replay.trace import recording


class Program:
    """Commands, all compiled loops or all NumPy calls, run in order on their recorded arguments, which it
    keeps alive.
    """

    def __init__(self, rows: Sequence[Row | Calls]):
        calls = [row for row in rows if isinstance(row, Calls)]
        assert len(calls) in (0, len(rows))
        self._made = Script(calls) if calls else Table([r for r in rows if isinstance(r, Row)])
        self.rows = self._made.rows

    def run(self) -> None:
        """Run all commands, one after the other."""
        if isinstance(self._made, Script):
            dispatch.perform(self._made)
        else:
            dispatch.walk(self._made)

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
    """Record a call on the CPU; returns a function that replays it, or the call if it cannot be recorded.

    The call runs once.
    """
    with recording() as made:
        call()
    return call if made.hosts else Program(made.rows).run
