"""Normalisations: of a batch by what was seen in training, of a sample, of its groups, of neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.export.graph import Graph
from minicaffe.export.table import writes
from minicaffe.layers.base import canonical_axis
from minicaffe.net.step import Step


@writes("BatchNorm")
def batch_norm(graph: Graph, step: Step, x: str) -> str:
    """BatchNormalization by the averages; of a batch's own statistics, in primitives."""
    layer: Any = step.layer
    shape = step.bottoms[0].shape
    behind = (1,) * (len(shape) - 2)
    if layer.by_past and len(shape) > 1:
        mean, variance, count = (param.to_host() for param in layer.past)
        share = np.float32(1 / count[0] if count[0] else 0)
        names = [f"{step.spec.name}__0/mean", f"{step.spec.name}__1/variance"]
        found = [
            graph.const(np.float32(sums * share), hint)
            for sums, hint in zip((mean, variance), names, strict=True)
        ]
        if layer.learnt:
            learnt = [graph.param(step, i) for i in (3, 4)]
        else:
            learnt = [graph.const(np.full(len(mean), n, np.float32)) for n in (1, 0)]
        return str(graph.op("BatchNormalization", x, *learnt, *found, epsilon=layer.eps))
    if layer.by_past:
        mean, variance, count = (param.to_host() for param in layer.past)
        share = 1 / count[0] if count[0] else 0
        y = graph.op("Sub", x, mean * share)
        y = graph.op("Div", y, np.sqrt(variance * share + layer.eps))
    else:
        axes = [axis for axis in range(len(shape)) if axis != 1]
        y = standardised(graph, x, axes, layer.eps)
    if not layer.learnt:
        return str(y)
    if len(shape) > 1:
        learnt = [graph.param(step, i, (shape[1], *behind)) for i in (3, 4)]
    else:
        learnt = [graph.param(step, i) for i in (3, 4)]
    return str(graph.op("Add", graph.op("Mul", y, learnt[0]), learnt[1]))


def standardised(graph: Graph, x: str, axes: list[int], eps: float) -> str:
    """(x - mean) / sqrt(variance + eps) over axes."""
    apart = graph.op("Sub", x, graph.op("ReduceMean", x, axes=axes))
    variance = graph.op("ReduceMean", graph.op("Mul", apart, apart), axes=axes)
    return str(graph.op("Div", apart, graph.op("Sqrt", graph.op("Add", variance, eps))))


@writes("MVN")
def mvn(graph: Graph, step: Step, x: str) -> str:
    """By the deviation, to which eps is added."""
    layer: Any = step.layer
    first = 1 if layer.across_channels else 2
    axes = list(range(first, len(step.bottoms[0].shape)))
    apart = (
        graph.op("Sub", x, graph.op("ReduceMean", x, axes=axes)) if axes else graph.op("Sub", x, x)
    )
    if not layer.normalize_variance:
        return str(apart)
    variance = graph.op("Mul", apart, apart)
    variance = graph.op("ReduceMean", variance, axes=axes) if axes else variance
    return str(graph.op("Div", apart, graph.op("Add", graph.op("Sqrt", variance), layer.eps)))


@writes("LayerNorm")
def layer_norm(graph: Graph, step: Step, x: str) -> str:
    """LayerNormalization, or, where nothing is learnt, primitives."""
    layer: Any = step.layer
    shape = step.bottoms[0].shape
    axis = canonical_axis(layer.axis, shape)
    if not layer.affine:
        return standardised(graph, x, list(range(axis, len(shape))), layer.eps)
    learnt = [graph.param(step, i) for i in range(len(layer.params))]
    return str(graph.op("LayerNormalization", x, *learnt, axis=axis, epsilon=layer.eps))


@writes("GroupNorm")
def group_norm(graph: Graph, step: Step, x: str) -> str:
    """Groups as rows (n, groups, rest), standardised."""
    layer: Any = step.layer
    shapes, groups = graph.shapes(step.bottoms[0]), layer.num_groups
    rows = [(shape[0], groups, int(np.prod(shape[1:])) // groups) for shape in shapes]
    y = standardised(graph, graph.reshape(x, shapes, rows), [2], layer.eps)
    y = graph.reshape(y, rows, shapes, like=step.bottoms[0])
    if not layer.affine:
        return y
    behind = (1,) * (len(shapes[0]) - 2)
    scale, bias = (graph.param(step, i, (shapes[0][1], *behind)) for i in (0, 1))
    return str(graph.op("Add", graph.op("Mul", y, scale), bias))


@writes("Normalize")
def normalize(graph: Graph, step: Step, x: str) -> str:
    """Divided by its length, over a sample or the channels of a place."""
    layer: Any = step.layer
    shape = step.bottoms[0].shape
    axes = list(range(1, len(shape))) if layer.across_spatial else [1]
    total = graph.op("ReduceSum", graph.op("Mul", x, x), axes)
    y = graph.op("Div", x, graph.op("Sqrt", graph.op("Add", total, layer.eps)))
    own = () if layer.channel_shared else (shape[1], *(1,) * (len(shape) - 2))
    return str(graph.op("Mul", y, graph.param(step, 0, own)))


@writes("LRN")
def lrn(graph: Graph, step: Step, x: str) -> str:
    """LRN along the channels; within them a mean of squares, pads counting, and a power."""
    layer: Any = step.layer
    size = layer.local_size
    if layer.norm_region == "ACROSS_CHANNELS":
        numbers = {"alpha": layer.alpha, "beta": layer.beta, "bias": layer.k}
        return str(graph.op("LRN", x, size=size, **numbers))
    window: Any = {"kernel_shape": [size] * 2, "pads": [size // 2] * 4, "count_include_pad": 1}
    squares = graph.op("AveragePool", graph.op("Mul", x, x), **window)
    response = graph.op("Add", graph.op("Mul", squares, layer.alpha), 1.0)
    return str(graph.op("Mul", x, graph.op("Pow", response, -layer.beta)))
