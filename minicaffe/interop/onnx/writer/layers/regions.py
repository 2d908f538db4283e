"""ROIPooling, which MaxRoiPool is to the letter."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import draws, writes


@writes("ROIPooling", jumps=True)
def roi_pooling(graph: Graph, step: Step, x: str, rois: str) -> str:
    """MaxRoiPool: the standard leaves open how it rounds; onnxruntime does as Fast R-CNN did."""
    layer: Any = step.layer
    shapes = graph.shapes(step.bottoms[1])
    rois = graph.reshape(rois, shapes, [(shape[0], 5) for shape in shapes])
    if layer.pad_ratio:
        rois = graph.op("Gemm", rois, *widening(layer.pad_ratio))
    pooled = layer.pooled_h, layer.pooled_w
    scale = float(layer.spatial_scale)
    return graph.op("MaxRoiPool", x, rois, pooled_shape=pooled, spatial_scale=scale)


def widening(ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """A matrix and what is added to its product, of regions (image, x0, y0, x1, y1) that are widened.

    >>> matrix, added = widening(0.5)
    >>> np.array([[0, 2, 4, 5, 7]]) @ matrix + added
    array([[0., 0., 2., 7., 9.]])
    """
    matrix, added = np.eye(5), np.zeros(5)
    for start, end in ((1, 3), (2, 4)):
        matrix[start, start] = matrix[end, end] = 1 + ratio
        matrix[end, start] = matrix[start, end] = added[start] = -ratio
        added[end] = ratio
    return matrix.astype(np.float32), added.astype(np.float32)


@draws("ROIPooling", 1)
def drawn_regions(random: Any, step: Step, shape: tuple[int, ...]) -> Any:
    """Regions of images that there are, some of them partly outside."""
    layer: Any = step.layer
    count, (h, w) = shape[0], step.bottoms[0].shape[2:]
    side = np.array([w, h, w, h]) / layer.spatial_scale
    corners = random.uniform(-0.2, 1.2, (count, 4)) * side
    images = random.integers(layer.images, size=(count, 1))
    return np.concatenate([images, corners], axis=1).reshape(shape)
