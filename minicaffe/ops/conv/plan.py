"""The planner: which engine computes a convolution, in each direction.

An engine asked for by name is taken. Else (`auto`) the candidates are measured once, and the fastest
that is exact enough is taken (see `case`, `trial` and `memory` for where that is remembered). A convolution
too small to measure, or one that must not depend on a stopwatch (`deterministic`), goes by a fixed rule:
the first engine, by `rule_rank`, that takes the shape within the cap and, on the CPU, is compiled, or else
unrolls no sample whose columns leave its cache. A layer whose images are given another size, of nearly
as much work, is computed as it was before, so that pictures of any size need no measurement.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.backend import Device, on_cuda
from minicaffe.errors import ShapeError, SpecError, did_you_mean, mib
from minicaffe.ops.conv import autotune_cache, common
from minicaffe.ops.conv.autotune import DIRECTIONS
from minicaffe.ops.conv.engine import AUTO, Engine, names
from minicaffe.ops.conv.engines import ENGINES
from minicaffe.ops.conv.problem import Case
from minicaffe.ops.geometry import ConvGeometry

CAP = 256 * 2**20  # bytes of workspace; more where one thread of the usual engines needs it
NEAR = 16  # times as much work, or as little, is nearly as much


@dataclass(frozen=True)
class Plan:
    """The engine of each direction of a convolution, why, and the work that all of them share."""

    case: Case
    names: Mapping[str, str]
    reasons: Mapping[str, str]
    measured: ConvGeometry | None = None  # what its engines were the fastest for

    def suits(self, case: Case) -> bool:
        """Whether its engines, measured for another size of the same layer, will do."""
        if self.measured is None or any(map(case.refuses, self.names.values())):
            return False
        less, more = sorted((self.measured.multiply_adds, case.g.multiply_adds))
        return more <= NEAR * less

    @property
    def recordable(self) -> bool:
        """Whether all directions run as compiled loops alone."""
        return all(map(self.case.recordable, self.names.values()))

    @property
    def traced(self) -> bool:
        """Whether all directions report what they do to the trace."""
        return all(ENGINES[name].traced for name in self.names.values())

    @functools.cached_property
    def workspace(self) -> int:
        """Elements of work that any direction takes, all threads together."""
        sizes = map(self.case.workspace, self.names.values())
        return self.case.whole(max(sizes), self.case.shares)

    @property
    def forward_workspace(self) -> int:
        """Elements of work that `forward` takes, all threads together."""
        return self.case.workspace(self.names["forward"], "forward")

    def forward(self, x: Any, weight: Any, bias: Any | None, out: Any, work: Any) -> Any:
        """y = weight * x + bias, into `out`."""
        (op, size), case = self._ways["forward"], self.case
        with case.held(size):
            return op.forward(x, weight, bias, case.g, out, case.room(work, size))

    def input_gradient(self, dy: Any, weight: Any, out: Any, work: Any) -> Any:
        """dx, into `out`."""
        self.gradients(None, dy, weight, out, None, None, work)
        return out

    def gradients(self, x: Any, dy: Any, weight: Any, dx: Any, dw: Any, db: Any, work: Any) -> None:
        """dx into `dx`, dweight added to `dw`, dbias to `db`; each may be None: not wanted."""
        case, g, ways = self.case, self.case.g, self._ways
        (op, size), (other, other_size) = ways["weight_gradient"], ways["input_gradient"]
        both = op is other and op.gradients_together and dx is not None and dw is not None
        with case.held(size):
            room = case.room(work, size)
            if both:
                op.gradients(x, dy, weight, g, dx, dw, room)
            elif dw is not None and db is not None and on_cuda(dy):
                if op.weight_and_bias_gradients(x, dy, g, dw, db, room):
                    db = None
                else:
                    op.weight_gradient(x, dy, g, dw, room)
            elif dw is not None:
                op.weight_gradient(x, dy, g, dw, room)
        if dx is not None and not both:
            with case.held(other_size):
                other.input_gradient(dy, weight, g, dx, case.room(work, other_size))
        if db is not None:
            size = case.shares * common.bias_workspace(g, case.device.is_cuda)
            with case.held(work.size):
                common.bias_gradient(dy, g, db, case.room(work, size))

    @functools.cached_property
    def _ways(self) -> dict[str, tuple[Engine, int]]:
        """Each direction's engine, and the elements of work that it takes, all threads together."""
        return {
            way: (ENGINES[name], self.case.workspace(name, way)) for way, name in self.names.items()
        }


def plan(
    g: ConvGeometry,
    dtype: Any,
    device: Device,
    engine: str = AUTO,
    cap: int = CAP,
    deterministic: bool = False,
    before: Plan | None = None,
) -> Plan:
    """How to compute a convolution; `before` is the plan of the layer's last size.

    Raises SpecError, ShapeError as `check` does.

    >>> from minicaffe.backend import device
    >>> from minicaffe.ops.geometry import Window
    >>> plan(ConvGeometry(1, 2, (4, 4), 3, Window((1, 1))), "f4", device("cpu"), "caffe").names["forward"]
    'caffe'
    """
    case, measured = Case(g, np.dtype(dtype), device, cap), None
    if cap == CAP and case.by_rule is None:  # nobody asked for this cap: it refuses nothing
        case = dataclasses.replace(case, cap=case.enough)
    if engine != AUTO:
        check(g, engine)
        if why := case.refuses(engine):
            raise ShapeError(f"engine {engine!r} {why}; --workspace raises it")
        names = dict.fromkeys(DIRECTIONS, engine)
        reasons = dict.fromkeys(DIRECTIONS, "asked for by name")
    elif case.by_rule is None:
        raise ShapeError(
            f"no engine gets by with {mib(cap)} of workspace: "
            + ", ".join(f"{name} {case.refuses(name)}" for name in ENGINES)
        )
    elif why := "deterministic" if deterministic else case.unmeasured:
        names = dict.fromkeys(DIRECTIONS, case.by_rule)
        reasons = dict.fromkeys(DIRECTIONS, f"fixed rule: {why}")
    elif before is not None and before.suits(case):
        names, reasons = dict(before.names), dict(before.reasons)
        measured = before.measured
    else:
        found, origin = autotune_cache.findings(case)
        measured = g
        names = {direction: case.fastest(one.ms) for direction, one in found.items()}
        reasons = {way: f"fastest of {len(one.ms)}, {origin}" for way, one in found.items()}
    return Plan(case, names, reasons, measured)


def check(g: ConvGeometry, engine: str) -> None:
    """Raise SpecError if there is no such engine, ShapeError if it cannot take a convolution."""
    check_name(engine)
    if engine == AUTO:
        return
    why = ENGINES[engine].refuses(g)
    if why is not None:
        able = [name for name, op in ENGINES.items() if op.refuses(g) is None]
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
    known = names()
    if engine not in known:
        hint = did_you_mean(str(engine), known)
        raise SpecError(f"unknown engine {engine!r}; expected one of {', '.join(known)}{hint}")
