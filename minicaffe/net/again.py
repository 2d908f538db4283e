"""Forward passes that a net infers by: replayed where a whole one repeats those before; how one is noted."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain
from typing import Any

from minicaffe.layers import Layer
from minicaffe.layers.convolution import Filtered
from minicaffe.net import run
from minicaffe.net.debug import Say
from minicaffe.net.graph import Graph
from minicaffe.net.memory import Memory
from minicaffe.net.recorded import Call, Node, Repeated, Tape
from minicaffe.net.step import Step
from minicaffe.ops import loops, threads
from minicaffe.ops.crew import inside
from minicaffe.spec.types import keys_of

OURS = "minicaffe."
Work = Callable[[], Any]


class Forward:
    """The forward passes of a net: layer by layer, and whole ones of the phase TEST replayed once they repeat.

    A replay computes the same bits. What it goes by is what a user can change between two passes: where arrays
    lie, keys, which layers are left out. It knows nothing of the net itself, which may be dropped.
    """

    def __init__(self, graph: Graph, memory: Memory):
        self.graph, self.memory, self.repeated = graph, memory, Repeated()

    @property
    def nodes(self) -> Sequence[Node]:
        """What a replay goes through; nothing while passes are not replayed."""
        return self.repeated.nodes or []

    def forget(self) -> None:
        """Begin anew, and keep no array alive."""
        self.repeated = Repeated()

    def run(self, steps: Sequence[Step], left_out: Collection[Step], debug: Say) -> None:
        """Run some neighbouring layers, but for those that are left out."""
        todo = [step for step in steps if step not in left_out]
        if debug is None and self._repeats(steps):
            self.repeated.run(partial(self._work, todo), partial(self._premise, todo))
            return
        for step in todo:
            run.forward(step, self.graph, self.memory, debug)

    def _work(self, steps: Sequence[Step], tape: Tape | None) -> None:
        works = [(step, partial(run.forward, step, self.graph, self.memory)) for step in steps]
        if tape is None:
            for _, work in works:
                work()
        else:
            note(tape, works, lambda _, work: work)

    def _repeats(self, steps: Sequence[Step]) -> bool:
        """Whether passes through these layers may be replayed."""
        context = self.graph.context
        if context.phase != "TEST" or context.device.is_cuda or not loops.available():
            return False
        if len(steps) < len(self.graph.steps):
            return False
        return not any(step.watchers or step.layer.sizes_vary for step in steps)

    def _premise(self, steps: Sequence[Step]) -> tuple[Any, ...]:
        layers: list[Any] = [step.layer for step in steps]
        blobs = (value.blob for step in self.graph.steps for value in step.tops)
        lies = (array._data for array in chain(blobs, *(layer.params for layer in layers)))
        places = [*map(id, steps), id(self.graph.context._workspace), *map(id, lies)]
        told = [keys(layer.__class__)(layer) for layer in layers]
        return places, told, threads.share(None), inside.get(), self.graph.context.state


def note(
    tape: Tape, works: Sequence[tuple[Step, Work]], later: Callable[[Step | None, Work], Work]
) -> None:
    """Do the forward work of layers, and note it; `later` tells how a replay does what has no rows.

    What layers prepare on the host comes first in a replay.
    """
    begins, ready = len(tape.notes), []
    for step, work in works:
        what, why = f"{step.spec.name} forward", why_not(step.layer)
        if tape.take(what, work, why, later(step, work)) and _prepares(step.layer):
            ready.append(step)
    if ready:
        work = partial(_prepare, ready)
        tape.notes.insert(begins, Call("the batch", "numbers that loops read", later(None, work)))


def why_not(layer: Layer) -> str:
    """Why a layer cannot be recorded, as far as it can be told beforehand; else nothing."""
    of = type(layer), layer.forward, layer.backward
    if not all(getattr(one, "__module__", "").startswith(OURS) for one in of):
        return "its Python is not minicaffe's"
    return "" if layer.recordable else f"{type(layer).__name__} computes on the host"


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


def _prepares(layer: Layer) -> bool:
    return type(layer).prepare is not Layer.prepare
