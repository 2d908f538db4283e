"""Flat parameters: the arrays of an update rule are contiguous, so that an update is a few long passes."""

import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minicaffe.backends import aligned
from minicaffe.core.ops.arrays import fill

ALIGNED = 64  # entries: each parameter begins at a multiple


class Stretch(NamedTuple):
    """The arrays of one pass, views into the flat ones, and where in them each pair of multipliers ends."""

    weight: Any
    diff: Any
    history: list[Any]
    ends: list[tuple[int, tuple[float, float]]]
    whole: Any = None  # the flat gradients
    start: int = 0  # the entry of `whole` at which the views begin


class Laid:
    """Flat arrays of learning parameters: one per type for the gradients, one for values, some for history.

    Those of equal multipliers are neighbours. Sharing of a parameter must be renewed. `history` holds `memory`
    arrays of each: the first of each, then the second. With `backward` they lie in a backward pass's order.
    """

    def __init__(self, params: Sequence[Any], memory: int, xp: Any, backward: bool = False):
        self.params, self.gradients, self.memory = list(params), [], memory
        self.apart = False  # whether each parameter's update needs all of it
        self.history = [
            aligned.zeros(xp, p.shape, p.dtype) for _ in range(memory) for p in self.params
        ]
        self.where: dict[int, tuple[list[Any], int]] = {}  # its flat arrays, and its start in them
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
            for i, start in zip(mine, itertools.accumulate(sizes, initial=0), strict=False):
                param = self.params[i]
                parts = (array[start : start + param.size] for array in arrays)
                diff, data, *history = (part.reshape(param.shape) for part in parts)
                param.lie_in(diff, "diff")
                xp.copyto(data, param.data)
                param.lie_in(data, "data")
                self.history[i :: len(self.params)] = history
                self.where[i] = arrays, start

    def beside(self, whole: Any) -> list[Any]:
        """The flat arrays whose gradients are `whole`: gradients, values, history."""
        return next(arrays for arrays, _ in self.where.values() if arrays[0] is whole)

    def gradient_parts(self) -> list[tuple[Any, list[tuple[Any, int]]]]:
        """The gradients of each type: the flat array, and its parameters in order with the end of each."""
        flat: list[tuple[Any, list[tuple[Any, int]]]] = [(whole, []) for whole in self.gradients]
        for i in self.order:
            arrays, start = self.where.get(i, (None, 0))
            for whole, parts in flat:
                if arrays is not None and arrays[0] is whole:
                    size = -(-self.params[i].size // ALIGNED) * ALIGNED
                    parts.append((self.params[i], start + size))
        return flat

    def loose(self) -> list[Any]:
        """The learning parameters whose gradients are not in the flat arrays."""
        return self._apart("_diff", 0)

    @property
    def complete(self) -> bool:
        """Whether the flat arrays, of which ranks may share the update, hold all learning parameters."""
        return not (self.apart or self.loose() or self._apart("data", 1))

    def _apart(self, which: str, array: int) -> list[Any]:
        """The learning parameters whose attribute `which` is not in its flat array."""
        return [
            param
            for i, param in enumerate(self.params)
            if param.learns
            and not (i in self.where and lies_in(getattr(param, which), self.where[i][0][array]))
        ]

    def clear(self) -> None:
        """Set the flat gradients to zero, all of a type at once."""
        for gradient in self.gradients:
            fill(gradient, 0)
        for i, (arrays, _) in self.where.items():
            param = self.params[i]
            if param.learns and lies_in(param._diff, arrays[0]):
                param.stale = False

    def stretches(self, apart: bool) -> list[Stretch]:
        """The learning parameters' arrays, each `apart` or in few stretches; zeros between may be changed."""
        passes: list[Stretch] = []
        begin, before, at = 0, -1, -1
        for i in self.order:
            param, (arrays, start) = self.params[i], self.where.get(i, (None, 0))
            at += i in self.where  # one that never learnt is in no flat array
            if not param.learns:
                continue
            own, ends = multipliers(param), []
            if arrays is None or not lies_in(param.data, arrays[1]):
                history = self.history[i :: len(self.params)]
                passes.append(Stretch(param.data, param.diff, history, [(param.size, own)]))
                continue
            if before == at - 1 and passes and not apart and lies_in(passes[-1].diff, arrays[0]):
                *ends, (_, last) = passes.pop().ends
                ends += [(start - begin, last)] * (last != own)
            else:
                begin = start
            diff, weight, *history = (array[begin : start + param.size] for array in arrays)
            ends.append((start + param.size - begin, own))
            passes.append(Stretch(weight, diff, history, ends, arrays[0], begin))
            before = at
        return passes


def lay(params: Sequence[Any], xp: Any) -> tuple[Any, list[Any]]:
    """A flat copy of the values of parameters of one type, and a view of each parameter's shape into it."""
    ends = list(itertools.accumulate(-(-param.size // ALIGNED) * ALIGNED for param in params))
    whole, lie = aligned.zeros(xp, ends[-1], params[0].dtype), []
    for param, end, start in zip(params, ends, [0, *ends], strict=False):
        lie.append(whole[start:end][: param.size].reshape(param.shape))
        xp.copyto(lie[-1], param.data)
    return whole, lie


def lies_in(part: Any, whole: Any) -> bool:
    """Whether a part lies in the memory of a whole array."""
    if isinstance(whole, np.ndarray):
        return np.may_share_memory(part, whole)
    return bool(whole.data.ptr <= part.data.ptr < whole.data.ptr + whole.nbytes)


# The factors of a parameter's learning rate and weight decay
multipliers = operator.attrgetter("lr_mult", "decay_mult")
