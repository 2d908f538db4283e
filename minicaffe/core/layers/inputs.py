"""The layer Input, whose blobs the user fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import ShapeError


@dataclass(frozen=True, kw_only=True)
class BlobShape:
    """The shape of one blob."""

    dim: Annotated[tuple[int, ...], "sizes of the axes", AtLeast(1)]


@register
class Input(Layer):
    """Blobs that the user fills: net.forward(data=x). Source: Caffe's Input.

    On several ranks, each rank fills its share of the batch (see docs/scale.md).

    Example: -> {type: Input, shape: {dim: [2, 3]}} -> (2, 3)
    """

    shape: Annotated[tuple[BlobShape, ...], "one {dim: [...]} per top, or one for all"]

    traits = Traits(keeps_top=True, tops_apart=True, recordable=True, takes_share=True)

    def setup(self) -> list[Shape]:
        tops = max(len(self.top), 1)
        if len(self.shape) not in (1, tops):
            raise ShapeError(f"needs 1 or {tops} shapes, got {len(self.shape)}")
        given = [shape.dim for shape in self.shape] * (tops // len(self.shape))
        return [part for _, part, _ in map(self.context.share.of_shape, given)]

    def resize(self, top: str, shape: Shape) -> None:
        """Set the shape of one top."""
        shapes = self.top_shapes()
        shapes[self.top.index(top)] = shape
        self.shape = tuple(BlobShape(dim=one) for one in shapes)

    def forward(self) -> Any:
        return self.out

    def backward(self, *tops: Any) -> Any:
        return []
