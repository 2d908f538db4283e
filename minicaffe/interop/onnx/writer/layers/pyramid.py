"""SPP: a pooling a level, flat and one behind the other."""

from __future__ import annotations

from typing import Any

from minicaffe.core.net.step import Step
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.layers.pooling import NOT_DYNAMIC, Room, pooled
from minicaffe.interop.onnx.writer.table import writes


@writes("SPP")
def spp(graph: Graph, step: Step, x: str) -> str:
    """Poolings whose windows are a part of the image each."""
    layer: Any = step.layer
    if graph.varies(step.bottoms[0], 2, 3):
        raise SpecError(f"{NOT_DYNAMIC}its windows are parts of the image")
    levels = [pooled(graph, Room.of(level, True, True), x) for level in layer.levels]
    if len(levels) == 1:
        return str(levels[0])
    return graph.op("Concat", *(graph.op("Flatten", y, axis=1) for y in levels), axis=1)
