"""The guards of replays: what a trace of a net's passes assumes, and whether that still holds."""

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, cast

from minicaffe.backends.cpu.threads import count as threads
from minicaffe.backends.replay.replay import Assumed
from minicaffe.backends.thread_state import inside, state
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import Layer
from minicaffe.core.layers.blob import Versioned
from minicaffe.core.layers.convolution import Filtered
from minicaffe.core.net.memory import Memory
from minicaffe.core.net.net import Net
from minicaffe.core.net.step import Graph, Step

_blob = operator.attrgetter("blob")
_data, _diff = operator.attrgetter("_data"), operator.attrgetter("_diff")
_params, _needs = operator.attrgetter("params"), operator.attrgetter("needs_gradient")
_weight = operator.attrgetter("loss_weight")
is_stale = operator.attrgetter("stale")  # whether a gradient is zero, whatever the memory holds
_multipliers = operator.attrgetter("lr_mult", "decay_mult", "_owner")
_passes = operator.attrgetter("forward", "backward", "traits")  # of a class


class Guard:
    """What traces of a net's passes assume: all that a user can change between two passes.

    These are the addresses of arrays, the keys of layers, the multipliers of parameters. With `trains` the
    passes are forward and backward, else forward. `never` is a reason why nothing can be replayed, or "".
    It does not refer to the net, which may be dropped.
    """

    def __init__(self, graph: Graph, memory: Memory, trains: bool):
        self.context, self.memory, self.trains = graph.context, memory, trains
        self.never = ""
        if any(step.layer.traits.sizes_vary for step in graph.steps):
            self.never = "the size of a top varies"
        self.values = [value for step in graph.steps for value in step.tops]
        # The layers of the last call, and with each a function that returns its settings
        self.steps: Sequence[Step] = []
        self.layers: list[Layer] = []
        self.keys: list[tuple[Callable[[Layer], Any], Layer]] = []
        self.kinds: list[type] = []
        # What few things were when all was listed last, and the list
        self.listed: tuple[Assumed, Assumed] | None = None

    def of_passes(
        self, steps: Sequence[Step], objects: Iterable[Any] = (), settings: Any = None
    ) -> Assumed:
        """What passes through these layers assume now, with the caller's objects and settings.

        All is listed again once anything was set (`Versioned`; examples/benchmarks/results/guard_cpu.json).
        """
        if steps != self.steps:
            self.steps = list(steps)
            self.layers = [step.layer for step in steps]
            self.keys = [(keys(cast(Any, type(layer))), layer) for layer in self.layers]
        context = self.context
        of_net = context.taken, context.state, threads(), state.most_threads, inside.get()
        objects = [vars(context).get("workspace"), self.memory.scratch, *objects, *steps]
        needs = [*map(tuple, map(_needs, self.layers))] if self.trains else ()
        version = Versioned.version, [*map(_passes, self.kinds)], needs
        few = Assumed(objects, (version, of_net, settings))
        if self.listed is None or not self.listed[0].holds(few):
            self.listed = few, self._all(objects, (of_net, settings))
        return self.listed[1]

    def _all(self, objects: Sequence[Any], settings: Any) -> Assumed:
        """What the passes assume: each array of a blob, each setting of a layer and of a parameter."""
        self.kinds = list(dict.fromkeys(map(type, self.layers)))
        params = list(chain.from_iterable(map(_params, self.layers)))
        blobs = [*map(_blob, self.values), *params]
        of_layers: list[Any] = [get(layer) for get, layer in self.keys]
        every = [*objects, *map(_data, blobs)]
        if self.trains:
            every += map(_diff, blobs)
            of_layers += map(tuple, map(_needs, self.layers))
            of_layers += map(_weight, self.values)
            of_layers += map(_multipliers, params)
        return Assumed(every, (of_layers, settings))


class Premise(Guard):
    """The guard of a net's passes forward and backward, and of updates by them."""

    def __init__(self, net: Net):
        super().__init__(net.graph, net.memory, trains=True)
        self.net = net
        self.watchers = [step.watchers for step in net.steps]
        self.params = [param for step in net.steps for param in step.layer.params]

    def of_all(self, objects: Iterable[Any]) -> Assumed:
        """What whole passes and their update assume now."""
        settings = self.net.loss_scale, [*map(is_stale, self.params)]
        return self.of_passes(self.net.steps, objects, settings)

    def of_update(self, objects: Iterable[Any]) -> Assumed:
        """What an update assumes now."""
        params, of_threads = self.params, (threads(), state.most_threads, inside.get())
        every = [*objects, *params, *map(_data, params), *map(_diff, params)]
        return Assumed(every, [*map(_multipliers, params), *map(is_stale, params), *of_threads])

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


@functools.cache
def keys(kind: Any) -> Callable[[Layer], tuple[Any, ...]]:
    """A function that returns the settings of a layer of a class."""
    names = [key.name for key in keys_of(kind).values()]
    names += ["plan"] if issubclass(kind, Filtered) else []
    return operator.attrgetter("forward", "backward", "traits", "runs_backward", *names)
