"""Layers of Caffe's forks, a fork a file, which is imported when one of its types is named."""

from __future__ import annotations

from typing import NamedTuple


class Fork(NamedTuple):
    """A fork of Caffe: what it is called, and the types of layers that its file has."""

    name: str
    types: tuple[str, ...]


FORKS = {  # by file
    "annotated": Fork("SSD", ("AnnotatedData",)),
    "deeplab": Fork("DeepLab, PSPNet and SegNet", ("Interp", "SegAccuracy", "Upsample")),
    "evaluate": Fork("SSD", ("DetectionEvaluate",)),
    "faces": Fork(
        "SphereFace, caffe-face and caffe-windows",
        ("CenterLoss", "Flip", "InnerDistance", "MarginInnerProduct"),
    ),
    "fast_rcnn": Fork("Fast R-CNN", ("ROIPooling",)),
    "hed": Fork("HED", ("ImageLabelmapData", "SigmoidCrossEntropyBalanceLoss")),
    "metrics": Fork(
        "caffe-sl, NVIDIA's Caffe, Xlearn and others",
        (
            "BatchTripletLoss",
            "DiceCoefLoss",
            "L1Loss",
            "MMDLoss",
            "ManhattanLoss",
            "WeightedEuclideanLoss",
        ),
    ),
    "multibox": Fork("SSD", ("MultiBoxLoss",)),
    "openpose": Fork("OpenPose", ("ImResize",)),
    "segnet": Fork("SegNet (data)", ("DenseImageData",)),
    "ssd": Fork("SSD", ("DetectionOutput", "PriorBox")),
}
