"""Layers with numbers of their own: Scale, Bias, PReLU, Axpy, Embed, Parameter."""

from __future__ import annotations

from typing import Any

from minicaffe.core.layers.channels import own_axes
from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import draws, writes


def own(graph: Graph, step: Step, given: tuple[str, ...], index: int) -> str:
    """Bottom 1, or parameter `index`, with as many axes of 1 behind as bottom 0 has behind it."""
    layer: Any = step.layer
    x, *others = (value.shape for value in step.bottoms)
    axis, shape = own_axes(x, others[0] if others else None, layer.axis, layer.num_axes)
    behind = (len(x) - axis - len(shape)) if shape else 0
    if not others:
        return graph.param(step, index, (*shape, *(1,) * behind))
    axes = list(range(len(shape), len(shape) + behind))
    return graph.op("Unsqueeze", given[0], axes) if axes else given[0]


@writes("Scale")
def scale(graph: Graph, step: Step, x: str, *given: str) -> str:
    """Multiply, then add; a bias is the last parameter."""
    layer: Any = step.layer
    factor = own(graph, step, given, 0)
    y = graph.op("Mul", x, factor)
    if layer.bias is None:
        return str(y)
    index = len(layer.params) - 1
    shape = layer.bias.shape
    first, _ = own_axes(step.bottoms[0].shape, shape, layer.axis, layer.num_axes)
    behind = len(step.bottoms[0].shape) - first - len(shape) if shape else 0
    return graph.op("Add", y, graph.param(step, index, (*shape, *(1,) * behind)))


@writes("Bias")
def bias(graph: Graph, step: Step, x: str, *given: str) -> str:
    """Add."""
    return graph.op("Add", x, own(graph, step, given, 0))


@writes("PReLU")
def prelu(graph: Graph, step: Step, x: str) -> str:
    """A slope a channel, or one."""
    slope, axes = step.layer.params[0], len(step.bottoms[0].shape)
    shape = (*slope.shape, *(1,) * (axes - 2)) if slope.shape else (1,) * (axes - 1)
    return graph.op("PRelu", x, graph.param(step, 0, shape))


@writes("Axpy")
def axpy(graph: Graph, step: Step, a: str, x: str, z: str) -> str:
    """A number for each channel of each sample."""
    had, axes = len(step.bottoms[0].shape), len(step.bottoms[1].shape)
    if had < axes:
        a = graph.op("Unsqueeze", a, list(range(had, axes)))
    return graph.op("Add", graph.op("Mul", x, a), z)


@writes("Embed")
def embed(graph: Graph, step: Step, x: str) -> str:
    """Rows of the weight, by numbers that are whole."""
    y = graph.op("Gather", graph.param(step, 0), graph.op("Cast", x, to=7), axis=0)
    return graph.op("Add", y, graph.param(step, 1)) if len(step.layer.params) > 1 else str(y)


@draws("Embed", 0)
def indices(random: Any, step: Step, shape: tuple[int, ...]) -> Any:
    """Rows that there are."""
    return random.integers(step.layer.input_dim, size=shape)  # type: ignore[attr-defined]


@writes("Parameter")
def parameter(graph: Graph, step: Step) -> str:
    """What was learnt."""
    return graph.param(step, 0)
