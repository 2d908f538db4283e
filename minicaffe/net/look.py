"""What each blob, parameter and gradient holds while a net runs: ranges, and what is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minicaffe.net.net import Net
from minicaffe.net.step import Step, Value

When = Literal["before_forward", "after_forward", "before_backward", "after_backward"]


@dataclass(frozen=True)
class Seen:
    """An array of a layer at one moment: a blob's or a parameter's, its data or diff.

    `low`, `high` and `mean` are of its finite entries, NaN without any; `bad` counts the others, and `first`
    is where the first of them is.
    """

    step: Step
    when: When
    name: str
    which: Literal["data", "diff"]
    is_param: bool
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


class Look:
    """Within it, every layer that a net runs is looked at; what was seen stands in `seen`, in order.

    Each array is copied to the host, so that it takes its time. With `check`, where a pass forward has given
    what is not finite, the layers are asked whether they know why (Net.check).

    >>> from minicaffe.net import parse
    >>> net = Net(parse('''
    ... layers:
    ...   - {name: x, type: Input, shape: {dim: 3}}
    ...   - {name: log, type: Log}
    ... '''), device="cpu")
    >>> with Look(net) as look, np.errstate(all="ignore"):
    ...     outputs = net.forward(x=[1.0, 0.0, 2.0])
    >>> look.first_bad().range, look.first_bad().first
    ('log 0..0.6931 (1 of 3 not finite)', (1,))
    """

    def __init__(self, net: Net, check: bool = False):
        self.net, self.check, self.seen = net, check, list[Seen]()
        self.watchers: list[tuple[Step, When, Callable[[], None]]] = []

    def __enter__(self) -> Look:
        told: dict[When, Callable[[Step], Iterator[Any]]] = {
            "before_forward": params,
            "after_forward": tops,
            "before_backward": tops_diffs,
            "after_backward": gradients,
        }
        for step in self.net.steps:
            for when, arrays in told.items():
                watcher = self._watcher(step, when, arrays)
                step.watchers.setdefault(when, []).append(watcher)
                self.watchers.append((step, when, watcher))
        return self

    def __exit__(self, *error: Any) -> None:
        for step, when, watcher in self.watchers:
            step.watchers[when].remove(watcher)
            if not any(step.watchers.values()):
                step.watchers.clear()
        self.watchers.clear()

    def first_bad(self) -> Seen | None:
        """The first array that held what is no finite number."""
        return next((one for one in self.seen if one.bad), None)

    def last(self, step: Step, name: str, which: str) -> Seen | None:
        """What was seen last of a layer's top or parameter."""
        found = (s for s in reversed(self.seen) if (s.step, s.name, s.which) == (step, name, which))
        return next(found, None)

    def _watcher(
        self, step: Step, when: When, arrays: Callable[[Step], Iterator[Any]]
    ) -> Callable[[], None]:
        def watcher() -> None:
            for name, which, is_param, array in arrays(step):
                host = self.net.device.to_host(array)
                self.seen.append(describe(host, step, when, name, which, is_param))
            last = when == "after_forward" and step is self.net.steps[-1]
            if last and self.check and self.first_bad():
                self.net.check()

        return watcher


def describe(
    array: np.ndarray, step: Step, when: When, name: str, which: Any, is_param: bool
) -> Seen:
    """What an array of the host holds."""
    values = array.astype(np.float64)
    fine = np.isfinite(values)
    finite, bad = values[fine], int(values.size - np.count_nonzero(fine))
    low, high, mean = (
        (float(finite.min()), float(finite.max()), float(finite.mean()))
        if finite.size
        else [np.nan] * 3
    )
    first, samples = (), 0
    if bad:
        first = tuple(int(i) for i in np.unravel_index(int(np.argmin(fine)), array.shape))
        samples = int((~fine).reshape(len(array), -1).any(axis=1).sum()) if array.ndim else 1
    given = array.shape, low, high, mean, bad, first, samples
    return Seen(step, when, name, which, is_param, *given)


def params(step: Step) -> Iterator[tuple[str, str, bool, Any]]:
    """The parameters of a layer, by the names that files know."""
    for i, param in enumerate(step.layer.params):
        yield f"{step.spec.name}__{i}", "data", True, param.data


def tops(step: Step) -> Iterator[tuple[str, str, bool, Any]]:
    """What a layer has written."""
    for value in step.tops:
        yield value.name, "data", False, value.blob.data


def tops_diffs(step: Step) -> Iterator[tuple[str, str, bool, Any]]:
    """The gradient that comes to a layer from above, if it passes one on."""
    if step.layer.runs_backward:
        for value in step.tops:
            if gets_gradient(value):
                yield value.name, "diff", False, value.blob.diff


def gradients(step: Step) -> Iterator[tuple[str, str, bool, Any]]:
    """The gradients that a layer has computed: of its parameters, then of its bottoms."""
    if not step.layer.runs_backward:
        return
    for i, param in enumerate(step.layer.params):
        if param.learns:
            yield f"{step.spec.name}__{i}", "diff", True, param.diff
    for value, wanted in zip(step.bottoms, step.layer.needs_gradient, strict=True):
        if wanted:
            yield value.name, "diff", False, value.blob.diff


def gets_gradient(value: Value) -> bool:
    """Whether a layer above gives a value its gradient."""
    return value.gets_gradient and value.readers > 0
