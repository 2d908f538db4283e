"""Layers of Caffe's forks, a fork a file, which is imported when one of its types is named."""

from __future__ import annotations

from typing import NamedTuple


class Fork(NamedTuple):
    """A fork of Caffe: what it is called, and the types of layers that its file has."""

    name: str
    types: tuple[str, ...]


FORKS = {  # by file
    "bilinear": Fork(
        "Z. Yan's and compact bilinear pooling's", ("BilinearInterpolation", "CompactBilinear")
    ),
    "deeplab": Fork("DeepLab, PSPNet and SegNet", ("Interp", "Upsample")),
    "deformable": Fork("Deformable ConvNets", ("DeformableConvolution",)),
    "fast_rcnn": Fork("Fast R-CNN", ("ROIPooling",)),
    "flow": Fork("FlowNet", ("Correlation", "FlowWarp")),
    "mnc": Fork("MNC", ("MaskPooling", "ROIWarping")),
    "openvino": Fork("OpenVINO's training toolbox", ("PriorBoxClustered",)),
    "rfcn": Fork("R-FCN and Faster R-CNN", ("BoxAnnotatorOHEM", "PSROIPooling", "Proposal")),
    "sequences": Fork(
        "caffe-lstm and CTC",
        (
            "CTCGreedyDecoder",
            "CTCLoss",
            "ContinuationIndicator",
            "CtcLoss",
            "Lstm",
            "Reverse",
            "Transpose",
        ),
    ),
    "ssd": Fork("SSD", ("DetectionOutput", "PriorBox")),
    "yolo": Fork("YOLO", ("Reorg", "Yolov3DetectionOutput")),
}
