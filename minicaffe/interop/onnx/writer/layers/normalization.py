"""Normalisations: of a batch by what was seen in training, of a sample, of its groups, of neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes


@writes("BatchNorm")
def batch_norm(graph: Graph, step: Step, x: str) -> str:
    """BatchNormalization by the averages; of a batch's own statistics, in primitives."""
    layer: Any = step.layer
    shape = step.bottoms[0].shape
    if not layer.by_past:
        axes = [axis for axis in range(len(shape)) if axis != 1]
        y = standardised(graph, x, axes, layer.eps)
        return scaled(graph, step, y, 3) if layer.learnt else y
    mean, variance, count = (param.to_host() for param in layer.past)
    share = 1 / count[0] if count[0] else 0
    averages = [
        graph.const(mean * share, f"{step.spec.name}/mean"),
        graph.const(variance * share, f"{step.spec.name}/variance"),
    ]
    if layer.learnt:
        learnt = [graph.param(step, 3), graph.param(step, 4)]
    else:
        learnt = [graph.const(np.ones(len(mean))), graph.const(np.zeros(len(mean)))]
    x = x if len(shape) > 1 else graph.op("Unsqueeze", x, [1])
    y = graph.op("BatchNormalization", x, *learnt, *averages, epsilon=layer.eps)
    return y if len(shape) > 1 else graph.op("Squeeze", y, [1])


def scaled(graph: Graph, step: Step, x: str, first: int) -> str:
    """Each channel times parameter `first`, plus the next."""
    shape = step.bottoms[0].shape
    own = (*(shape[1:2] or (1,)), *(1,) * (len(shape) - 2))
    y = graph.op("Mul", x, graph.param(step, first, own))
    return graph.op("Add", y, graph.param(step, first + 1, own))


def standardised(graph: Graph, x: str, axes: list[int], eps: float) -> str:
    """(x - mean) / sqrt(variance + eps) over axes."""
    apart = centred(graph, x, axes)
    variance = graph.op("ReduceMean", graph.op("Mul", apart, apart), axes=axes)
    return graph.op("Div", apart, graph.op("Sqrt", graph.op("Add", variance, eps)))


def centred(graph: Graph, x: str, axes: list[int]) -> str:
    """x - mean over axes."""
    return graph.op("Sub", x, graph.op("ReduceMean", x, axes=axes))


@writes("MVN")
def mvn(graph: Graph, step: Step, x: str) -> str:
    """By the deviation, to which eps is added."""
    layer: Any = step.layer
    shapes = graph.shapes(step.bottoms[0])
    first = 1 if layer.across_channels else 2
    rows = [(*shape[:first], math.prod(shape[first:])) for shape in shapes]
    y = centred(graph, graph.reshape(x, shapes, rows), [first])
    if layer.normalize_variance:
        variance = graph.op("ReduceMean", graph.op("Mul", y, y), axes=[first])
        y = graph.op("Div", y, graph.op("Add", graph.op("Sqrt", variance), layer.eps))
    return graph.reshape(y, rows, shapes, like=step.bottoms[0])


@writes("LayerNorm")
def layer_norm(graph: Graph, step: Step, x: str) -> str:
    """LayerNormalization, or, where nothing is learnt, primitives."""
    layer: Any = step.layer
    shape = step.bottoms[0].shape
    axis = canonical_axis(layer.axis, shape)
    if not layer.affine:
        return standardised(graph, x, list(range(axis, len(shape))), layer.eps)
    learnt = [graph.param(step, i) for i in range(len(layer.params))]
    return graph.op("LayerNormalization", x, *learnt, axis=axis, epsilon=layer.eps)


@writes("GroupNorm")
def group_norm(graph: Graph, step: Step, x: str) -> str:
    """Groups as rows (n, groups, rest), standardised."""
    layer: Any = step.layer
    shapes, groups = graph.shapes(step.bottoms[0]), layer.num_groups
    rows = [(shape[0], groups, math.prod(shape[1:]) // groups) for shape in shapes]
    y = standardised(graph, graph.reshape(x, shapes, rows), [2], layer.eps)
    y = graph.reshape(y, rows, shapes, like=step.bottoms[0])
    return scaled(graph, step, y, 0) if layer.affine else y


@writes("Normalize")
def normalize(graph: Graph, step: Step, x: str) -> str:
    """Divided by its length, over a sample or the channels of a place."""
    layer: Any = step.layer
    shape = step.bottoms[0].shape
    axes = list(range(1, len(shape))) if layer.across_spatial else [1]
    total = graph.op("ReduceSum", graph.op("Mul", x, x), axes)
    y = graph.op("Div", x, graph.op("Sqrt", graph.op("Add", total, layer.eps)))
    own = () if layer.channel_shared else (shape[1], *(1,) * (len(shape) - 2))
    return graph.op("Mul", y, graph.param(step, 0, own))


@writes("LRN")
def lrn(graph: Graph, step: Step, x: str) -> str:
    """LRN along the channels; within them a mean of squares, pads counting, and a power."""
    layer: Any = step.layer
    size = layer.local_size
    if layer.norm_region == "ACROSS_CHANNELS":
        numbers = {"alpha": layer.alpha, "beta": layer.beta, "bias": layer.k}
        return graph.op("LRN", x, size=size, **numbers)
    window: Any = {"kernel_shape": [size] * 2, "pads": [size // 2] * 4, "count_include_pad": 1}
    squares = graph.op("AveragePool", graph.op("Mul", x, x), **window)
    response = graph.op("Add", graph.op("Mul", squares, layer.alpha), 1.0)
    return graph.op("Mul", x, graph.op("Pow", response, -layer.beta))
