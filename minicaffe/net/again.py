"""Forward passes that a net infers by: replayed where a whole one repeats those before; how one is noted."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, cast

from minicaffe.layers import Layer
from minicaffe.layers.convolution import Filtered
from minicaffe.net import run
from minicaffe.net.debug import Say
from minicaffe.net.graph import Graph
from minicaffe.net.memory import Memory
from minicaffe.net.recorded import Call, Node, Repeated, Tape
from minicaffe.net.step import Step
from minicaffe.ops import threads
from minicaffe.ops.crew import inside
from minicaffe.spec.types import keys_of

OURS = "minicaffe."
Work = Callable[[], Any]
_blob, _data = operator.attrgetter("blob"), operator.attrgetter("_data")
_watchers, _params = operator.attrgetter("watchers"), operator.attrgetter("layer.params")
_varies = operator.attrgetter("layer.sizes_vary")


class Forward:
    """The forward passes of a net: layer by layer, and whole ones of the phase TEST replayed once they repeat.

    A replay computes the same bits. What it goes by is what a user can change between two passes: where arrays
    lie, keys, which layers are left out. It knows nothing of the net itself, which may be dropped.
    """

    def __init__(self, graph: Graph, memory: Memory):
        self.graph, self.memory = graph, memory
        self.repeated = Repeated(graph.context.device)
        self.values = [value for step in graph.steps for value in step.tops]
        self.steps: Sequence[Step] = []  # those that ran last, and what gives their keys
        self.keys: list[tuple[Callable[[Layer], Any], Layer]] = []

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
        if debug is None and self._repeats(steps):
            self.repeated.run(partial(self._work, todo), partial(self._premise, todo))
            return
        for step in todo:
            run.forward(step, self.graph, self.memory, debug)

    def _work(self, steps: Sequence[Step], tape: Tape | None) -> None:
        if tape is not None:
            note(tape, steps, self.graph, self.memory, lambda _, work: work)
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
        return not (any(map(_watchers, steps)) or any(map(_varies, steps)))

    def _premise(self, steps: Sequence[Step]) -> tuple[Any, ...]:
        if steps != self.steps:
            self.steps = steps
            self.keys = [(keys(cast(Any, type(step.layer))), step.layer) for step in steps]
        blobs, params = map(_blob, self.values), chain.from_iterable(map(_params, steps))
        lies = [*map(id, map(_data, blobs)), *map(id, map(_data, params))]
        told = [get(layer) for get, layer in self.keys]
        context = self.graph.context
        place = id(context._workspace)
        return steps, place, lies, told, threads.share(None), inside.get(), context.state


def note(
    tape: Tape,
    steps: Sequence[Step],
    graph: Graph,
    memory: Memory,
    later: Callable[[Step | None, Work], Work],
) -> None:
    """Run layers forward, and note it; `later` tells how a replay does what has no rows.

    What layers prepare comes first in a replay, and is not recorded.
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


@functools.cache
def keys(kind: Any) -> Callable[[Layer], tuple[Any, ...]]:
    """What a layer of a kind goes by, beside arrays."""
    names = [key.name for key in keys_of(kind).values()]
    names += ["plan"] if issubclass(kind, Filtered) else []
    return operator.attrgetter("forward", "backward", "recordable", "needs_gradient", *names)


def _prepare(steps: Sequence[Step]) -> None:
    for step in steps:
        with step.named():
            step.layer.prepare()
    steps[0].layer.context.slots.send()


def prepares(layer: Layer) -> bool:
    """Whether a layer sets something before each pass."""
    return type(layer).prepare is not Layer.prepare
