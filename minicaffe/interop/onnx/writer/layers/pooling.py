"""Pooling, by Caffe's rules of rounding and clipping, in ONNX's poolings, which have others.

Caffe's number of windows is ceil((size + 2 pad - kernel) / stride) + 1 and, with a pad, no window starts
beyond the image. A pooling that rounds down gives as many if there is room behind the image for

    pad + stride - 1, with a pad at most kernel - 1,

whatever the size is, so that an image may be of any size. What is filled in there is no pixel: it never wins
a maximum, and in a mean, whose divisor is the window clipped to the image and its pad, it does not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.pooling import Pool
from minicaffe.core.net.step import Step
from minicaffe.core.ops.geometry import Sizes, pool_output_size, window_sizes
from minicaffe.core.ops.stochastic import TINY
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import draws, writes

LOWEST = float(np.finfo(np.float32).min)
NOT_DYNAMIC = "cannot be exported with a dynamic height or width: "


@writes("Pooling")
def pooling(graph: Graph, step: Step, x: str) -> Any:
    """A pooling of any kind, and the mask of MAX."""
    layer: Any = step.layer
    if layer.deep is not None:
        return _three_axes(graph, step, x)
    masked, fixed = len(step.tops) > 1, not graph.varies(step.bottoms[0], 2, 3)
    if layer.global_pooling and not masked and layer.pool != "STOCHASTIC":
        return graph.op("GlobalMaxPool" if layer.pool == "MAX" else "GlobalAveragePool", x)
    if layer.global_pooling and not fixed:
        raise SpecError(f"{NOT_DYNAMIC}its window is the image")
    return pooled(graph, Room.of(layer.it, layer.round_mode == "CEIL", fixed), x, masked)


def _three_axes(graph: Graph, step: Step, x: str) -> str:
    """Each image pooled, and then along the axis before it what came of it, as the layer does."""
    layer: Any = step.layer
    if graph.varies(step.bottoms[0], 2, 3, 4):
        raise SpecError(f"{NOT_DYNAMIC}it pools three axes")
    ceil = layer.round_mode == "CEIL"
    x = graph.op("Reshape", x, [0, *layer.it.x_shape[1:]])
    x = pooled(graph, Room.of(layer.it, ceil, True), x, False)
    x = graph.op("Reshape", x, [0, *layer.deep.x_shape[1:]])
    x = pooled(graph, Room.of(layer.deep, ceil, True), x, False)
    return graph.op("Reshape", x, [0, *step.tops[0].shape[1:]])


@draws("Pooling", 0)
def pixels(random: Any, step: Step, shape: Shape) -> Any:
    """None below 0 where STOCHASTIC divides by their sum."""
    normal = random.standard_normal(shape)
    layer: Any = step.layer
    return abs(normal) if layer.pool == "STOCHASTIC" else normal


def pooled(graph: Graph, room: Room, x: str, masked: bool = False) -> Any:
    """The pooling of a tensor; of MAX [top, mask] where that is asked for."""
    if room.pool.kind == "MAX":
        return largest(graph, room, x, masked)
    if room.pool.kind == "AVE":
        return mean(graph, room, x)
    x = room.pad(graph, x, room.end)
    sums = [room.average(graph, part) for part in (graph.op("Mul", x, x), x)]
    squares, total = (graph.op("Mul", part, float(room.count)) for part in sums)
    return graph.op("Div", squares, graph.op("Add", total, TINY))


@dataclass(frozen=True)
class Room:
    """A pooling, and the room behind the image, along each axis, that makes its windows fit."""

    pool: Pool
    end: Sizes
    fixed: bool  # the image's size is known

    @classmethod
    def of(cls, pool: Pool, ceil: bool, fixed: bool) -> Room:
        """The room that any image needs, or, if its size is fixed, no more than the pad where that will do."""
        window, end = pool.window, []
        for axis in (0, 1):
            k, s, p = window.kernel[axis], window.stride[axis], window.pad[axis]
            size, count = pool.x_shape[2 + axis], pool.y_shape[2 + axis]
            fits = fixed and size + 2 * p >= k
            if not ceil or (fits and count == pool_output_size(size, k, s, p, False)):
                end.append(p)
            else:
                end.append(min(p + s, k) - 1 if any(window.pad) else s - 1)
        return cls(pool, tuple(end), fixed)

    @property
    def count(self) -> int:
        """Pixels in a window."""
        return math.prod(self.pool.window.kernel)

    @property
    def past(self) -> bool:
        """Whether a window may lie wholly behind the image; it is 0 then."""
        return any(end >= k for end, k in zip(self.end, self.pool.window.kernel, strict=True))

    def pad(self, graph: Graph, x: str, end: Sizes, value: float = -0.0) -> str:
        """The image with its pad before it and `end` behind.

        Of -0, not 0: that onnxruntime moves into the pooling behind, which takes no pad as large as a window.
        """
        return around(graph, x, self.pool.window.pad, end, value)

    def average(self, graph: Graph, x: str, pads: Sizes = (0, 0, 0, 0)) -> str:
        """The mean of each whole window."""
        window = self.pool.window
        sizes: Any = {"kernel_shape": window.kernel, "strides": window.stride, "pads": pads}
        return graph.op("AveragePool", x, count_include_pad=1, **sizes)


def around(graph: Graph, x: str, begin: Sizes, end: Sizes, value: float) -> str:
    """A tensor with so much of a value before and behind its last two axes."""
    if not any((*begin, *end)):
        return x
    return graph.op("Pad", x, [0, 0, *begin, 0, 0, *end], value)


def largest(graph: Graph, room: Room, x: str, masked: bool) -> Any:
    """Of pixels alone; a window that lies wholly behind the image is 0, and -1 in the mask."""
    window, pool = room.pool.window, room.pool
    sizes: Any = {"kernel_shape": window.kernel, "strides": window.stride}
    if room.past and not room.fixed:
        if masked:
            raise SpecError(f"{NOT_DYNAMIC}its stride is more than its kernel, and it has a mask")
        y = graph.op("MaxPool", room.pad(graph, x, room.end, LOWEST), **sizes)
        return graph.op("Where", graph.op("Equal", y, LOWEST), 0.0, y)
    end = tuple(min(e, k - 1) for e, k in zip(room.end, window.kernel, strict=True))
    y, *places = graph.ops("MaxPool", 1 + masked, x, pads=window.pad + end, **sizes)
    lacks: Sizes = (0, 0)
    if room.past:
        axes = zip(
            pool.x_shape[2:], end, pool.y_shape[2:], window.kernel, window.stride, strict=True
        )
        lacks = tuple(count - (size + more - k) // s - 1 for size, more, count, k, s in axes)
    y = around(graph, y, (0, 0), lacks, 0.0)
    if not masked:
        return y
    h, w = pool.x_shape[2:]
    plane: Any = h * w
    if not room.fixed:
        plane = graph.op("Mul", graph.size(x, 2), graph.size(x, 3))
    mask = graph.op("Cast", graph.op("Mod", places[0], plane), to=1)
    return y, around(graph, mask, (0, 0), lacks, -1.0)


def mean(graph: Graph, room: Room, x: str) -> str:
    """Pads count, and what lies behind them does not."""
    window, shape = room.pool.window, room.pool.x_shape
    if room.end == window.pad:
        return room.average(graph, x, window.pad * 2)
    y = room.average(graph, room.pad(graph, x, room.end))
    if room.fixed:
        rows, columns = (
            np.maximum(window_sizes(shape[2 + i], room.pool.y_shape[2 + i], *of), 1)
            for i, of in enumerate(zip(window.kernel, window.stride, window.pad, strict=True))
        )
        return graph.op("Mul", y, room.count / (rows[:, None] * columns))
    image = graph.op("Concat", [1, 1], graph.size(x, 2), graph.size(x, 3), axis=0)
    ones = room.pad(graph, graph.op("Expand", 1.0, image), window.pad, 1.0)
    behind = tuple(end - p for end, p in zip(room.end, window.pad, strict=True))
    counted = room.average(graph, around(graph, ones, (0, 0), behind, -0.0))
    return graph.op("Div", y, graph.op("Max", counted, 1 / room.count))
