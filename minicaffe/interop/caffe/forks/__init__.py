"""Layers of Caffe's forks, a fork a file, which is imported when one of its types is named."""

from __future__ import annotations

from typing import NamedTuple


class Fork(NamedTuple):
    """A fork of Caffe: what it is called, and the types of layers that its file has."""

    name: str
    types: tuple[str, ...]


FORKS = {  # by file
    "adaptation": Fork("Xlearn", ("EntropyLoss", "JMMDLoss")),
    "annotated": Fork("SSD", ("AnnotatedData",)),
    "bilinear": Fork(
        "Z. Yan's and compact bilinear pooling's", ("BilinearInterpolation", "CompactBilinear")
    ),
    "deeplab": Fork("DeepLab, PSPNet and SegNet", ("Interp", "SegAccuracy", "Upsample")),
    "deformable": Fork("Deformable ConvNets", ("DeformableConvolution",)),
    "dilated": Fork("F. Tschopp", ("DilatedPooling",)),
    "evaluate": Fork("SSD", ("DetectionEvaluate",)),
    "faces": Fork(
        "SphereFace, caffe-face and caffe-windows",
        ("CenterLoss", "Flip", "InnerDistance", "MarginInnerProduct"),
    ),
    "fast_rcnn": Fork("Fast R-CNN", ("ROIPooling",)),
    "flow": Fork("FlowNet", ("Correlation", "FlowWarp")),
    "hed": Fork("HED", ("ImageLabelmapData", "SigmoidCrossEntropyBalanceLoss")),
    "metrics": Fork(
        "caffe-sl, NVIDIA's Caffe, Xlearn and others",
        (
            "BatchTripletLoss",
            "DiceCoefLoss",
            "L1Loss",
            "L2Norm",
            "MMDLoss",
            "ManhattanLoss",
            "WeightedEuclideanLoss",
        ),
    ),
    "mnc": Fork("MNC", ("MaskPooling", "MaskResize", "ROIWarping")),
    "mscnn": Fork("MS-CNN and Cascade R-CNN", ("BoxOutput", "DecodeBBox", "ROIAlign")),
    "multibox": Fork("SSD", ("MultiBoxLoss",)),
    "ohem": Fork("R-FCN (hard examples)", ("SmoothL1LossOHEM", "SoftmaxWithLossOHEM")),
    "openpose": Fork("OpenPose", ("ImResize",)),
    "openvino": Fork("OpenVINO's training toolbox", ("PriorBoxClustered",)),
    "rfcn": Fork("R-FCN and Faster R-CNN", ("BoxAnnotatorOHEM", "PSROIPooling", "Proposal")),
    "segnet": Fork("SegNet", ("DenseImageData", "WeightedSoftmaxWithLoss")),
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
    "video": Fork("video-caffe", ("VideoData",)),
    "yolo": Fork("YOLO", ("Reorg", "Yolov3DetectionOutput")),
}
