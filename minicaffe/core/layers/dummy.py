"""DummyData: blobs filled by fillers, to test or time a net without data."""

from __future__ import annotations

import math
from typing import Annotated, Any

from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.fillers import ZERO, fill, refill
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.core.ops import arrays
from minicaffe.core.ops.random import random_stream
from minicaffe.errors import ShapeError

FIXED = ("constant", "bilinear")  # the same numbers whenever they are asked for
OLD = ("num", "channels", "height", "width")


@register
class DummyData(Layer):
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
        tops = max(len(self.top), 1)
        old = [getattr(self, name) for name in OLD]
        if self.shape and any(old):
            raise ShapeError(f"give either shape or {', '.join(OLD)}, not both")
        self.fillers: list[Filler] = _each(self.data_filler or (ZERO,), tops, "data_filler")
        if any(old):
            sizes = [_each(given, tops, name) for given, name in zip(old, OLD, strict=True)]
            self.shapes = list(zip(*sizes, strict=True))
        else:
            self.shapes = [one.dim for one in _each(self.shape, tops, "shape")]
        self.shares = list(map(self.context.share.of_shape, self.shapes))
        return [part for _, part, _ in self.shares]

    def resize(self, top: str, shape: Shape) -> None:
        """Set the shape of one top."""
        shapes = self.top_shapes()
        shapes[self.top.index(top)] = shape
        self.shape = tuple(BlobShape(dim=one) for one in shapes)
        self.num = self.channels = self.height = self.width = ()

    def allocate(self) -> None:
        self.drawn = [i for i, one in enumerate(self.fillers) if one.type not in FIXED]
        self.noise = [self.empty((0,))] * len(self.shapes)
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

    def backward(self, *tops: Any) -> Any:
        return []


def _each(given: tuple[Any, ...], tops: int, name: str) -> list[Any]:
    """One entry per top, from one for each or one for all. Raises ShapeError."""
    if len(given) not in (1, tops):
        raise ShapeError(f"{name}: expected 1 or {tops}, one a top, got {len(given)}")
    return list(given) * (tops // len(given))
