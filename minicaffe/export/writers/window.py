"""Layers of filters: Convolution and Deconvolution, of 1 to 3 axes, whatever stands before the channels."""

from __future__ import annotations

import math
from typing import Any

from minicaffe.export.graph import Graph
from minicaffe.export.table import writes
from minicaffe.layers.blob import Shape
from minicaffe.net.step import Step


@writes("Convolution")
def convolution(graph: Graph, step: Step, *bottoms: str) -> list[str]:
    """Conv, whose weight is laid out as ours is."""
    return [filtered(graph, step, "Conv", i, x) for i, x in enumerate(bottoms)]


@writes("Deconvolution")
def deconvolution(graph: Graph, step: Step, *bottoms: str) -> list[str]:
    """ConvTranspose, whose weight is laid out as ours is."""
    return [filtered(graph, step, "ConvTranspose", i, x) for i, x in enumerate(bottoms)]


def filtered(graph: Graph, step: Step, kind: str, i: int, x: str) -> str:
    """Bottom i filtered, its batch axes made one."""
    layer: Any = step.layer
    window = layer.split(step.bottoms[i].shape)[3]
    image = len(window.kernel)
    before, after = graph.shapes(step.bottoms[i]), graph.shapes(step.tops[i])
    x = graph.reshape(x, before, [one_batch(shape, image) for shape in before])
    y = graph.op(
        kind,
        x,
        *(graph.param(step, index) for index in range(len(layer.params))),
        kernel_shape=window.kernel,
        strides=window.stride,
        pads=window.pad * 2,
        dilations=window.dilation,
        group=layer.group,
    )
    return graph.reshape(y, [one_batch(shape, image) for shape in after], after)


def one_batch(shape: Shape, image: int) -> Shape:
    """A shape whose axes before the channels', which stand before `image` others, are one."""
    lead = len(shape) - image - 1
    return (math.prod(shape[:lead]), *shape[lead:])
