"""Iterations recorded and replayed: on the CPU by a command buffer, on CUDA by a graph.

Passes are recorded layer by layer. A graph's first replays are compared with ordinary iterations, to the bit.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from minicaffe.backends.replay.guards import Premise
from minicaffe.backends.replay.inference import check, check_before_the_last, note, twice, why_not
from minicaffe.backends.replay.replay import Assumed, Call, Node, Repeated, Tape
from minicaffe.core.layers.blob import Param
from minicaffe.core.net import Net, run
from minicaffe.core.net.step import Step, Value
from minicaffe.core.solver.average import Average
from minicaffe.core.solver.iteration import Iteration
from minicaffe.core.solver.mixed import Mixed
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.core.solver.update_rules import Update

KNOWN = "what the net knows of itself"


class Replayed(Iteration):
    """An `Iteration` that is recorded until two traces are equal, and then replayed while the guard holds.

    On CUDA only whole iterations are, and not if `graph` is false. `reasons` lists the parts of an iteration
    on CUDA that are not in a graph, and why. While a trace is taken, it goes on the `tape`.
    """

    def __init__(self, net: Net, *parts: Any):
        super().__init__(net, *parts)
        self.premise = Premise(net)
        self.noted = Passes(self.net)
        self.works = {name: Repeated(self.device) for name in ("iteration", "passes", "update")}
        self.taken = self.net.context.taken
        self.reasons: list[str] = []
        self.tape: Tape | None = None

    @property
    def whole(self) -> Repeated:
        """Iterations as one work."""
        return self.works["iteration"]

    @property
    def recordings(self) -> dict[str, list[Node]]:  # type: ignore[override]
        """The nodes of replays, of an iteration, or of passes and update; empty if there are none."""
        nodes = {name: repeated.nodes or [] for name, repeated in self.works.items()}
        whole = nodes.pop("iteration")
        return nodes if any(nodes.values()) else {"iteration": whole}

    seen: Any = property(operator.attrgetter("premise.seen"))  # why nothing may be replayed now

    def explained(self, why: str) -> list[str]:
        """Why iterations, or parts of them, are not in a graph."""
        self.reasons = [why] if why else self.whole.reasons
        return self.reasons

    def compute(self, what: str, work: Callable[[], None]) -> None:
        """Compute or replay the iteration, its passes or its update."""
        whole, premise = what == "iteration", self.premise

        def assumes() -> Assumed | None:
            if not whole and (self.device.is_cuda or premise.seen):  # the whole was just asked
                return None
            rule, means = self.rule, self.average.means if self.average else ()
            settings = self.spec, rule, rule.spec, self.watch, self.watch.loss, self.ranks.shared
            of_works = premise.of_update if what == "update" else premise.of_all
            return of_works([*settings, *rule.history, *means])

        beside = partial(compared, self) if whole and self.device.is_cuda else None
        self.works[what].run(partial(self._record, work), assumes, beside)
        if what != "update":
            check(self.net.steps, self.net.context)

    def do(self, what: str, work: Callable[[], Any]) -> None:
        """Do a part of the iteration, and record it if there is a tape."""
        if self.tape is None:
            work()
        else:
            self.tape.take(what, work)

    def sum(
        self, work: Callable[[], Any], what: str = "a sum over ranks", restores: bool = False
    ) -> None:
        """Sum over ranks, and record it; with `restores` a replay first restores which gradients are stale."""
        again = self.noted.with_flags(self.net.learnable, work) if restores else None
        take_sum(self.tape, work, again, what)

    def forward(self) -> None:
        """Run all layers forward."""
        self.noted.forward(self.tape)
        if self.tape is not None and (self.ranks.several or self.spec.iter_size > 1):
            # a replay raises refusals so far before any sum with others, and the next batch
            check_before_the_last(self.tape, self.noted.unchecked, 0)

    def backward(self) -> None:
        """Run all layers backward."""
        self.noted.backward(self.tape)

    def passes(self) -> None:
        """All passes; a replay also sets the state in which they leave the net."""
        super().passes()
        self.noted.end(self.tape)

    def step(self) -> None:
        """Do the update; a replay also marks the gradients that it made."""
        stale = [param for param in self.net.learnable if param.stale]  # they have no gradient
        super().step()
        if self.tape is not None and (read := [param for param in stale if not param.stale]):
            work = partial(_read, read)
            self.tape.notes.append(Call("the end", KNOWN, work, sets=True, late=True))

    def _record(self, work: Callable[[], None], tape: Tape | None) -> None:
        self.tape = tape
        try:
            work()
        finally:
            self.tape = None

    def _begin_passes(self) -> None:
        if self.taken != self.net.context.taken:  # free arrays that the net has dropped
            self.taken, self.premise.listed = self.net.context.taken, None
            for repeated in self.works.values():
                repeated.begin()
        super()._begin_passes()
        self.noted.begin(self.number * self.spec.iter_size)

    def _send(self) -> None:
        if not self.noted.sends:  # else layers send them with their own
            super()._send()


def _read(params: list[Param]) -> None:
    """Mark the gradients in memory as those of this step."""
    for param in params:
        param.stale = False


class Passes:
    """Whole passes of a net, on a `tape` if there is one; `begin` comes first, in a replay too, `end` last."""

    def __init__(self, net: Net):
        self.net, self.first = net, 0
        self.sends = any(step.prepares for step in net.steps)  # step constants

    def begin(self, first: int) -> None:
        """Begin the passes; the first has this number."""
        self.net.context.passes = self.first = first
        # Layers of a trace whose refusals a replay has not raised yet
        self.unchecked: list[Step] = []

    def forward(self, tape: Tape | None) -> None:
        """Run all layers."""
        net = self.net
        if tape is None:
            net.forward()
            return
        with net.memory.sharing.over("data", 0, len(net.steps) - 1, ()):
            note(tape, net.steps, net.graph, net.memory, self._later, self.unchecked)
        net.context.passes += 1

    def backward(self, tape: Tape | None) -> None:
        """Run all layers backward."""
        net = self.net
        if tape is None:
            net.backward()
            return
        written = run.written_before(net.steps, None, ())
        scratch, loss_scale = net.memory.scratch, net.loss_scale
        with net.memory.sharing.over("diff", 0, len(net.steps) - 1, ()):
            for step in reversed(net.steps):
                work = partial(run.backward, step, net.device, written, scratch, loss_scale)
                again = partial(_backward, step, net, frozenset(written))
                why = why_not(step.layer) if step.layer.runs_backward else ""
                later = self._later(step, again)
                if not tape.take(f"{step.spec.name} backward", work, why, later, twice(step)):
                    check_before_the_last(tape, self.unchecked)
                if net.then is not None and (then := net.then(step)) is not None:
                    take_sum(tape, then, self.with_flags(net.learnable, then))

    def end(self, tape: Tape | None) -> None:
        """End the passes; a replay also sets the state in which they leave the net."""
        if tape is not None:
            work = self.with_flags(self.net.learnable, self._end)
            tape.notes.append(Call("the end", KNOWN, work, sets=True, late=True))

    def _end(self) -> None:
        sharing = self.net.memory.sharing
        sharing.held, sharing.holds = sharing.whole, sharing.last

    def _later(self, step: Step | None, work: Callable[[], Any]) -> Callable[[], Any]:
        """Work for a replay, which first restores the number of the pass and the stale gradients of now."""
        params = [] if step is None else [param.owner for param in step.layer.params]
        return self.with_flags(params, work)

    def with_flags(self, params: Sequence[Any], work: Callable[[], Any]) -> Callable[[], Any]:
        """Work for a replay, which first restores which of some gradients are stale."""
        stale = [(param, param.stale) for param in params]
        return partial(self._again, self.net.context.passes - self.first, stale, work)

    def _again(
        self, passes: int, stale: Sequence[tuple[Any, bool]], work: Callable[[], Any]
    ) -> None:
        self.net.context.passes = self.first + passes
        for param, was in stale:
            param.stale = was
        work()


def take_sum(
    tape: Tape | None,
    work: Callable[[], Any],
    again: Callable[[], Any] | None = None,
    what: str = "a sum over ranks",
) -> None:
    """Sum over ranks, and record it if there is a tape: on CUDA in a graph, else between commands."""
    if tape is None:
        work()
    else:
        tape.take(what, work, "" if tape.device.is_cuda else "MPI's", again)


def _backward(step: Step, net: Net, written: frozenset[Value]) -> None:
    run.backward(step, net.device, set(written), net.memory.scratch, net.loss_scale)


def compared(iteration: Any, replay: Callable[[], None], as_it_is: Callable[[], None]) -> str:
    """Replay an iteration, restore all arrays, and run it without replay; returns why they differ, or "".

    All that an iteration changes is compared to the bit: parameters, history, statistics, loss, flags. Copies
    are on the host. What calls Python that cannot run twice, such as reading a file, is not compared.
    """
    nodes = [node for part in iteration.recordings.values() for node in part]
    if not all(node.sets or node.twice for node in nodes if isinstance(node, Call)):
        replay()
        return ""
    parts = iteration.net, iteration.rule, iteration.watch, iteration.average
    arrays, device = left_behind(*parts), iteration.device
    before = {name: device.to_host(array) for name, array in arrays.items()}
    try:
        replay()
        replayed = {name: device.to_host(array) for name, array in arrays.items()}
    finally:
        for name, array in arrays.items():
            device.copy_from_host(array, before[name])
    as_it_is()
    for name, array in arrays.items():
        if device.to_host(array).tobytes() != replayed[name].tobytes():
            return f"a replay gave another {name} than an iteration as it is"
    return ""


def left_behind(net: Net, rule: Update, watch: Watch, average: Average | None) -> dict[str, Any]:
    """All arrays that an iteration changes permanently, by name."""
    arrays: dict[str, Any] = {"watch": watch.block, "loss": watch.loss}
    for step in net.steps:
        for i, param in enumerate(step.layer.params):
            arrays[f"parameter {i} of {step.spec.name}"] = param.data
        for i, array in enumerate(step.layer.running):
            arrays[f"statistic {i} of {step.spec.name}"] = array
    for i, array in enumerate(rule.history):
        arrays[f"history {i}"] = array
    if isinstance(rule, Mixed):
        for i, master in enumerate(rule.masters):
            arrays[f"float32 parameter {i}"] = master.data
    for i, mean in enumerate(average.means if average is not None else ()):
        arrays[f"averaged parameter {i}"] = mean
    return arrays
