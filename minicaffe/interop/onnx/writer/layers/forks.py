"""Layers of Caffe's forks: what ONNX has a word for, and what it has not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net.step import Step
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.body import body
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.layers.pooling import LOWEST, around
from minicaffe.interop.onnx.writer.layers.recurrent import unit
from minicaffe.interop.onnx.writer.table import draws, refuses, writes

FAR = np.iinfo(np.int64).min

refuses("it chooses what is learnt from: leave it out of a deploy net", "BoxAnnotatorOHEM")
refuses("ONNX pools no regions in this way", "PSROIPooling", "ROIAlign", "ROIWarping")
refuses(
    "ONNX has no word for it: have the net end before it",
    *("BoxOutput", "CTCGreedyDecoder", "DecodeBBox", "Proposal", "Yolov3DetectionOutput"),
)
refuses(
    "ONNX reads points near an image's border in another way", "DeformableConvolution", "FlowWarp"
)
refuses("ONNX has no word for it", "CompactBilinear", "Correlation")


@writes("MaskPooling")
def mask_pooling(graph: Graph, step: Step, x: str, mask: str) -> str:
    """Mul, which repeats the mask for each channel."""
    return graph.op("Mul", x, mask)


@writes("DilatedPooling")
def dilated_pooling(graph: Graph, step: Step, x: str) -> str:
    """A MaxPool with gaps; or the sum, a Conv of ones, by the number of a window's pixels."""
    layer: Any = step.layer
    if graph.varies(step.bottoms[0], 2, 3):
        raise SpecError("cannot be exported with a dynamic height or width: windows are counted")
    window, (h, w), (oh, ow) = layer.window, layer.x_shape[2:], step.tops[0].shape[2:]
    spans = zip((oh, ow), (h, w), layer.spans, window.stride, window.pad, strict=True)
    end = tuple(max(0, (count - 1) * s + k - n - p) for count, n, k, s, p in spans)
    sizes: Any = {"kernel_shape": window.kernel, "strides": window.stride}
    number, seen = layer.counts()
    if layer.pool == "AVE":
        x = around(graph, x, window.pad, end, 0.0)
        channels = layer.x_shape[1]
        ones = graph.const(np.ones((channels, 1, *window.kernel), np.float32))
        y = graph.op("Conv", x, ones, group=channels, dilations=window.dilation, **sizes)
        return graph.op("Mul", y, graph.const((1 / np.maximum(number, 1)).astype(np.float32)))
    x = around(graph, x, window.pad, end, LOWEST)
    y = graph.op("MaxPool", x, dilations=window.dilation, **sizes)
    return y if seen.all() else graph.op("Where", graph.const(seen), y, 0.0)


@writes("MaskResize")
def mask_resize(graph: Graph, step: Step, x: str) -> str:
    """Two products, with the weights of rows and of columns."""
    layer: Any = step.layer
    if graph.varies(step.bottoms[0], 2, 3):
        raise SpecError("with a dynamic height or width its weights would not be known")
    rows, columns = (graph.const(one.astype(np.float32)) for one in layer.weights())
    return graph.op(
        "MatMul", graph.op("MatMul", rows, x), graph.op("Transpose", columns, perm=(1, 0))
    )


@writes("L2Norm")
def l2_norm(graph: Graph, step: Step, x: str) -> str:
    """LpNormalization of each sample as a row."""
    rows = graph.op("Flatten", x, axis=1) if len(step.bottoms[0].shape) != 2 else x
    rows = graph.op("LpNormalization", rows, axis=1, p=2)
    return (
        rows if len(step.bottoms[0].shape) == 2 else graph.op("Reshape", rows, graph.op("Shape", x))
    )


@writes("Lstm")
def lstm(graph: Graph, step: Step, x: str, clip: str | None = None) -> str:
    """A Scan over the steps, as of LSTM: states are zeros when a run begins."""
    layer: Any = step.layer
    n, d, before = layer.batch_size, layer.num_output, graph.shapes(step.bottoms[0])
    x = graph.reshape(x, before, [(shape[0], math.prod(shape[1:])) for shape in before])
    z = graph.op("Gemm", x, graph.param(step, 0), graph.param(step, 2), transB=1)
    z = graph.op("Reshape", z, [-1, n, 4 * d])
    if clip is None:
        cont = graph.op("Expand", 1.0, graph.op("Concat", graph.size(z, 0), [n, 1], axis=0))
    else:
        cont = graph.op("Reshape", clip, [-1, n, 1])
    zeros = graph.const(np.zeros((n, d), np.float32))
    with body(graph, "h", "c", "z", "cont") as within:
        h_in, c_in, z_in, cont_in = within.inputs
        r = graph.op("Gemm", h_in, graph.param(step, 1), transB=1)
        c, h = unit(graph, graph.op("Add", z_in, graph.op("Mul", r, cont_in)), c_in, cont_in)
        within.outputs = [h, c, graph.op("Identity", h)]
    *_, hs = graph.ops("Scan", 3, zeros, zeros, z, cont, body=within, num_scan_inputs=2)
    return graph.op("Reshape", hs, [-1, d])


@draws("Lstm", 1)
def drawn_clip(random: Any, step: Step, shape: tuple[int, ...]) -> Any:
    """Streams, some of which begin anew."""
    return random.integers(2, size=shape)


@writes("ContinuationIndicator")
def continuation_indicator(graph: Graph, step: Step) -> str:
    """A constant."""
    made = np.ones(step.tops[0].shape, np.float32)
    made[0] = 0
    return graph.const(made)


@writes("Reverse")
def reverse(graph: Graph, step: Step, x: str) -> str:
    """Slice, from the end to the start."""
    axis = canonical_axis(step.layer.axis, step.bottoms[0].shape)  # type: ignore[attr-defined]
    return graph.op("Slice", x, [-1], [FAR], [axis], [-1])


@writes("Transpose")
def transpose(graph: Graph, step: Step, x: str) -> str:
    """Transpose."""
    return graph.op("Transpose", x, perm=step.layer.dim)  # type: ignore[attr-defined]


@writes("BilinearInterpolation")
def bilinear_interpolation(graph: Graph, step: Step, x: str, like: str | None = None) -> str:
    """Resize with aligned corners."""
    layer: Any = step.layer
    if not graph.varies(step.tops[0]):
        size = graph.const(step.tops[0].shape)
    elif like is not None:
        parts = graph.op("Shape", x, end=2), graph.op("Shape", like, start=2)
        size = graph.op("Concat", *parts, axis=0)
    else:
        factor = layer.interpolation_factor
        size = graph.op("Mul", graph.op("Shape", x), [1, 1, factor, factor])
    how: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return graph.op("Resize", x, None, None, size, **how)


@writes("Reorg")
def reorg(graph: Graph, step: Step, x: str) -> str:
    """A transposition of the parts that sides and channels consist of."""
    layer: Any = step.layer
    if graph.varies(step.bottoms[0], 1, 2, 3):
        raise SpecError("with a dynamic height or width its parts would not be known")
    _, *parts = layer.parts
    channels = [parts[i - 1] for i in layer.order[1:]]
    order = np.argsort(layer.order) if layer.reverse else layer.order
    x = graph.op("Reshape", x, [0, *(channels if layer.reverse else parts)])
    x = graph.op("Transpose", x, perm=tuple(int(axis) for axis in order))
    return graph.op("Reshape", x, [0, *step.tops[0].shape[1:]])
