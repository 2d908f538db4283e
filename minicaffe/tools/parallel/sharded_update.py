"""An update that the ranks of one machine share: each takes the step of a part of all parameters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from minicaffe.core.communicator import Communicator, Work
from minicaffe.core.ops.nan_guard import BAD
from minicaffe.core.solver.flat_parameters import Laid, Stretch
from minicaffe.core.solver.nan_guard import Watch

MEASURED = 3  # sums: of squares, of gradients that are not finite, of losses


class Part(NamedTuple):
    """Entries `first` to `last` of the arrays of a type, of which `whole` are the gradients."""

    whole: Any
    first: int
    last: int

    @property
    def diff(self) -> Any:
        """The gradients."""
        return self.whole[self.first : self.last]


class Shared:
    """What a rank has of an update: of each bucket of gradients a part, which alone is summed.

    It steps there, and hands out the weights that come of it: all ranks have the same, to the bit. What the
    rule remembers of the other parts the other ranks know, until it is gathered.
    Source: S. Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
    SC 2020, the first of its stages; memory is not saved here.
    """

    def __init__(self, communicator: Communicator, laid: Laid, buckets: Sequence[Any]):
        self.communicator, self.laid, self.buckets = communicator, laid, buckets
        rank, self.parts = communicator.rank, []
        for bucket in buckets:
            first, last = communicator.bounds(bucket.array.size)[rank : rank + 2]
            self.parts.append(Part(bucket.whole, bucket.start + first, bucket.start + last))

    @property
    def gradients(self) -> list[Any]:
        """Those of this rank, summed."""
        return [part.diff for part in self.parts]

    def measure(self, watch: Watch) -> None:
        """Find how large the gradient is here, and whether it is finite."""
        watch.measure(self.gradients)

    def tell(self, watch: Watch, sums: memoryview) -> None:
        """Say what was measured here, and the loss, for all ranks to add up: MEASURED numbers."""
        seen = watch.at_hand
        assert seen is not None  # ranks of GPUs share no update
        sums[0], sums[1], sums[2] = seen.squares[0], seen.flags[BAD], seen.loss[0]

    def hear(self, watch: Watch, sums: memoryview) -> None:
        """Make of it what that of all parts is, and of the loss the sum: one too large is not finite."""
        seen = watch.at_hand
        assert seen is not None
        seen.squares[0], seen.flags[BAD], seen.loss[0] = sums[0], sums[1] > 0, sums[2]

    def stretches(self, apart: bool) -> list[Stretch]:
        """What is to be stepped here, as `Laid.stretches` has it."""
        pairs = [(one, part) for one in self.laid.stretches(apart) for part in self.parts]
        return [found for one, part in pairs if (found := cut(one, part)) is not None]

    @functools.cached_property
    def gathers(self) -> list[Work]:
        """What has the weights of all parts from the ranks that stepped there."""
        return self._gathers(1)

    def gather_history(self) -> None:
        """Have what the rule remembers of all parts, too."""
        for i in range(2, 2 + self.laid.memory):
            for work in self._gathers(i):
                work()

    def _gathers(self, which: int) -> list[Work]:
        found = []
        for bucket in self.buckets:
            array = self.laid.beside(bucket.whole)[which]
            part = array[bucket.start : bucket.start + bucket.array.size]
            found.append(self.communicator.allgather_init(part))
        return found


def cut(stretch: Stretch, part: Part) -> Stretch | None:
    """What lies of a stretch in a part, if anything does.

    >>> import numpy as np
    >>> whole, weight = np.arange(9.0), np.arange(9)
    >>> stretch = Stretch(weight[2:], whole[2:], [], [(3, (1, 1)), (7, (2, 0))], whole, 2)
    >>> found = cut(stretch, Part(whole, 4, 7))
    >>> found.weight, found.diff, found.ends
    (array([4, 5, 6]), array([4., 5., 6.]), [(1, (1, 1)), (3, (2, 0))])
    """
    first = max(part.first, stretch.start)
    last = min(part.last, stretch.start + stretch.diff.size)
    if stretch.whole is not part.whole or first >= last:
        return None
    here = slice(first - stretch.start, last - stretch.start)
    starts = [0, *(end for end, _ in stretch.ends)]
    ends = [
        (min(end, here.stop) - here.start, group)
        for (end, group), start in zip(stretch.ends, starts, strict=False)
        if start < here.stop and end > here.start
    ]
    history = [array[here] for array in stretch.history]
    return Stretch(stretch.weight[here], stretch.diff[here], history, ends, part.whole, first)
