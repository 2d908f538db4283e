"""What each blob, parameter and gradient holds while a net runs: ranges, and what is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from minicaffe.core.layers import Param
from minicaffe.core.net.net import Net
from minicaffe.core.net.step import Step, Value

When = Literal["before_forward", "after_forward", "before_backward", "after_backward"]
Which = Literal["data", "diff"]
Arrays = tuple[Value | Param, str, Which]


@dataclass(frozen=True)
class Seen:
    """An array of a layer at one moment: a blob's or a parameter's, its data or diff.

    `low`, `high` and `mean` are of its finite entries, NaN without any; `bad` counts the others, and `first`
    is where the first of them is.
    """

    step: Step
    when: When
    of: Value | Param
    name: str
    which: Which
    shape: tuple[int, ...]
    low: float
    high: float
    mean: float
    bad: int
    first: tuple[int, ...] = ()
    samples: int = 0  # how many entries of the first axis hold any that is not finite

    @property
    def size(self) -> int:
        """How many entries it has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def range(self) -> str:
        """Its range in words: `conv1 -1..2.5`."""
        span = f"{self.low:.4g}..{self.high:.4g}" if self.bad < self.size else ""
        some = f"{self.bad} of {self.size} not finite" if self.bad else ""
        what = f"{self.name} diff" if self.which == "diff" else self.name
        return " ".join(filter(None, (what, span, f"({some})" if span and some else some)))


class Watching:
    """Within it, calls are made at events of a net's steps; at its end no more."""

    def __init__(self) -> None:
        self.watched: list[tuple[Step, When, Callable[[], None]]] = []

    def watch(self, step: Step, when: When, watcher: Callable[[], None]) -> None:
        """Have a call made."""
        step.watchers.setdefault(when, []).append(watcher)
        self.watched.append((step, when, watcher))

    def __exit__(self, *error: Any) -> None:
        for step, when, watcher in self.watched:
            step.watchers[when].remove(watcher)
            if not any(step.watchers.values()):
                step.watchers.clear()
        self.watched.clear()


class Look(Watching):
    """Within it, every layer that a net runs is looked at; `passes` holds what was seen in each, in order.

    Each array is copied to the host, so that it takes its time. With `check`, where a pass forward has given
    what is not finite, the layers are asked whether they know why (Net.check).

    >>> from minicaffe.core.net import parse
    >>> net = parse("layers: [{name: x, type: Input, shape: {dim: 3}}, {name: log, type: Log}]")
    >>> net = Net(net, device="cpu")
    >>> with Look(net) as look, np.errstate(all="ignore"):
    ...     outputs = net.forward(x=[1.0, 0.0, 2.0])
    >>> number, seen = look.first_bad()
    >>> number, seen.range, seen.first
    (0, 'log 0..0.6931 (1 of 3 not finite)', (1,))
    """

    def __init__(self, net: Net, check: bool = False):
        self.net, self.check, self.passes = net, check, list[list[Seen]]()
        self.begun = 0  # the layer that ran forward last; one before it begins another pass
        super().__init__()

    def __enter__(self) -> Look:
        for i, step in enumerate(self.net.steps):
            for when in get_args(When):
                self.watch(step, when, partial(self._look, i, step, when))
        return self

    def first_bad(self) -> tuple[int, Seen] | None:
        """The pass, and the first array in it, that held what is no finite number."""
        every = ((i, one) for i, seen in enumerate(self.passes) for one in seen)
        return next(((i, one) for i, one in every if one.bad), None)

    def _look(self, number: int, step: Step, when: When) -> None:
        if when == "before_forward":
            if not self.passes or number <= self.begun:
                self.passes.append([])
            self.begun = number
        for of, name, which in arrays_of(step, when):
            host = self.net.device.to_host(getattr(of if isinstance(of, Param) else of.blob, which))
            self.passes[-1].append(describe(host, step, when, of, name, which))
        last = when == "after_forward" and step is self.net.steps[-1]
        if last and self.check and self.first_bad():
            self.net.check()


def describe(
    array: np.ndarray, step: Step, when: When, of: Value | Param, name: str, which: Which
) -> Seen:
    """What an array of the host holds."""
    values = array.astype(np.float64)
    fine = np.isfinite(values)
    finite, bad = values[fine], int(values.size - np.count_nonzero(fine))
    some = finite if finite.size else np.array([np.nan])
    low, high, mean = float(some.min()), float(some.max()), float(some.mean())
    first, samples = tuple[int, ...](), 0
    if bad:
        first = tuple(int(i) for i in np.unravel_index(int(np.argmin(fine)), array.shape))
        samples = int((~fine).reshape(len(array), -1).any(axis=1).sum()) if array.ndim else 1
    return Seen(step, when, of, name, which, array.shape, low, high, mean, bad, first, samples)


def arrays_of(step: Step, when: When) -> Iterator[Arrays]:
    """The arrays of a layer that are looked at, parameters by the names that files know.

    Before a pass forward its parameters, behind it what it has written; before a pass backward the gradient
    that comes to it from above, behind it those that it has computed: of parameters, then of bottoms.
    """
    layer = step.layer
    params = [(param, f"{step.spec.name}__{i}") for i, param in enumerate(layer.params)]
    if when == "before_forward":
        yield from ((param, name, "data") for param, name in params)
    elif when == "after_forward":
        yield from ((value, value.name, "data") for value in step.tops)
    elif layer.runs_backward and when == "before_backward":
        passed = (value for value in step.tops if value.gets_gradient and value.readers)
        yield from ((value, value.name, "diff") for value in passed)
    elif layer.runs_backward:
        yield from ((param, name, "diff") for param, name in params if param.learns)
        both = zip(step.bottoms, layer.needs_gradient, strict=True)
        yield from ((value, value.name, "diff") for value, wanted in both if wanted)
