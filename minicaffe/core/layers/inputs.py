"""Layers without bottoms: Input, whose blobs the user fills, and DummyData, whose blobs fillers fill."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.fillers import ZERO, fill, refill
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays
from minicaffe.core.ops.random import random_stream
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
        return self.split([one.dim for one in self.each("shape")])

    def each(self, key: str) -> list[Any]:
        """A key's entries, one per top, from one for each or one for all. Raises ShapeError."""
        entries, tops = getattr(self, key), max(len(self.top), 1)
        if len(entries) not in (1, tops):
            raise ShapeError(f"{key}: expected 1 or {tops}, one a top, got {len(entries)}")
        return list(entries) * (tops // len(entries))

    def split(self, shapes: list[Shape]) -> list[Shape]:
        """The shapes of this rank's part of each top."""
        self.shares = list(map(self.context.share.of_shape, shapes))
        return [part for _, part, _ in self.shares]

    def resize(self, top: str, shape: Shape) -> None:
        shapes = self.top_shapes()
        shapes[self.top.index(top)] = shape
        self.shape = tuple(BlobShape(dim=one) for one in shapes)

    def forward(self) -> Any:
        return self.out

    def backward(self, *tops: Any) -> Any:
        return []


FIXED = ("constant", "bilinear")  # the same numbers whenever they are asked for
OLD = ("num", "channels", "height", "width")


@register
class DummyData(Input):
    """Blobs of `shape` that `data_filler` fills: once if it is constant, else in each forward pass.

    Both have one entry for all tops, or one for each. Old nets have num, channels, height and width in place
    of shape. Random numbers are a function of (seed, layer, forward pass, top). Source: Caffe's DummyData.

    Example: -> {type: DummyData, shape: {dim: [2, 3]}, data_filler: {type: uniform, max: 9}} -> (2, 3)
    """

    shape: Annotated[tuple[BlobShape, ...], "one {dim: [...]} per top, or one for all"] = ()
    data_filler: Annotated[tuple[Filler, ...], "one per top, or one for all; default: zeros"] = ()
    num: Annotated[tuple[int, ...], "size of axis 0, as old nets spell it", AtLeast(1)] = ()
    channels: Annotated[tuple[int, ...], "size of axis 1, as old nets spell it", AtLeast(1)] = ()
    height: Annotated[tuple[int, ...], "size of axis 2, as old nets spell it", AtLeast(1)] = ()
    width: Annotated[tuple[int, ...], "size of axis 3, as old nets spell it", AtLeast(1)] = ()

    # What is filled once must stay
    traits = Traits(keeps_top=True, recordable=True, takes_share=True)

    def setup(self) -> list[Shape]:
        is_old = any(getattr(self, name) for name in OLD)
        if self.shape and is_old:
            raise ShapeError(f"give either shape or {', '.join(OLD)}, not both")
        self.data_filler = self.data_filler or (ZERO,)
        self.fillers: list[Filler] = self.each("data_filler")
        if is_old:
            return self.split(list(zip(*map(self.each, OLD), strict=True)))
        return super().setup()

    def resize(self, top: str, shape: Shape) -> None:
        super().resize(top, shape)
        self.num = self.channels = self.height = self.width = ()

    def allocate(self) -> None:
        self.drawn = [i for i, one in enumerate(self.fillers) if one.type not in FIXED]
        self.noise = [self.empty((0,))] * len(self.shares)
        for i, (filler, (shape, _, here)) in enumerate(zip(self.fillers, self.shares, strict=True)):
            if i in self.drawn:
                self.noise[i] = self.empty((2, math.prod(shape)), "float32")
            else:
                values = fill(filler, shape, random_stream(self.context.seed, self.name, i))
                values = values[here] if shape else values
                self.context.device.copy_from_host(self.out[i], values.astype(self.out[i].dtype))

    def prepare(self) -> None:
        for i in self.drawn:
            names = self.context.seed, self.name, self.context.passes, i
            refill(self.fillers[i], self.shares[i][0], self.xp, self.noise[i], *names)

    def forward(self) -> Any:
        for i in self.drawn:
            shape, _, here = self.shares[i]
            drawn = self.noise[i][0].reshape(shape)
            arrays.copy(drawn[here] if shape else drawn, self.out[i])
        return self.out
