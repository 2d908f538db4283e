"""The passes of a net recorded layer by layer, so that they can be replayed; and their guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from minicaffe.backends.replay.guards import Guard, is_stale
from minicaffe.backends.replay.inference import (
    check_before_the_last,
    checks,
    note,
    prepares,
    twice,
    why_not,
)
from minicaffe.backends.replay.replay import Assumed, Call, Tape
from minicaffe.core.net import run
from minicaffe.core.net.net import Net
from minicaffe.core.net.step import Step, Value


class Passes:
    """Whole passes of a net, forward and backward, recorded on a `tape` if there is one.

    `begin` is called before the first, in a replay too, `end` after the last.
    """

    def __init__(self, net: Net):
        self.net, self.first = net, 0
        self.sends = any(prepares(step.layer) for step in net.steps)  # step constants

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

    def refuse(self, tape: Tape | None) -> None:
        """Let a replay raise here the refusals of layers so far."""
        if tape is not None and self.unchecked:
            tape.notes.append(checks(self.unchecked))
            self.unchecked.clear()

    def end(self, tape: Tape | None) -> None:
        """End the passes; a replay also sets the state in which they leave the net."""
        if tape is not None:
            work = partial(self._end, [(param, param.stale) for param in self.net.learnable])
            known = "what the net knows of itself"
            tape.notes.append(Call("the end", known, self._later(None, work), sets=True, late=True))

    def _end(self, flags: Sequence[tuple[Any, bool]]) -> None:
        for param, was in flags:
            param.stale = was
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
        why = "" if tape.device.is_cuda else "MPI's"
        tape.take(what, work, why, again)


def _backward(step: Step, net: Net, written: frozenset[Value]) -> None:
    run.backward(step, net.device, set(written), net.memory.scratch, net.loss_scale)


class Premise(Guard):
    """The guard of a net's passes forward and backward, and of updates by them."""

    def __init__(self, net: Net):
        super().__init__(net.graph, net.memory, trains=True)
        self.net = net
        self.watchers = [step.watchers for step in net.steps]
        self.params = [param for step in net.steps for param in step.layer.params]

    def of_all(self, objects: Iterable[Any] = ()) -> Assumed | None:
        """What whole passes and their update assume now; None while nothing may be replayed."""
        return None if self.seen else self.of_all_unseen(objects)

    def of_all_unseen(self, objects: Iterable[Any] = ()) -> Assumed:
        """The same, if `seen` was just checked."""
        settings = self.net.loss_scale, [*map(is_stale, self.params)]
        return self.of_passes(self.net.steps, objects, settings)

    def of_update(self, objects: Iterable[Any]) -> Assumed | None:
        """What an update assumes now; None while nothing may be replayed."""
        return None if self.seen else self.of_params(self.params, objects)

    @property
    def seen(self) -> str:
        """Why nothing may be replayed now, or ""."""
        net = self.net
        if self.never or any(self.watchers):
            return self.never or "somebody watches a layer"
        if net.debug is not None:
            return "debug_info is asked for"
        if net._left_out or "forward" in vars(net) or "backward" in vars(net):
            return "the net's passes are others"
        return ""
