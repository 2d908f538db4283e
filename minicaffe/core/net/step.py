"""A built net: values, the steps that refer to them, and the graph; without a cycle, it is freed at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.layers import Blob, Context, Layer, Param
from minicaffe.core.layers.blob import Shape, Versioned
from minicaffe.errors import ByName, LayerError, MinicaffeError, SpecError, did_you_mean, raised_at


@dataclass(eq=False)
class Value(Versioned):
    """One version of a blob: each layer in place writes a new value of the same name."""

    name: str
    shape: Shape
    producer: Layer
    dtype: Any = None
    readers: int = 0  # how many bottoms read it
    loss_weight: float = 0.0
    wants_gradient: bool = False  # something below it learns
    gets_gradient: bool = False  # something above it is a loss
    reuses: Value | None = None  # the value whose memory it takes over
    blob: Blob = None  # type: ignore[assignment]

    @property
    def root(self) -> Value:
        """The first value in its memory: itself, or the one before all work in place."""
        return self if self.reuses is None else self.reuses.root


@dataclass(eq=False)
class Step:
    """A layer of a net, with the values that it reads and writes; a context that adds its place to errors."""

    spec: LayerSpec
    layer: Layer
    bottoms: list[Value]
    tops: list[Value] = field(default_factory=list)
    watchers: dict[str, list[Callable[[], Any]]] = field(default_factory=dict)
    ran: bool = False  # forward, since its memory was allocated

    @property
    def prepares(self) -> bool:
        """Whether the layer defines `prepare`."""
        return "prepare" in vars(self.layer) or type(self.layer).prepare is not Layer.prepare

    def tell(self, when: str) -> None:
        """Call the watchers of an event: "before_forward", ..."""
        for watcher in self.watchers.get(when, ()):
            watcher()

    @property
    def place(self) -> str:
        """The place and name of the layer, for error messages."""
        return self.spec.place()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        if isinstance(error, MinicaffeError):
            raise error.at(self.place) from None
        own = not type(self.layer).__module__.startswith("minicaffe.")
        if isinstance(error, Exception) and own:
            raise LayerError(f"{self.place}: {raised_at(error)}") from error


@dataclass(eq=False)
class Graph:
    """A net in one phase: its layers in order, and what they share."""

    spec: NetSpec
    file: str  # of the model, for error messages
    steps: list[Step]
    context: Context
    forced: bool  # all gradients are computed, needed or not
    inputs: dict[Any, Any] = field(default_factory=dict)  # the results of `inputs.given_to`

    @property
    def name(self) -> str:
        """The net's name."""
        return self.spec.name

    @functools.cached_property
    def layers(self) -> dict[str, Layer]:
        """Every layer by its name."""
        return ByName("layer", {step.spec.name: step.layer for step in self.steps})

    @functools.cached_property
    def params(self) -> dict[str, list[Param]]:
        """The parameters of every layer that has any, by its name."""
        some = {name: layer.params for name, layer in self.layers.items() if layer.params}
        return ByName("layer with parameters", some)

    @functools.cached_property
    def learnable(self) -> list[Param]:
        """Every parameter once, in the order of the layers."""
        return [param for some in self.params.values() for param in some if param.owner is param]

    def range(self, start: str | None, end: str | None) -> tuple[int, int]:
        """The numbers of the first and the last of the layers from `start` to `end`. Raises SpecError."""
        names = list(self.layers)
        for name in (start, end):
            if name is not None and name not in names:
                raise SpecError(f"there is no layer {name!r}{did_you_mean(name, names)}")
        first = 0 if start is None else names.index(start)
        last = len(names) - 1 if end is None else names.index(end)
        if first > last:
            raise SpecError(f"layer {names[first]!r} stands after layer {names[last]!r}")
        return first, last

    @functools.cached_property
    def outputs(self) -> dict[str, Value]:
        """The values that no layer reads, by name."""
        return {v.name: v for step in self.steps for v in step.tops if not v.readers}

    @functools.cached_property
    def losses(self) -> list[Value]:
        """The values that are added to the loss."""
        return [value for step in self.steps for value in step.tops if value.loss_weight]
