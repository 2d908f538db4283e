"""Layers of Caffe's forks: what ONNX has a word for, and what it has not."""

from __future__ import annotations

from minicaffe.export.graph import Graph
from minicaffe.export.table import refuses, writes
from minicaffe.net.step import Step

refuses("it chooses what is learnt from: leave it out of a deploy net", "BoxAnnotatorOHEM")
refuses("ONNX pools no regions in this way", "PSROIPooling", "ROIWarping")
refuses("ONNX knows no proposals: have the net end before it", "Proposal")


@writes("MaskPooling")
def mask_pooling(graph: Graph, step: Step, x: str, mask: str) -> str:
    """Mul, which repeats the mask for each channel."""
    return graph.op("Mul", x, mask)
