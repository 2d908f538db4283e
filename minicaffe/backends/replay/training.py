"""Iterations recorded and replayed: on the CPU by a command buffer, on CUDA by a graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from minicaffe.backends.replay.compare import compared
from minicaffe.backends.replay.inference import check
from minicaffe.backends.replay.passes import Passes, Premise, take_sum
from minicaffe.backends.replay.replay import Assumed, Call, Node, Repeated, Tape
from minicaffe.core.layers.blob import Param
from minicaffe.core.net import Net
from minicaffe.core.solver.iteration import Iteration
from minicaffe.core.solver.mixed import Mixed


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

    @property
    def seen(self) -> str:  # type: ignore[override]
        """Why nothing may be replayed now, or ""."""
        return self.premise.seen

    def explained(self, why: str) -> list[str]:
        """Why iterations, or parts of them, are not in a graph."""
        self.reasons = [why] if why else self.whole.reasons
        return self.reasons

    def compute(self, what: str, work: Callable[[], None]) -> None:
        """Compute or replay the iteration, its passes or its update."""
        whole = what == "iteration"
        guard = self.premise.of_update if what == "update" else self.premise.of_all
        assumes = self._of_iteration if whole else partial(self._on_cpu, guard)
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
        self,
        work: Callable[[], Any],
        what: str = "a sum over ranks",
        restores: bool = False,
    ) -> None:
        """Sum over ranks, and record it; with `restores` a replay first restores which gradients are stale."""
        again = self.noted.with_flags(self.net.learnable, work) if restores else None
        take_sum(self.tape, work, again, what)

    def forward(self) -> None:
        """Run all layers forward."""
        self.noted.forward(self.tape)
        if self.ranks is not None or self.spec.iter_size > 1:
            self.noted.refuse(self.tape)  # before any sum with others, and the next batch

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
            known = "what the net knows of itself"
            end = Call("the end", known, partial(_read, read), sets=True, late=True)
            self.tape.notes.append(end)

    def _record(self, work: Callable[[], None], tape: Tape | None) -> None:
        self.tape = tape
        try:
            work()
        finally:
            self.tape = None

    def _begin_passes(self) -> None:
        if self.taken != self.net.context.taken:  # free arrays that the net has dropped
            self.taken = self.net.context.taken
            for repeated in self.works.values():
                repeated.begin()
        super()._begin_passes()
        self.noted.begin(self.number * self.spec.iter_size)

    def _send(self) -> None:
        if not self.noted.sends:  # else layers send them with their own
            super()._send()

    def _on_cpu(self, assumes: Callable[..., Assumed | None]) -> Assumed | None:
        """What recorded passes or updates assume; None on CUDA, where only whole iterations are replayed."""
        return None if self.device.is_cuda else assumes(self._parts())

    def _of_iteration(self) -> Assumed:
        """What a recorded iteration assumes; that it may be replayed was just checked."""
        return self.premise.of_all_unseen(self._parts())

    def _parts(self) -> list[Any]:
        """The objects of the solver that a replay assumes."""
        rule, means = self.rule, self.average.means if self.average else ()
        of_update = (rule.rule if isinstance(rule, Mixed) else rule).spec
        ranks = self.ranks and self.ranks.shared
        settings = self.spec, rule, of_update, self.watch, self.watch.loss, ranks
        return [*settings, *rule.history, *means]


def _read(params: list[Param]) -> None:
    """Mark the gradients in memory as those of this step."""
    for param in params:
        param.stale = False
