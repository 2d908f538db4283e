"""The order in which a data set is visited: the entries of each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.core.layers.context import Share
from minicaffe.core.ops.random import random_stream

ALL = Share()


class Order:
    """Which entries each batch holds: all, repeated without end, `shuffle`d by (seed, epoch) or in order."""

    def __init__(
        self, name: str, count: int, shuffle: Callable[..., Any] | None, rand_skip: int = 0
    ):
        self.name, self.shuffle, self.rand_skip = name, shuffle, rand_skip
        self.order = np.arange(count)
        self.begin = 0  # entries before the first pass
        self.shuffled: tuple[int, int] | None = None  # the (seed, epoch) of `order`

    def first(self, seed: int, passes: int, n: int) -> int:
        """How many entries are visited before a pass whose batches have n entries."""
        skipped = 0
        if self.rand_skip:
            skipped = int(random_stream(seed, "skip", self.name).integers(self.rand_skip))
        return self.begin + passes * n + skipped

    def take(
        self, seed: int, passes: int, index: np.ndarray, epochs: np.ndarray, share: Share = ALL
    ) -> None:
        """Write the entries of a pass's batch into `index`, and their epochs into `epochs`.

        With a `share` of the batch, those of this rank.
        """
        n, filled = len(index), 0
        first = self.first(seed, passes, share.of_whole(n)) + share.before(n)
        while filled < n:
            epoch, entry = divmod(first + filled, len(self.order))
            if self.shuffle is not None and (seed, epoch) != self.shuffled:
                self.shuffled = None  # if an interrupt comes here, the next call starts again
                self.order.sort()
                self.shuffle(random_stream(seed, "order", self.name, epoch), self.order)
                self.shuffled = (seed, epoch)
            part = self.order[entry : entry + n - filled]
            index[filled : filled + len(part)] = part
            epochs[filled : filled + len(part)] = epoch
            filled += len(part)
