"""The planner: which strategy computes a convolution, in each direction.

A strategy asked for by name is taken. Else (`auto`) the candidates are measured once, and the fastest
that is exact enough is taken (see `trial`, and `memory` for where that is remembered). A convolution
too small to measure, or one that must not depend on a stopwatch (`deterministic`), goes by a fixed
rule: the first of `trial.RULE` that takes the shape within the cap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.backend import Device, mib
from minicaffe.errors import ShapeError, SpecError, did_you_mean
from minicaffe.ops import conv
from minicaffe.ops.conv import common, memory
from minicaffe.ops.conv.trial import DIRECTIONS, Case
from minicaffe.ops.geometry import ConvGeometry

AUTO = "auto"
CAP = 256 * 2**20  # bytes of workspace
SMALL = 200_000  # multiply-adds of a batch below which measuring is noise


@dataclass(frozen=True)
class Plan:
    """The strategy of each direction of a convolution, why, and the work all of them share.

    `limit` is what one thread of one strategy may take, `workspace` the elements of `work` in all.
    """

    g: ConvGeometry
    names: Mapping[str, str]
    reasons: Mapping[str, str]
    limit: int
    shares: int

    @property
    def workspace(self) -> int:
        """Elements of work that any direction takes, the gradient of the bias among them."""
        bias = self.shares * common.bias_workspace(self.g)
        return max(bias, *(self._size(direction) for direction in DIRECTIONS))

    def forward(self, x: Any, weight: Any, bias: Any | None, out: Any, work: Any) -> Any:
        """y = weight * x + bias, into `out`."""
        op, work = self._op("forward", work)
        return op.forward(x, weight, bias, self.g, out, work)

    def input_gradient(self, dy: Any, weight: Any, out: Any, work: Any) -> Any:
        """dx, into `out`."""
        op, work = self._op("input_gradient", work)
        return op.input_gradient(dy, weight, self.g, out, work)

    def weight_gradient(self, x: Any, dy: Any, out: Any, work: Any) -> Any:
        """dweight, added to `out`."""
        op, work = self._op("weight_gradient", work)
        return op.weight_gradient(x, dy, self.g, out, work)

    def gradients(self, x: Any, dy: Any, weight: Any, dx: Any, dw: Any, work: Any) -> None:
        """dx into `dx`, and dweight added to `dw`; at once, where one strategy does both and can."""
        ways = {self.names["input_gradient"], self.names["weight_gradient"]}
        op, ours = self._op("weight_gradient", work)
        if len(ways) == 1 and hasattr(op, "gradients"):
            op.gradients(x, dy, weight, self.g, dx, dw, ours)
        else:
            self.weight_gradient(x, dy, dw, work)
            self.input_gradient(dy, weight, dx, work)

    def bias_gradient(self, dy: Any, out: Any, work: Any) -> Any:
        """dbias, added to `out`."""
        return common.bias_gradient(dy, self.g, out, work[: self.workspace])

    def _op(self, direction: str, work: Any) -> tuple[Any, Any]:
        return conv.STRATEGIES[self.names[direction]], work[: self._size(direction)]

    def _size(self, direction: str) -> int:
        op = conv.STRATEGIES[self.names[direction]]
        return self.shares * int(op.workspace(self.g, self.limit))


def plan(
    g: ConvGeometry,
    dtype: Any,
    device: Device,
    engine: str = AUTO,
    cap: int = CAP,
    deterministic: bool = False,
) -> Plan:
    """How to compute a convolution. Raises SpecError, ShapeError as `check` does.

    >>> from minicaffe.backend import device
    >>> from minicaffe.ops.geometry import Window
    >>> plan(ConvGeometry(1, 2, (4, 4), 3, Window((3, 3))), "f4", device("cpu")).names["forward"]
    'batched'
    """
    case = Case(g, np.dtype(dtype), device, cap)
    if engine != AUTO:
        check(g, engine)
        if why := case.refuses(engine):
            raise ShapeError(f"engine {engine!r} {why}; --workspace raises it")
        names = dict.fromkeys(DIRECTIONS, engine)
        reasons = dict.fromkeys(DIRECTIONS, "asked for by name")
    elif case.by_rule is None:
        raise ShapeError(
            f"no engine gets by with {mib(cap)} of workspace: "
            + ", ".join(f"{name} {case.refuses(name)}" for name in conv.STRATEGIES)
        )
    elif deterministic or g.multiply_adds < SMALL:
        names = dict.fromkeys(DIRECTIONS, case.by_rule)
        why = "deterministic" if deterministic else "too small to measure"
        reasons = dict.fromkeys(DIRECTIONS, f"fixed rule: {why}")
    else:
        found, origin = memory.findings(case)
        names = {direction: case.fastest(one.ms) for direction, one in found.items()}
        reasons = {way: f"fastest of {len(one.ms)}, {origin}" for way, one in found.items()}
    return Plan(g, names, reasons, case.limit, case.shares)


def check(g: ConvGeometry, engine: str) -> None:
    """Raise SpecError if there is no such engine, ShapeError if it cannot take a convolution."""
    check_name(engine)
    if engine == AUTO:
        return
    why = conv.STRATEGIES[engine].refuses(g)
    if why is not None:
        able = [name for name, op in conv.STRATEGIES.items() if op.refuses(g) is None]
        raise ShapeError(
            f"engine {engine!r} cannot take this convolution: {why}; "
            f"engines that can: {', '.join(able)}"
        )


def check_name(engine: str) -> None:
    """Raise SpecError if there is no such engine.

    >>> check_name("windograd")
    Traceback (most recent call last):
    minicaffe.errors.SpecError: unknown engine 'windograd'...
    """
    known = (AUTO, *conv.STRATEGIES)
    if engine not in known:
        hint = did_you_mean(str(engine), known)
        raise SpecError(f"unknown engine {engine!r}; expected one of {', '.join(known)}{hint}")
