"""InnerProduct, Eltwise, Concat, Softmax."""

from __future__ import annotations

import math
from typing import Any

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes


@writes("InnerProduct")
def inner_product(graph: Graph, step: Step, x: str) -> str:
    """Gemm of x as a matrix, whose weight is laid out as ours is."""
    layer: Any = step.layer
    axis, shapes = canonical_axis(layer.axis, step.bottoms[0].shape), graph.shapes(step.tops[0])
    x = graph.op("Flatten", x, axis=axis)
    given = [graph.param(step, i) for i in range(len(layer.params))]
    y = graph.op("Gemm", x, *given, transB=int(not layer.transpose))
    flat = [(math.prod(shape[:axis]), layer.num_output) for shape in shapes]
    return graph.reshape(y, flat, shapes, like=step.bottoms[0])


@writes("Eltwise")
def eltwise(graph: Graph, step: Step, *xs: str) -> str:
    """Sum, product or maximum."""
    layer: Any = step.layer
    if layer.operation == "MAX":
        return graph.op("Max", *xs)
    if layer.operation == "SUM":
        pairs = zip(xs, layer.factors, strict=True)
        scaled = [x if factor == 1 else graph.op("Mul", x, factor) for x, factor in pairs]
        return graph.op("Add" if len(xs) == 2 else "Sum", *scaled)
    y, *others = xs
    for x in others:
        y = graph.op("Mul", y, x)
    return y


@writes("Concat")
def concat(graph: Graph, step: Step, *xs: str) -> str:
    """Concat."""
    layer: Any = step.layer
    axis = layer.concat_dim if layer.axis is None else layer.axis
    return graph.op("Concat", *xs, axis=1 if axis is None else axis)


@writes("Softmax")
def softmax(graph: Graph, step: Step, x: str) -> str:
    """Softmax along one axis."""
    axis = canonical_axis(step.layer.axis, step.bottoms[0].shape)  # type: ignore[attr-defined]
    return graph.op("Softmax", x, axis=axis)
