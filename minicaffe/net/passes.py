"""The passes of a net noted layer by layer, so that they can be replayed; and what a replay goes by."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from minicaffe.net import run
from minicaffe.net.again import keys, note, prepares, twice, why_not
from minicaffe.net.net import Net
from minicaffe.net.recorded import Call, Tape
from minicaffe.net.step import Step
from minicaffe.ops import threads


class Passes:
    """Whole passes of a net, forward and backward, as often as `tape` is told of them.

    `begin` comes before the first, in a replay too, `end` behind the last.
    """

    def __init__(self, net: Net):
        self.net, self.first = net, 0
        self.sends = any(prepares(step.layer) for step in net.steps)  # what was put in slots

    def begin(self, first: int) -> None:
        """The passes begin, as the net's pass of that number."""
        self.net.context.passes = self.first = first

    def forward(self, tape: Tape | None) -> None:
        """Run all layers."""
        net = self.net
        if tape is None:
            net.forward()
            return
        with net.memory.sharing.over("data", 0, len(net.steps) - 1, ()):
            note(tape, net.steps, net.graph, net.memory, self._later)
        net.context.passes += 1

    def backward(self, tape: Tape | None) -> None:
        """Run all gradients."""
        net = self.net
        if tape is None:
            net.backward()
            return
        written = run.written_before(net.steps, None, ())
        given = net.memory.scratch, net.loss_scale
        with net.memory.sharing.over("diff", 0, len(net.steps) - 1, ()):
            for step in reversed(net.steps):
                work = partial(run.backward, step, net.device, written, *given)
                again = partial(_backward, step, net, frozenset(written))
                why = why_not(step.layer) if step.layer.runs_backward else ""
                later = self._later(step, again)
                tape.take(f"{step.spec.name} backward", work, why, later, twice(step))
                if net.then is not None and (then := net.then(step)) is not None:
                    take_sum(tape, then, self.with_flags(net.learnable, then))

    def end(self, tape: Tape | None) -> None:
        """The passes are over: in a replay, too, the net is to be as they leave it."""
        if tape is not None:
            work = partial(self._end, [p for p in self.net.learnable if p.stale])
            known = "what the net knows of itself"
            tape.notes.append(Call("the end", known, self._later(None, work), sets=True, late=True))

    def _end(self, unwritten: Sequence[Any]) -> None:
        for param in unwritten:
            param.stale = True
        self.net.memory.sharing.held = self.net.memory.sharing.whole

    def _later(self, step: Step | None, work: Callable[[], Any]) -> Callable[[], Any]:
        """Work as a replay is to do it: the number of the pass, and which gradients are stale, as now."""
        params = [] if step is None else [param.owner for param in step.layer.params]
        return self.with_flags(params, work)

    def with_flags(self, params: Sequence[Any], work: Callable[[], Any]) -> Callable[[], Any]:
        """Work as a replay is to do it: which of some gradients are stale, as now."""
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
    """Do what sums over ranks, and note it if there is a tape: on CUDA in a graph, else between rows."""
    if tape is None:
        work()
    else:
        why = "" if tape.device.is_cuda else "MPI's"
        tape.take(what, work, why, again)


def _backward(step: Step, net: Net, written: frozenset[int]) -> None:
    run.backward(step, net.device, set(written), net.memory.scratch, net.loss_scale)


class Premise:
    """What recorded passes of a net go by: where all arrays lie, and each key and multiplier.

    That is what a user can change between two passes.
    """

    def __init__(self, net: Net):
        self.net = net
        self.watchers = [step.watchers for step in net.steps]
        kinds: list[Any] = [type(step.layer) for step in net.steps]
        self.keys = [(keys(kind), step.layer) for kind, step in zip(kinds, net.steps, strict=True)]
        self.values = [value for step in net.steps for value in step.tops]
        self.params = [param for step in net.steps for param in step.layer.params]
        self.never = ""  # why nothing is replayed, whoever looks
        if any(step.layer.sizes_vary for step in net.steps):
            self.never = "the size of a top varies"
        elif type(net) is not Net:
            self.never = f"the net is a {type(net).__name__}"

    def now(self) -> tuple[Any, ...] | None:
        """As it is now; None while passes are not to be replayed, for somebody looks."""
        if self.seen:
            return None
        net = self.net
        held, context = net.memory, net.context
        lies = map(_arrays, chain(map(_blob, self.values), self.params))
        place = _address if net.device.is_cuda else id  # there nothing keeps alive what is recorded
        places = [context.taken, *map(place, chain((context._workspace, held.scratch), *lies))]
        told = [get(layer) for get, layer in self.keys]
        numbers = [*map(_weight, self.values), *map(_multipliers, self.params)]
        return places, told, numbers, threads.share(None), context.state, net.loss_scale

    def of_params(self) -> tuple[Any, ...] | None:
        """The part of it that an update goes by."""
        if self.seen:
            return None
        told = [*map(_multipliers, self.params), *self.stale()]
        place = _address if self.net.device.is_cuda else id
        return [*map(place, chain(*map(_arrays, self.params)))], told, threads.share(None)

    def stale(self) -> list[bool]:
        """Which gradients are zero, whatever lies there: an update goes by that, too."""
        return [*map(_stale, self.params)]

    @property
    def seen(self) -> str:
        """Why all is to be done as it is, if it is."""
        net = self.net
        if self.never or any(self.watchers):
            return self.never or "somebody watches a layer"
        if net.debug is not None:
            return "debug_info is asked for"
        if net._left_out or "forward" in vars(net) or "backward" in vars(net):
            return "the net's passes are others"
        return ""


def _address(array: Any) -> Any:
    return None if array is None else (array.data.ptr, array.shape)


_blob, _arrays = operator.attrgetter("blob"), operator.attrgetter("_data", "_diff")
_weight, _stale = operator.attrgetter("loss_weight"), operator.attrgetter("stale")
_multipliers = operator.attrgetter("lr_mult", "decay_mult", "_owner")
