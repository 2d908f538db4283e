"""The parts of a built net: values, and steps that read and write them.

References go one way, from a step to its values: a net that is dropped is freed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from minicaffe.core.config.declare import LayerSpec
from minicaffe.core.layers import Blob, Layer
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import LayerError, MinicaffeError, raised_at


@dataclass(eq=False)
class Value:
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
