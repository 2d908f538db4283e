"""Layers of Caffe's forks, an idea a file, which is imported when one of its types is named."""

from __future__ import annotations

from typing import NamedTuple


class Fork(NamedTuple):
    """Layers of a fork of Caffe: what it is called, the file that has them, and their types."""

    name: str
    file: str
    types: tuple[str, ...]


FORKS = [
    Fork(name, file, tuple(types.split()))
    for name, file, types in (
        ("Xlearn", "metrics", "EntropyLoss JMMDLoss"),
        ("SSD", "data", "AnnotatedData"),
        ("Z. Yan's and compact bilinear pooling's", "resize", "BilinearInterpolation"),
        ("Z. Yan's and compact bilinear pooling's", "products", "CompactBilinear"),
        ("DeepLab, PSPNet and SegNet", "resize", "Interp Upsample"),
        ("DeepLab, PSPNet and SegNet", "metrics", "SegAccuracy"),
        ("Deformable ConvNets", "between", "DeformableConvolution"),
        ("F. Tschopp", "pooling", "DilatedPooling"),
        ("SSD", "ssd", "DetectionEvaluate"),
        (
            "SphereFace, caffe-face and caffe-windows",
            "faces",
            "CenterLoss InnerDistance MarginInnerProduct",
        ),
        ("SphereFace, caffe-face and caffe-windows", "sequences", "Flip"),
        ("Fast R-CNN", "pooling", "ROIPooling"),
        ("FlowNet", "products", "Correlation"),
        ("FlowNet", "between", "FlowWarp"),
        ("HED", "data", "ImageLabelmapData"),
        ("HED", "metrics", "SigmoidCrossEntropyBalanceLoss"),
        (
            "caffe-sl, NVIDIA's Caffe, Xlearn and others",
            "metrics",
            "BatchTripletLoss DiceCoefLoss L1Loss L2Norm MMDLoss ManhattanLoss WeightedEuclideanLoss",
        ),
        ("MNC", "products", "MaskPooling"),
        ("MNC", "resize", "MaskResize"),
        ("MNC", "pooling", "ROIWarping"),
        ("MS-CNN and Cascade R-CNN", "proposals", "BoxOutput DecodeBBox"),
        ("MS-CNN and Cascade R-CNN", "pooling", "ROIAlign"),
        ("SSD", "multibox", "MultiBoxLoss"),
        ("R-FCN (hard examples)", "ohem", "SmoothL1LossOHEM SoftmaxWithLossOHEM"),
        ("OpenPose", "resize", "ImResize"),
        ("OpenVINO's training toolbox", "ssd", "PriorBoxClustered"),
        ("R-FCN and Faster R-CNN", "ohem", "BoxAnnotatorOHEM"),
        ("R-FCN and Faster R-CNN", "pooling", "PSROIPooling"),
        ("R-FCN and Faster R-CNN", "proposals", "Proposal"),
        ("SegNet", "data", "DenseImageData"),
        ("SegNet", "metrics", "WeightedSoftmaxWithLoss"),
        (
            "caffe-lstm and CTC",
            "sequences",
            "CTCGreedyDecoder CTCLoss ContinuationIndicator CtcLoss Lstm Reverse Transpose",
        ),
        ("SSD", "ssd", "DetectionOutput PriorBox"),
        ("video-caffe", "data", "VideoData"),
        ("YOLO", "resize", "Reorg"),
        ("YOLO", "proposals", "Yolov3DetectionOutput"),
    )
]
