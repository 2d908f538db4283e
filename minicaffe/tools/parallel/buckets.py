"""Gradients that lie together, cut into what is worth a message, and sent in fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from minicaffe.core.net.step import Step
from minicaffe.core.ops import arrays
from minicaffe.core.solver.flat_parameters import Laid, lies_in
from minicaffe.core.solver.together import Parts

BUCKET = 2**20  # bytes that are worth a message of their own while a backward pass goes on
BEHIND = 2**22  # and behind it: longer ones leave the caches


class Bucket(NamedTuple):
    """Gradients that are summed in one message: neighbours in memory, and the parameters that lie there."""

    array: Any
    whole: Any  # it lies there,
    start: int  # from there on
    params: list[tuple[Any, Any]]  # each with where it lies
    step: int  # the number of the layer behind whose backward pass they are complete

    def clear(self, parts: Parts) -> None:
        """Make zero what is to be before it is summed: nothing lies there, or no layer has written it."""
        found = []
        for param, lies in self.params:
            here = param.learns and lies_in(param._diff, self.whole)
            if not here or param.stale:
                found.append(lies)
            if here:
                param.stale = False
        clear(parts, found)


def clear(parts: Parts, found: Sequence[Any]) -> None:
    """Make arrays zero."""
    for array in found:
        parts.do("zeros", partial(arrays.fill, array, 0))


def buckets(steps: Sequence[Step], laid: Laid, late: bool) -> list[Bucket]:
    """The gradients that lie together, cut where so many bytes are full, in the order in which they begin.

    Those that are summed `late`, behind the backward passes, begin with `finish`.
    """
    # Of a parameter: the first layer that has it, the last to run backward
    first: dict[int, int] = {}
    for number, step in enumerate(steps):
        for param in step.layer.params:
            first.setdefault(id(param.owner), number)
    found: list[Bucket] = []
    last, full = len(steps), BEHIND if late else BUCKET
    for whole, parts in laid.gradient_parts():
        mine: list[tuple[Any, Any]] = []
        start = before = 0
        for i, (param, end) in enumerate(parts):
            mine.append((param, whole[before:end]))
            before = end
            if (end - start) * whole.itemsize >= full or i == len(parts) - 1:
                last = min(last, -1 if late else min(first[id(one)] for one, _ in mine))
                found.append(Bucket(whole[start:end], whole, start, mine, last))
                mine, start = [], end
    return found


class Rounded:
    """Gradients summed in fewer bits; what rounding loses of this rank's is added to its next ones.

    Source: F. Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014 (error feedback).
    """

    def __init__(self, array: Any, dtype: Any, xp: Any):
        self.array, self.lost = array, xp.zeros(array.shape, array.dtype)
        self.sent = xp.empty(array.shape, dtype)

    def round(self) -> None:
        """Have what is to be summed be in `sent`."""
        arrays.add(self.array, self.lost)
        arrays.copy(self.lost, self.sent)
        arrays.minus(self.lost, self.sent, self.lost)

    def take(self) -> None:
        """The gradients are the sum."""
        arrays.copy(self.sent, self.array)
