"""What was recorded, as one thing that can be run again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from minicaffe.replay import dispatch
from minicaffe.replay.command import Calls, Row
from minicaffe.replay.dispatch import Table
from minicaffe.replay.numpy_schedule import Script
from minicaffe.replay.trace import recording


class Program:
    """Rows, all of them compiled loops or all calls, run in their order on the arguments they were recorded
    with, which it keeps alive.
    """

    def __init__(self, rows: Sequence[Row | Calls]):
        calls = [row for row in rows if isinstance(row, Calls)]
        assert len(calls) in (0, len(rows))
        self._made = Script(calls) if calls else Table([r for r in rows if isinstance(r, Row)])
        self.rows = self._made.rows

    def run(self) -> None:
        """Run all rows, each after the one before."""
        if isinstance(self._made, Script):
            dispatch.perform(self._made)
        else:
            dispatch.walk(self._made)

    def times(self, repeats: int = 10) -> list[float]:
        """Seconds that each row takes behind the one before, the least of so many runs: it does run them."""
        alone = [Program([row]) for row in self.rows]
        found = [float("inf")] * len(alone)
        for _ in range(repeats):
            for i, one in enumerate(alone):
                start = time.perf_counter()
                one.run()
                found[i] = min(found[i], time.perf_counter() - start)
        return found


def replayed(call: Callable[[], object]) -> Callable[[], object]:
    """What a call on the CPU does, without the Python that it takes; the call, if it cannot be recorded.

    It is made once.
    """
    with recording() as made:
        call()
    return call if made.hosts else Program(made.rows).run
