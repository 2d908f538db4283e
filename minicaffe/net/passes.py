"""The passes of a net noted layer by layer, so that they can be replayed; and what a replay goes by."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from minicaffe.layers import Layer
from minicaffe.net import run
from minicaffe.net.net import Net
from minicaffe.net.recorded import Call, Tape
from minicaffe.net.step import Step
from minicaffe.ops import threads
from minicaffe.spec.types import keys_of

OURS = "minicaffe."


class Passes:
    """Whole passes of a net, forward and backward, as often as `tape` is told of them.

    `begin` comes before the first, in a replay too, `end` behind the last.
    """

    def __init__(self, net: Net):
        self.net, self.first = net, 0

    def begin(self, first: int) -> None:
        """The passes begin, as the net's pass of that number."""
        self.net.context.passes = self.first = first

    def forward(self, tape: Tape | None) -> None:
        """Run all layers."""
        net = self.net
        if tape is None:
            net.forward()
            return
        begins, ready = len(tape.notes), []
        with net.memory.sharing.over("data", 0, len(net.steps) - 1, ()):
            for step in net.steps:
                work = partial(run.forward, step, net.graph, net.memory)
                what, why = f"{step.spec.name} forward", why_not(step.layer)
                if tape.take(what, work, why, self._later(step, work)) and _prepares(step.layer):
                    ready.append(step)
        if ready:
            work = partial(_prepare, ready)
            tape.notes.insert(
                begins, Call("the batch", "numbers that loops read", self._later(None, work))
            )
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
                tape.take(f"{step.spec.name} backward", work, why, self._later(step, again))

    def end(self, tape: Tape | None) -> None:
        """The passes are over: in a replay, too, the net is to be as they leave it."""
        if tape is not None:
            work = partial(self._end, [p for p in self.net.learnable if p.stale])
            tape.notes.append(
                Call("the end", "what the net knows of itself", self._later(None, work))
            )

    def _end(self, unwritten: Sequence[Any]) -> None:
        for param in unwritten:
            param.stale = True
        self.net.memory.sharing.held = self.net.memory.sharing.whole

    def _later(self, step: Step | None, work: Callable[[], Any]) -> Callable[[], Any]:
        """Work as a replay is to do it: the number of the pass, and which gradients are stale, as now."""
        params = [] if step is None else [param.owner for param in step.layer.params]
        stale = [(param, param.stale) for param in params]
        return partial(self._again, self.net.context.passes - self.first, stale, work)

    def _again(
        self, passes: int, stale: Sequence[tuple[Any, bool]], work: Callable[[], Any]
    ) -> None:
        self.net.context.passes = self.first + passes
        for param, was in stale:
            param.stale = was
        work()


def _prepare(steps: Sequence[Step]) -> None:
    """What the layers do on the host before the rows of a pass."""
    for step in steps:
        with step.named():
            step.layer.prepare()


def _prepares(layer: Layer) -> bool:
    return type(layer).prepare is not Layer.prepare


def _backward(step: Step, net: Net, written: frozenset[int]) -> None:
    run.backward(step, net.device, set(written), net.memory.scratch, net.loss_scale)


def why_not(layer: Layer) -> str:
    """Why a layer cannot be recorded, as far as it can be told beforehand; else nothing."""
    of = type(layer), layer.forward, layer.backward
    if not all(getattr(one, "__module__", "").startswith(OURS) for one in of):
        return "its Python is not minicaffe's"
    return "" if layer.recordable else f"{type(layer).__name__} computes on the host"


def premise(net: Net) -> tuple[Any, ...] | None:
    """What recorded passes of a net go by; None while they are not to be replayed, whatever it is.

    That is where all arrays lie, and each key and multiplier: what else a user can change between two passes.
    """
    context, held = net.context, net.memory
    seen = net.debug is not None or net._left_out or type(net) is not Net
    if net.device.is_cuda or seen or "forward" in vars(net) or "backward" in vars(net):
        return None
    lies: list[Any] = [context._workspace, held.scratch, held.sharing.block]
    told: list[Any] = [threads.share(None), context.state, context.engine, net.loss_scale]
    for step in net.steps:
        layer = step.layer
        if step.watchers or layer.sizes_vary:
            return None
        kind: Any = type(layer)
        told += _keys(kind)(layer), layer.needs_gradient[:], vars(layer).get("plan")
        for value in step.tops:
            told.append(value.loss_weight)
            lies += _arrays(value.blob)
        for param in layer.params:
            told += _multipliers(param)
            lies += _arrays(param)
    return list(map(id, lies)), told


_arrays = operator.attrgetter("_data", "_diff")
_multipliers = operator.attrgetter("lr_mult", "decay_mult", "_owner")


@functools.cache
def _keys(kind: Any) -> Callable[[Layer], tuple[Any, ...]]:
    names = [key.name for key in keys_of(kind).values()]
    return operator.attrgetter("forward", "backward", "recordable", "runs_backward", *names)
