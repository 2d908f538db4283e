"""The planner selects the engine that computes a convolution, in each direction.

An engine selected by name is used. With `auto` the candidates (`problem`) are measured once (`autotune`), and
the fastest that is exact enough is used; the result is stored on disk (`autotune_cache`). A fixed rule decides
if a convolution is too small to measure, or must not depend on a timer (`deterministic`): the first engine,
by `rule_rank`, that computes the shape within the cap and, on the CPU, is compiled or else unrolls no sample
whose columns are larger than its cache. If a layer's images change their size, and the work is nearly the
same, the plan keeps its engines, so that pictures of any size need no measurement.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.device import Device
from minicaffe.core.ops.conv import autotune_cache, common
from minicaffe.core.ops.conv.autotune import DIRECTIONS
from minicaffe.core.ops.conv.engine import AUTO, ENGINES, Engine, names
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.errors import ShapeError, SpecError, did_you_mean, mib

CAP = 256 * 2**20  # bytes of workspace; more if one thread of the rule's engines needs it
REMOVED = {  # names that models and runs may still have -> what computes the same
    **dict.fromkeys(("columns", "mec"), "'batched' or 'implicit'"),
    **dict.fromkeys(("lanes", "winograd2"), "'auto' or 'winograd'"),
    "pointwise": "'implicit' or 'batched'",
}
RENAMED = {"places": "packed"}
Limits = Callable[[], AbstractContextManager[None]]  # of the threads that a pass may use
NEAR = 16  # times more or less work is nearly the same


@dataclass(frozen=True)
class Plan:
    """The engine of each direction of a convolution, the reason, and the workspace that they share."""

    case: Case
    names: Mapping[str, str]
    reasons: Mapping[str, str]
    measured: ConvGeometry | None = None  # the sizes for which its engines were the fastest

    def suits(self, case: Case) -> bool:
        """Whether its engines, measured for another size of the layer, suit this one too."""
        if self.measured is None or any(map(case.refuses, self.names.values())):
            return False
        less, more = sorted((self.measured.multiply_adds, case.g.multiply_adds))
        return more <= NEAR * less

    @property
    def traced(self) -> bool:
        """Whether all directions record their work in the trace."""
        return all(ENGINES[name].traced for name in self.names.values())

    @functools.cached_property
    def workspace(self) -> int:
        """Elements of workspace for any direction, for all threads."""
        return self.case.whole(max(map(self.case.workspace, self.names.values())), self.case.shares)

    @property
    def forward_workspace(self) -> int:
        """Elements of workspace for `forward`, for all threads."""
        return self.case.workspace(self.names["forward"], "forward")

    def forward(self, x: Any, weight: Any, bias: Any | None, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""
        engine, part, limits = self._passes["forward"]
        with limits():
            if self.packed is not None:
                weight, bias = engine.pack(weight, bias, self.case.g, self.packed), None
            return engine.forward(x, weight, bias, self.case.g, out, work[part])

    def input_gradient(self, dy: Any, weight: Any, out: Any, work: Any) -> Any:
        """Writes dx to `out`, and returns it."""
        self.gradients(None, dy, weight, out, None, None, work)
        return out

    def gradients(self, x: Any, dy: Any, weight: Any, dx: Any, dw: Any, db: Any, work: Any) -> None:
        """Writes dx to `dx`, and adds dweight to `dw` and dbias to `db`; each may be None: not computed."""
        g = self.case.g
        engine, part, limits = self._passes["weight_gradient"]
        of_dx, dx_part, dx_limits = self._passes["input_gradient"]
        both = engine is of_dx and engine.gradients_together and dx is not None and dw is not None
        one = self.case.device.is_cuda and dw is not None and db is not None
        with limits():
            if both:
                engine.gradients(x, dy, weight, g, dx, dw, work[part])
            elif one and engine.weight_and_bias_gradients(x, dy, g, dw, db, work[part]):
                db = None
            elif dw is not None:
                engine.weight_gradient(x, dy, g, dw, work[part])
        if dx is not None and not both:
            with dx_limits():
                of_dx.input_gradient(dy, weight, g, dx, work[dx_part])
        if db is not None:
            part, limits = self._bias
            with limits():
                common.bias_gradient(dy, g, db, work[part])

    @functools.cached_property
    def packed(self) -> Any:
        """The array that holds the packed weights of `forward`; None if its engine packs none."""
        size, device = self.case.packed(self.names["forward"]), self.case.device
        keeps = size and self.case.infers
        return aligned.zeros(device.xp, size, self.case.dtype) if keeps else None

    @functools.cached_property
    def _passes(self) -> dict[str, tuple[Engine, slice, Limits]]:
        """Of each direction the engine, its part of the workspace, and the limits of threads."""
        room, size = self.case.room, self.case.workspace
        return {way: (ENGINES[name], *room(size(name, way))) for way, name in self.names.items()}

    @functools.cached_property
    def _bias(self) -> tuple[slice, Limits]:
        """The same of the gradient of the bias."""
        each = common.bias_workspace(self.case.g, self.case.device.is_cuda)
        return self.case.room(self.case.shares * each)


def plan(
    g: ConvGeometry,
    dtype: Any,
    device: Device,
    engine: str = AUTO,
    cap: int = CAP,
    deterministic: bool = False,
    before: Plan | None = None,
    infers: bool = False,
) -> Plan:
    """Plans a convolution `g`; `cap` is in bytes, `before` the plan of the layer's previous size.

    If it `infers`, it only runs forward, with weights that seldom change.

    Raises SpecError and ShapeError as `check` does, and ShapeError if no engine fits the cap.

    >>> from minicaffe.backends.device import device
    >>> from minicaffe.core.ops.geometry import Window
    >>> plan(ConvGeometry(1, 2, (4, 4), 3, Window((1, 1))), "f4", device("cpu")).reasons["forward"]
    'fixed rule: too small to measure'
    """
    case, measured = Case(g, np.dtype(dtype), device, cap, infers=infers), None
    if cap == CAP and case.by_rule is None:  # nobody set this cap: it refuses nothing
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
        findings, origin = autotune_cache.findings(case)
        measured = g
        names = dict.fromkeys(DIRECTIONS, case.by_rule)
        names |= {way: case.fastest(finding.ms) for way, finding in findings.items()}
        reasons = dict.fromkeys(DIRECTIONS, "fixed rule: it only runs forward")
        reasons |= {way: f"fastest of {len(one.ms)}, {origin}" for way, one in findings.items()}
    return Plan(case, names, reasons, measured)


def check(g: ConvGeometry, engine: str) -> None:
    """Raises SpecError if there is no such engine, ShapeError if it cannot compute a convolution."""
    check_name(engine)
    if engine == AUTO:
        return
    why = ENGINES[engine].refuses(g)
    if why is not None:
        able = [name for name, op in ENGINES.items() if op.refuses(g) is None]
        problem = f"{why}; engines that can: {', '.join(able)}"
        raise ShapeError(f"engine {engine!r} cannot take this convolution: {problem}")


def check_name(engine: str) -> None:
    """Raises SpecError if there is no such engine.

    >>> check_name("windograd")
    Traceback (most recent call last):
    minicaffe.errors.SpecError: unknown engine 'windograd'...
    """
    known = names()
    if engine not in known:
        more = hint(str(engine), known)
        raise SpecError(f"unknown engine {engine!r}; expected one of {', '.join(known)}{more}")


def hint(name: str, words: Iterable[str]) -> str:
    """What to do about a name that is none of the words, for the end of a message."""
    if name in REMOVED:
        return f"; it was removed: take {REMOVED[name]}"
    if name in RENAMED:
        return f"; it is called {RENAMED[name]!r} now"
    return did_you_mean(name, words) or "; --import FILE brings engines of one's own"
