"""What was recorded, as one thing that can be run again and again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from minicaffe.ops import threads
from minicaffe.ops.record import Row
from minicaffe.ops.table import Table


class Program:
    """Rows, run in their order on the arguments they were recorded with, which it keeps alive."""

    def __init__(self, rows: Sequence[Row]):
        self._table = Table(rows)
        self.rows = self._table.rows

    def run(self) -> None:
        """Run all rows, each after the one before."""
        threads.walk(self._table)

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
