"""Flat parameters: the arrays of an update rule, contiguous, so that an update is few long passes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minicaffe.cpu import aligned
from minicaffe.ops.arrays import fill

ALIGNED = 64  # entries that each parameter begins at a multiple of


class Stretch(NamedTuple):
    """The arrays of one pass, and where in them each pair of multipliers ends.

    They are views into the flat arrays of their type, from entry `start`; `whole` are the flat gradients.
    """

    weight: Any
    diff: Any
    history: list[Any]
    ends: list[tuple[int, tuple[float, float]]]
    whole: Any = None
    start: int = 0


class Laid:
    """The gradients of parameters that learn, one array a type; their values and history as well.

    Those of equal multipliers are neighbours there. What shares a parameter must share it anew. `history`
    holds `memory` arrays of each parameter: the first of each, then the second. With `backward` they lie in
    the order in which a backward pass comes to them, whatever their multipliers.
    """

    def __init__(self, params: Sequence[Any], memory: int, xp: Any, backward: bool = False):
        self.params, self.gradients, self.memory = list(params), [], memory
        self.history = [
            aligned.zeros(xp, p.shape, p.dtype) for _ in range(memory) for p in self.params
        ]
        self.where: dict[int, tuple[list[Any], int]] = {}  # of a parameter: arrays, and its place
        groups = list(dict.fromkeys(map(multipliers, self.params)))
        self.order = list(reversed(range(len(self.params))))
        if not backward:
            self.order.sort(key=lambda i: (groups.index(multipliers(self.params[i])), i))
        learners = [i for i in self.order if self.params[i].learns]
        for dtype in dict.fromkeys(self.params[i].dtype for i in learners):
            mine = [i for i in learners if self.params[i].dtype == dtype]
            sizes = [-(-self.params[i].size // ALIGNED) * ALIGNED for i in mine]
            arrays = [aligned.zeros(xp, sum(sizes), dtype) for _ in range(2 + memory)]
            self.gradients.append(arrays[0])
            for k, i in enumerate(mine):
                self._lie(i, arrays, sum(sizes[:k]), xp)

    def _lie(self, i: int, arrays: list[Any], start: int, xp: Any) -> None:
        """Have parameter i lie in arrays, from `start` on."""
        param, size = self.params[i], self.params[i].size
        diff, data, *history = (
            array[start : start + size].reshape(param.shape) for array in arrays
        )
        param.lie_in(diff, "diff")
        xp.copyto(data, param.data)
        param.lie_in(data, "data")
        self.history[i :: len(self.params)] = history
        self.where[i] = arrays, start

    def beside(self, whole: Any) -> list[Any]:
        """The arrays of the type of which `whole` are the gradients: these, the values, the history."""
        return next(arrays for arrays, _ in self.where.values() if arrays[0] is whole)

    def gradient_parts(self) -> list[tuple[Any, list[tuple[Any, int]]]]:
        """The gradients of each type: one array, and the parameters in it in order, and where each ends."""
        found: list[tuple[Any, list[tuple[Any, int]]]] = [(whole, []) for whole in self.gradients]
        for i in self.order:
            arrays, start = self.where.get(i, (None, 0))
            for whole, parts in found:
                if arrays is not None and arrays[0] is whole:
                    size = -(-self.params[i].size // ALIGNED) * ALIGNED
                    parts.append((self.params[i], start + size))
        return found

    def loose(self) -> list[Any]:
        """The parameters that learn, and whose gradients do not lie here."""
        return self._apart("_diff", 0)

    @property
    def complete(self) -> bool:
        """Whether gradients and values of all that learns lie here."""
        return not (self.loose() or self._apart("data", 1))

    def _apart(self, which: str, array: int) -> list[Any]:
        """The parameters that learn, and of which something does not lie in its array."""
        return [
            param
            for i, param in enumerate(self.params)
            if param.learns
            and not (i in self.where and lies_in(getattr(param, which), self.where[i][0][array]))
        ]

    def clear(self) -> None:
        """Make the gradients that lie here zero, all of a type at once."""
        for gradient in self.gradients:
            fill(gradient, 0)
        for i, (arrays, _) in self.where.items():
            param = self.params[i]
            if param.learns and lies_in(param._diff, arrays[0]):
                param.stale = False

    def stretches(self, apart: bool) -> list[Stretch]:
        """All that learns now; parameters `apart`, or as many at a time as go together.

        What lies between two of them is zeros, and may become what a rule makes of zeros.
        """
        found: list[Stretch] = []
        begin, before, at = 0, -1, -1
        for i in self.order:
            param, (arrays, start) = self.params[i], self.where.get(i, (None, 0))
            at += i in self.where  # one that never learnt lies nowhere between two others
            if not param.learns:
                continue
            own, ends = multipliers(param), []
            if arrays is None or not lies_in(param.data, arrays[1]):
                history = self.history[i :: len(self.params)]
                found.append(Stretch(param.data, param.diff, history, [(param.size, own)]))
                continue
            goes_on = before == at - 1 and found and not apart
            if goes_on and lies_in(found[-1].diff, arrays[0]):
                *ends, (_, last) = found.pop().ends
                ends += [(start - begin, last)] * (last != own)
            else:
                begin = start
            diff, weight, *history = (array[begin : start + param.size] for array in arrays)
            ends.append((start + param.size - begin, own))
            found.append(Stretch(weight, diff, history, ends, arrays[0], begin))
            before = at
        return found


def lay(params: Sequence[Any], xp: Any) -> tuple[Any, list[Any]]:
    """An array with room for parameters of one type, and their values in it, each as an array of its shape."""
    ends = list(itertools.accumulate(-(-param.size // ALIGNED) * ALIGNED for param in params))
    whole, lie = aligned.zeros(xp, ends[-1], params[0].dtype), []
    for param, end, start in zip(params, ends, [0, *ends], strict=False):
        lie.append(whole[start:end][: param.size].reshape(param.shape))
        xp.copyto(lie[-1], param.data)
    return whole, lie


def lies_in(part: Any, whole: Any) -> bool:
    """Whether an array is a view of another, or of what that is a view of: `ops.aligned` gave it."""
    if isinstance(whole, np.ndarray):
        return part.base is whole.base
    return bool(whole.data.ptr <= part.data.ptr < whole.data.ptr + whole.nbytes)


# What multiplies a parameter's rate, and its decay
multipliers = operator.attrgetter("lr_mult", "decay_mult")
