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
        """Seconds that each row takes by itself, the least of so many runs: it does run them."""
        found = []
        for row in self.rows:
            one, least = Program([row]), float("inf")
            for _ in range(repeats):
                start = time.perf_counter()
                one.run()
                least = min(least, time.perf_counter() - start)
            found.append(least)
        return found
