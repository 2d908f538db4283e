"""Layers that move numbers and compute none."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes

END = np.iinfo(np.int64).max  # as far as an axis goes


@writes("Reshape", "Flatten")
def viewed(graph: Graph, step: Step, x: str) -> str:
    """The top's shape."""
    return graph.reshape(x, graph.shapes(step.bottoms[0]), graph.shapes(step.tops[0]))


@writes("Permute")
def permute(graph: Graph, step: Step, x: str) -> str:
    """Transpose."""
    return graph.op("Transpose", x, perm=step.layer.axes)  # type: ignore[attr-defined]


@writes("ShuffleChannel")
def shuffle_channel(graph: Graph, step: Step, x: str) -> str:
    """The groups an axis of their own, exchanged with that of their channels."""
    group: int = step.layer.group  # type: ignore[attr-defined]
    shapes = graph.shapes(step.bottoms[0])
    before = [(n, group, c // group, *image) for n, c, *image in shapes]
    after = [(n, c // group, group, *image) for n, c, *image in shapes]
    axes = len(before[0])
    x = graph.reshape(x, shapes, before)
    x = graph.op("Transpose", x, perm=[0, 2, 1, *range(3, axes)])
    return graph.reshape(x, after, shapes)


@writes("Crop")
def crop(graph: Graph, step: Step, x: str, like: str) -> str:
    """Slice, to where the other bottom's sizes end."""
    layer: Any = step.layer
    first, axes = canonical_axis(layer.axis, step.bottoms[0].shape), len(step.bottoms[0].shape)
    cropped = list(range(first, axes))
    starts = [layer.part[axis].start for axis in cropped]
    if graph.varies(step.bottoms[1], *cropped):
        size = graph.op("Shape", like, start=first, end=axes)
        ends = graph.op("Add", size, starts)
    else:
        ends = graph.const([layer.part[axis].stop for axis in cropped])
    return graph.op("Slice", x, starts, ends, cropped)


@writes("Tile")
def tile(graph: Graph, step: Step, x: str) -> str:
    """Tile along one axis."""
    layer: Any = step.layer
    shape = step.bottoms[0].shape
    repeats = [1] * len(shape)
    repeats[canonical_axis(layer.axis, shape)] = layer.tiles
    return graph.op("Tile", x, repeats)


@writes("Slice")
def slice_(graph: Graph, step: Step, x: str) -> Any:
    """Slice for each piece; the last one goes to the end."""
    layer: Any = step.layer
    if len(step.tops) == 1:
        return x
    axis = len(layer.parts[0]) - 1
    if not graph.varies(step.bottoms[0], axis):
        sizes = [part[axis].stop - part[axis].start for part in layer.parts]
        return graph.ops("Split", len(step.tops), x, sizes, axis=axis)
    if not layer.slice_point:
        return graph.ops("Split", len(step.tops), x, axis=axis)
    ends = [*layer.slice_point, END]
    starts = [0, *layer.slice_point]
    return [graph.op("Slice", x, [a], [b], [axis]) for a, b in zip(starts, ends, strict=True)]


@writes("Split")
def split(graph: Graph, step: Step, x: str) -> list[str]:
    """Nothing: any number of nodes may read a tensor."""
    return [x] * len(step.tops)


@writes("Silence")
def silence(graph: Graph, step: Step, *xs: str) -> list[str]:
    """Nothing."""
    return []
