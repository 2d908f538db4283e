"""Layers of windows: Convolution, Deconvolution and Im2col, of 1 to 3 axes, behind any batch axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.core.layers.blob import Shape
from minicaffe.core.net.step import Step
from minicaffe.core.ops.geometry import Window
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes


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
        group=layer.group,
        **attributes(window),
    )
    return graph.reshape(y, [one_batch(shape, image) for shape in after], after)


@writes("Im2col")
def im2col(graph: Graph, step: Step, x: str) -> str:
    """Conv with a filter for each element of a channel's window, which is 1 there and 0 elsewhere."""
    layer: Any = step.layer
    lead, c, image, window = layer.split(step.bottoms[0].shape)
    if graph.varies(step.bottoms[0], len(lead)):
        raise SpecError("cannot be exported with channels of a dynamic number")
    before, after = graph.shapes(step.bottoms[0]), graph.shapes(step.tops[0])
    each = math.prod(window.kernel)
    pick = np.tile(np.eye(each, dtype=np.float32), (c, 1)).reshape(c * each, 1, *window.kernel)
    x = graph.reshape(x, before, [one_batch(shape, len(image)) for shape in before])
    y = graph.op("Conv", x, pick, group=c, **attributes(window))
    return graph.reshape(y, [one_batch(shape, len(image)) for shape in after], after)


def attributes(window: Window) -> dict[str, Any]:
    """A window as ONNX's convolutions have it, with as much pad behind the image as before it."""
    return {
        "kernel_shape": window.kernel,
        "strides": window.stride,
        "pads": window.pad * 2,
        "dilations": window.dilation,
    }


def one_batch(shape: Shape, image: int) -> Shape:
    """A shape whose axes before the channels', which stand before `image` others, are one."""
    lead = len(shape) - image - 1
    return (math.prod(shape[:lead]), *shape[lead:])
