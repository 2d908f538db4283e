"""Interp and Upsample: bilinear with aligned corners, equal blocks, and pixels back to where a mask says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.core.net.step import Step
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import draws, writes

END = np.iinfo(np.int64).max  # as far as an axis goes
INT64 = 7  # ONNX's number of that type


@writes("Interp")
def interp(graph: Graph, step: Step, x: str, like: str | None = None) -> str:
    """Resize with aligned corners, the rule of Interp; what negative pads cut off is cut off before."""
    layer: Any = step.layer
    if layer.pad_beg or layer.pad_end:
        x = graph.op("Slice", x, [-layer.pad_beg] * 2, [layer.pad_end or END] * 2, [2, 3])
    how: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return graph.op("Resize", x, None, None, _size(graph, step, x, like), **how)


def _size(graph: Graph, step: Step, x: str, like: str | None) -> str:
    """The shape of the top."""
    layer: Any = step.layer
    if not graph.varies(step.tops[0]):
        return graph.const(step.tops[0].shape)
    before = graph.op("Shape", x, end=2)
    if not graph.varies(step.tops[0], 2, 3):
        image = graph.const(step.tops[0].shape[2:])
    elif like is not None:
        image = graph.op("Shape", like, start=2)
    else:
        steps = graph.op("Sub", graph.op("Shape", x, start=2), 1)
        steps = graph.op("Div", steps, layer.shrink_factor or 1)
        image = graph.op("Add", graph.op("Mul", steps, layer.zoom_factor or 1), 1)
    return graph.op("Concat", before, image, axis=0)


@writes("Upsample")
def upsample(graph: Graph, step: Step, x: str, mask: str | None = None) -> str:
    """Resize to the nearest pixel; with a mask, pixels are scattered over their plane and a place behind it.

    -1 in a mask means that place, which is cut off. Where pixels are sent to one place the standard leaves
    open which is there; onnxruntime on the CPU takes the last, as Caffe does.
    """
    layer: Any = step.layer
    if mask is None:
        how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        scales = np.array((1, 1, *layer.scales), np.float32)
        return graph.op("Resize", x, None, scales, nearest_mode="floor", **how)
    shapes, lead = graph.shapes(step.bottoms[0]), graph.op("Shape", x, end=2)
    image = _scaled(graph, step, x)
    flat = [(*shape[:2], math.prod(shape[2:])) for shape in shapes]
    values, places = (graph.reshape(part, shapes, flat) for part in (x, mask))
    places = graph.op("Cast", places, to=INT64)
    pixels = graph.op("ReduceProd", image, axes=[0])
    plane = graph.op("Concat", lead, graph.op("Add", pixels, [1]), axis=0)
    y = graph.op("ScatterElements", graph.op("Expand", 0.0, plane), places, values, axis=2)
    y = graph.op("Slice", y, [0], [-1], [2])
    return graph.op("Reshape", y, graph.op("Concat", lead, image, axis=0))


def _scaled(graph: Graph, step: Step, x: str) -> str:
    """Rows and columns of the top: those of x times the scales, less what pad_out takes off."""
    layer: Any = step.layer
    if not graph.varies(step.tops[0], 2, 3):
        return graph.const(step.tops[0].shape[2:])
    size = graph.op("Mul", graph.op("Shape", x, start=2), list(layer.scales))
    return graph.op("Sub", size, [int(layer.pad_out_h), int(layer.pad_out_w)])


@draws("Upsample", 1)
def drawn_mask(random: Any, step: Step, shape: tuple[int, ...]) -> Any:
    """Places of the top, none of a plane twice if there are enough."""
    n, c, h, w = shape
    layer: Any = step.layer
    pixels = math.prod(layer.y_shape[2:])
    planes = [random.permutation(max(pixels, h * w))[: h * w] % pixels for _ in range(n * c)]
    return np.reshape(planes, shape)


@writes("ImResize")
def im_resize(graph: Graph, step: Step, x: str) -> str:
    """The mean over the maps of their products with constant matrices."""
    if graph.varies(step.bottoms[0]):
        raise SpecError("its matrices fit one number and one size of maps")
    layer: Any = step.layer
    rows, columns = layer.matrices()
    y = graph.op("MatMul", graph.op("MatMul", graph.const(rows), x), graph.const(columns))
    return graph.op("ReduceMean", y, axes=[0], keepdims=1)
