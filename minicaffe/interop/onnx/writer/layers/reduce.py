"""Layers that make few numbers of many: Reduction and ArgMax."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes

START = np.iinfo(np.int64).min


@writes("Reduction")
def reduction(graph: Graph, step: Step, x: str) -> str:
    """The sum or mean of the axes behind, times a factor."""
    layer: Any = step.layer
    shape, op = step.bottoms[0].shape, graph.op
    axes = list(range(canonical_axis(layer.axis, shape), len(shape))) if shape else []
    x = op("Abs", x) if layer.operation == "ASUM" else x
    x = op("Mul", x, x) if layer.operation == "SUMSQ" else x
    if layer.operation == "MEAN" and axes:
        x = op("ReduceMean", x, axes=axes, keepdims=0)
    elif axes:
        x = op("ReduceSum", x, axes, keepdims=0)
    return x if layer.coeff == 1 and axes else op("Mul", x, layer.coeff)


@writes("ArgMax", jumps=True)
def arg_max(graph: Graph, step: Step, x: str) -> str:
    """TopK of the axis turned round, for of equal numbers the last one comes first."""
    layer: Any = step.layer
    k, op, shapes = layer.top_k, graph.op, graph.shapes(step.bottoms[0])
    axis = 1 if layer.axis is None else canonical_axis(layer.axis, shapes[0])
    if layer.axis is None:
        x = op("Flatten", x, axis=1)
    turned = op("Slice", x, [-1], [START], [axis], [-1])
    number, place = graph.ops("TopK", 2, turned, [k], axis=axis)
    last = op("Sub", graph.size(x, axis), 1)
    place = op("Cast", op("Sub", last, place), to=1)
    if layer.axis is not None:
        return number if layer.out_max_val else place
    parts = [place, number] if layer.out_max_val else [place]
    parts = [op("Unsqueeze", part, [1, *range(3, len(step.tops[0].shape))]) for part in parts]
    return op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
