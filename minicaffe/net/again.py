"""Forward passes that a net infers by: replayed where a whole one repeats those before; how one is noted."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from minicaffe.errors import DataError
from minicaffe.layers import Context, Layer
from minicaffe.net import run
from minicaffe.net.debug import Say
from minicaffe.net.graph import Graph
from minicaffe.net.guards import Guard
from minicaffe.net.memory import Memory
from minicaffe.net.recorded import Call, Node, Repeated, Tape
from minicaffe.net.step import Step

OURS = "minicaffe."
Work = Callable[[], Any]
_watchers = operator.attrgetter("watchers")


class Forward:
    """The forward passes of a net: layer by layer, and whole ones of the phase TEST replayed once they repeat.

    A replay computes the same bits, and raises what an ordinary pass would, for as long as the `guard` holds.
    It does not refer to the net, which may be dropped.
    """

    def __init__(self, graph: Graph, memory: Memory):
        self.graph, self.memory = graph, memory
        self.repeated = Repeated(graph.context.device)
        self.guard = Guard(graph, memory, trains=False)

    @property
    def nodes(self) -> Sequence[Node]:
        """What a replay goes through; nothing while passes are not replayed."""
        return self.repeated.nodes or []

    def forget(self) -> None:
        """Begin anew, and keep no array alive."""
        self.repeated = Repeated(self.graph.context.device)

    def run(self, steps: Sequence[Step], left_out: Collection[Step], debug: Say) -> None:
        """Run some neighbouring layers, but for those that are left out."""
        todo = [step for step in steps if step not in left_out]
        self.graph.context.refused[0] = 0
        if debug is None and self._repeats(steps):
            self.repeated.run(partial(self._work, todo), partial(self.guard.of_passes, todo))
            return
        for step in todo:
            run.forward(step, self.graph, self.memory, debug)

    def _work(self, steps: Sequence[Step], tape: Tape | None) -> None:
        if tape is not None:
            note(tape, steps, self.graph, self.memory, lambda _, work: work, checks=True)
            return
        for step in steps:
            run.forward(step, self.graph, self.memory)

    def _repeats(self, steps: Sequence[Step]) -> bool:
        """Whether passes through these layers may be replayed."""
        context = self.graph.context
        if context.phase != "TEST" or context.device.is_cuda:
            return False
        if len(steps) < len(self.graph.steps):
            return False
        return not (self.guard.never or any(map(_watchers, steps)))


def note(
    tape: Tape,
    steps: Sequence[Step],
    graph: Graph,
    memory: Memory,
    later: Callable[[Step | None, Work], Work],
    checks: bool = False,
) -> None:
    """Run layers forward, and note it; `later` tells how a replay does what has no rows.

    What layers prepare comes first in a replay, and is not recorded. With `checks` a replay raises, behind the
    rows of a layer, what the layer would; without, whoever replays looks at `Context.refused`.
    """
    called = any(isinstance(one, Call) for one in tape.notes)  # else it can come first of all
    begins, ready = len(tape.notes) if called else 0, []
    for step in steps:
        what, why = f"{step.spec.name} forward", why_not(step.layer)
        work, first = partial(run.forward, step, graph, memory), prepares(step.layer)
        alone = partial(run.forward, step, graph, memory, prepare=False)
        if first:
            _prepare([step])
        if tape.take(what, alone, why, later(step, alone), twice(step)):
            ready += [step] * first
            if checks and refuses(step):
                checked = partial(check, graph.context, [step])
                tape.notes.append(Call(what, "labels are checked", checked, sets=True))
        elif first:
            tape.notes[-1] = replace(cast(Call, tape.notes[-1]), work=later(step, work))
    if ready:
        work = partial(_prepare, ready)
        call = Call("the batch", "numbers that loops read", later(None, work), sets=True)
        tape.notes.insert(begins, call)


def why_not(layer: Layer) -> str:
    """Why a layer cannot be recorded, as far as it can be told beforehand; else nothing."""
    of, on_cuda = (type(layer), layer.forward, layer.backward), layer.context.device.is_cuda
    if on_cuda and layer.capturable is not None:
        return "" if layer.capturable else f"{type(layer).__name__} says capturable = False"
    if not all(getattr(one, "__module__", "").startswith(OURS) for one in of):
        return "its Python is not minicaffe's"
    if layer.recordable or on_cuda:
        return ""
    return f"{type(layer).__name__} computes on the host"


def twice(step: Step) -> bool:
    """Whether a pass through a layer, done twice, does no more than done once: no file is read or written."""
    return bool(step.bottoms and step.tops) and type(step.layer).__module__.startswith(OURS)


def _prepare(steps: Sequence[Step]) -> None:
    for step in steps:
        with step.named():
            step.layer.prepare()
    steps[0].layer.context.slots.send()


def prepares(layer: Layer) -> bool:
    """Whether a layer sets something before each pass."""
    return type(layer).prepare is not Layer.prepare


def refuses(step: Step) -> bool:
    """Whether a layer may refuse labels, indices or regions, which a replay only sets a flag for."""
    return type(step.layer).check is not Layer.check


def check(context: Context, steps: Sequence[Step]) -> None:
    """Raise the DataError of the layer that has refused something in a replay, if one has."""
    if not context.refused[0]:
        return
    context.refused[0] = 0
    for step in steps:
        with step.named():
            step.layer.check()
    raise DataError("a label, index or region is not one that the net knows")
