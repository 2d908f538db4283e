"""Layers of face recognition that infer."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes


@writes("InnerDistance")
def inner_distance(graph: Graph, step: Step, x: str, *others: str) -> str:
    """ReduceSumSquare or ReduceL1 of each x less each w."""
    layer: Any = step.layer
    k, shapes = layer.mk[1], graph.shapes(step.bottoms[0])
    x = graph.reshape(x, shapes, [(int(np.prod(shape)) // k, 1, k) for shape in shapes])
    if layer.weight is None:
        given = graph.shapes(step.bottoms[1])
        w = graph.reshape(others[0], given, [(shape[0], k) for shape in given])
    elif layer.normalize:
        weight = layer.weight.to_host()
        w = graph.const(weight / np.sqrt((weight * weight).sum(axis=1, keepdims=True) + 1e-6))
    else:
        w = graph.param(step, 0)
    kind = "ReduceL1" if layer.distance_type == "L1" else "ReduceSumSquare"
    y = graph.op(kind, graph.op("Sub", x, w), axes=[2], keepdims=0)
    flat = [(int(np.prod(shape)) // k, layer.n) for shape in shapes]
    return graph.reshape(y, flat, graph.shapes(step.tops[0]))


@writes("Flip")
def flip(graph: Graph, step: Step, x: str) -> str:
    """Slice, from the last to the first."""
    layer: Any = step.layer
    axes = [2] * layer.flip_height + [3] * layer.flip_width
    if not axes:
        return x
    last = [np.iinfo(np.int64).min] * len(axes)
    return graph.op("Slice", x, [-1] * len(axes), last, axes, [-1] * len(axes))
