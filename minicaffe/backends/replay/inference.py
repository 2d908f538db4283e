"""Forward passes of a net; the whole pass of the phase TEST is replayed once two traces of it are equal."""

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from minicaffe.backends.replay.guards import Guard
from minicaffe.backends.replay.replay import Call, Node, Repeated, Tape, Weights
from minicaffe.core.layers import Context, Layer
from minicaffe.core.layers.convolution import Filtered
from minicaffe.core.net import run
from minicaffe.core.net.debug import Say
from minicaffe.core.net.memory import Memory
from minicaffe.core.net.step import Graph, Step
from minicaffe.errors import DataError

OURS = "minicaffe."
Work = Callable[[], Any]
_watchers = operator.attrgetter("watchers")


class Replayed(run.Forward):
    """The forward passes of a net; whole passes of the phase TEST are replayed once two traces are equal.

    A replay has the bits and the errors of an ordinary pass while the `guard` holds. It keeps no net alive.
    """

    def __init__(self, graph: Graph, memory: Memory):
        super().__init__(graph, memory)
        filtered = [step.layer for step in graph.steps if isinstance(step.layer, Filtered)]
        self.weights = Weights([param for layer in filtered for param in layer.params])
        self.repeated = Repeated(graph.context.device, self.weights)
        self.guard = Guard(graph, memory, trains=False)
        able = [step.layer for step in graph.steps if refuses(step)]
        flags = graph.context.refused = np.zeros(len(able), np.int32)
        graph.context.refusals = flags.data
        for i, layer in enumerate(able):
            layer.refused = flags[i : i + 1]

    @property
    def nodes(self) -> Sequence[Node]:  # type: ignore[override]
        """The nodes of a replay; empty while passes are not replayed."""
        return self.repeated.nodes or []

    def forget(self) -> None:
        """Drop the traces, and keep no array alive."""
        self.repeated.begin()
        self.guard.listed = None

    def run(self, steps: Sequence[Step], left_out: Collection[Step], debug: Say | None) -> None:
        """Run some neighbouring layers, except those that are left out."""
        whole = self.graph.context.phase == "TEST" and len(steps) == len(self.graph.steps)
        never = debug is not None or self.never or self.guard.never
        if never or not whole or any(map(_watchers, steps)):
            super().run(steps, left_out, debug)
            return
        todo = [step for step in steps if step not in left_out]
        try:
            self.weights.look()
            self.repeated.run(partial(self._work, todo), partial(self.guard.of_passes, todo))
        except BaseException:
            self.graph.context.refused.fill(0)
            self.weights.seen = []
            raise

    def _work(self, steps: Sequence[Step], tape: Tape | None) -> None:
        if tape is not None:
            note(tape, steps, self.graph, self.memory, lambda _, work: work)
            return
        super().run(steps, (), None)


def note(
    tape: Tape,
    steps: Sequence[Step],
    graph: Graph,
    memory: Memory,
    later: Callable[[Step | None, Work], Work],
    unchecked: list[Step] | None = None,
) -> None:
    """Run layers forward and record them; `later` returns the form in which a replay calls Python work.

    In a replay the layers' `prepare` comes first; it is not recorded. A replay checks a layer's refusals
    after its commands; or, with a list of `unchecked` layers, before the next call of Python, and
    the caller checks the layers that are left in the list.
    """
    called = any(isinstance(one, Call) for one in tape.notes)  # else `prepare` comes first
    begins, ready = len(tape.notes) if called else 0, []
    for step in steps:
        what, why = f"{step.spec.name} forward", why_not(step.layer)
        work, first = partial(run.forward, step, graph, memory), step.prepares
        alone = partial(run.forward, step, graph, memory, prepare=False)
        if first:
            _prepare([step])
        if tape.take(what, alone, why, later(step, alone), twice(step)):
            ready += [step] * first
            if refuses(step) and unchecked is not None:
                unchecked.append(step)
            elif refuses(step):
                tape.notes.append(checks([step]))
            continue
        if first:
            tape.notes[-1] = replace(cast(Call, tape.notes[-1]), work=later(step, work))
        check_before_the_last(tape, unchecked)
    if ready:
        work = partial(_prepare, ready)
        call = Call("the batch", "numbers that loops read", later(None, work), sets=True)
        tape.notes.insert(begins, call)


def why_not(layer: Layer) -> str:
    """Why a layer cannot be recorded, if that is known before it runs; else ""."""
    of, on_cuda = (type(layer), layer.forward, layer.backward), layer.context.device.is_cuda
    if on_cuda and layer.traits.capturable is not None:
        return "" if layer.traits.capturable else f"{type(layer).__name__} says capturable=False"
    if not all(getattr(one, "__module__", "").startswith(OURS) for one in of):
        return "its Python is not minicaffe's"
    if layer.traits.recordable or on_cuda:
        return ""
    return f"{type(layer).__name__} computes on the host"


def twice(step: Step) -> bool:
    """Whether a pass through a layer is idempotent: no file is read or written."""
    return bool(step.bottoms and step.tops) and type(step.layer).__module__.startswith(OURS)


def _prepare(steps: Sequence[Step]) -> None:
    for step in steps:
        with step:
            step.layer.prepare()
    steps[0].layer.context.slots.send()


def refuses(step: Step) -> bool:
    """Whether a layer may refuse labels, indices or regions; a replay then only sets its flag."""
    return not step.layer.context.device.is_cuda and type(step.layer).check is not Layer.check


def checks(steps: Sequence[Step]) -> Call:
    """The call by which a replay raises the refusals of some layers."""
    return Call("checks", "labels, indices and regions", partial(check, [*steps]), sets=True)


def check_before_the_last(tape: Tape, unchecked: list[Step] | None, notes: int = 1) -> None:
    """Let a replay check layers before the last of the notes, which calls Python, or before so many."""
    if unchecked:
        tape.notes.insert(len(tape.notes) - notes, checks(unchecked))
        unchecked.clear()


def check(steps: Sequence[Step], context: Context | None = None) -> None:
    """Raise the DataError of the first layer that refused something in a replay; `context` has all flags."""
    if context is not None and not any(context.refusals):
        return
    for step in steps:
        if step.layer.refused[0]:
            with step:
                step.layer.refused[0] = 0
                step.layer.check()
                raise DataError("a label, index or region is not valid")
