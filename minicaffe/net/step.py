"""What a built net is made of: values that flow, and steps that read and write them.

References go one way, from a step to its values: a net that is dropped is freed at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from minicaffe.errors import LayerError, MinicaffeError, raised_at
from minicaffe.layers import Blob, Layer
from minicaffe.layers.blob import Shape
from minicaffe.spec.declare import LayerSpec


@dataclass(eq=False)
class Value:
    """What a layer writes: a blob's name at one stage of its life."""

    name: str
    shape: Shape
    producer: Layer
    dtype: Any = None
    readers: int = 0  # how many bottoms it is
    loss_weight: float = 0.0
    wants_gradient: bool = False  # something below it learns
    gets_gradient: bool = False  # something above it is a loss
    reuses: Value | None = None  # the value whose memory it takes over
    blob: Blob = None  # type: ignore[assignment]

    @property
    def root(self) -> Value:
        """The value whose memory it is: itself, or the first of those that were worked on in place."""
        return self if self.reuses is None else self.reuses.root


@dataclass(eq=False)
class Step:
    """A layer in its place: the values it reads and writes."""

    spec: LayerSpec
    layer: Layer
    bottoms: list[Value]
    tops: list[Value] = field(default_factory=list)
    watchers: dict[str, list[Callable[[], Any]]] = field(default_factory=dict)
    ran: bool = False  # forward, since its memory was taken

    def tell(self, when: str) -> None:
        """Call who wants to know that the step is now before or after its pass: "before_forward", ..."""
        for watcher in self.watchers.get(when, ()):
            watcher()

    @property
    def place(self) -> str:
        """Where and what, for error messages."""
        return self.spec.place()

    def named(self) -> Step:
        """Within it, an error has the layer's place before its message; own layers' errors included."""
        return self

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
