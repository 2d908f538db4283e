"""Rows as the words that compiled code walks. Needs Numba."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from minicaffe.cpu import loops
from minicaffe.replay.command import Row

ROW = 5  # words of a row


class Table:
    """Rows (entry, address of its words, n, slices, whether to meet after it), for `CompiledCrew.walk`.

    It keeps alive all that the rows point to. Neighbours of one slice each are run by the same thread: no
    meeting lies between them.
    """

    def __init__(self, rows: Sequence[Row]):
        self.rows = tuple([row for row in rows if row.slices])  # of a generator Python keeps more
        self.length = len(self.rows)
        self.walkers = max([row.slices for row in self.rows], default=0)
        entry: Any = loops("call_abi", "f")
        words, self._words = array("q"), array("q")
        for i, row in enumerate(self.rows, 1):
            start = len(words)
            kinds = entry.bind(row.args, row.slices, words)
            alone = i < self.length and row.slices == self.rows[i].slices == 1
            told = entry.address(row.loop, kinds), start, row.n, row.slices, not alone
            self._words.extend(told)
        self._words.extend(words)
        self.where = self._words.buffer_info()[0]
        for i in range(1, ROW * self.length, ROW):
            self._words[i] = self.where + 8 * (ROW * self.length + self._words[i])
