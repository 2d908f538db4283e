"""Layers of Caffe's forks, an idea a file, which is imported when one of its types is named."""

from typing import NamedTuple

# What a fork is called, and the layers that it has: behind the name of a file those that stand there.
_FORKS = """
Xlearn: metrics EntropyLoss JMMDLoss
SSD: data AnnotatedData / ssd DetectionEvaluate DetectionOutput MultiBoxLoss PriorBox
Z. Yan's and compact bilinear pooling's: resize BilinearInterpolation / pairs CompactBilinear
DeepLab, PSPNet and SegNet: resize Interp Upsample / metrics SegAccuracy
Deformable ConvNets: pairs DeformableConvolution
F. Tschopp: pooling DilatedPooling
SphereFace, caffe-face and caffe-windows: faces CenterLoss InnerDistance MarginInnerProduct / sequences Flip
Fast R-CNN: pooling ROIPooling
FlowNet: pairs Correlation FlowWarp
HED: data ImageLabelmapData / metrics SigmoidCrossEntropyBalanceLoss
caffe-sl, NVIDIA's Caffe, Xlearn and others: metrics BatchTripletLoss DiceCoefLoss L1Loss L2Norm
caffe-sl, NVIDIA's Caffe, Xlearn and others: metrics MMDLoss ManhattanLoss WeightedEuclideanLoss
MNC: pairs MaskPooling / resize MaskResize / pooling ROIWarping
MS-CNN and Cascade R-CNN: proposals BoxOutput DecodeBBox / pooling ROIAlign
R-FCN (hard examples): ohem SmoothL1LossOHEM SoftmaxWithLossOHEM
OpenPose: resize ImResize
OpenVINO's training toolbox: ssd PriorBoxClustered
R-FCN and Faster R-CNN: ohem BoxAnnotatorOHEM / pooling PSROIPooling / proposals Proposal
SegNet: data DenseImageData / metrics WeightedSoftmaxWithLoss
caffe-lstm and CTC: sequences CTCGreedyDecoder CTCLoss ContinuationIndicator CtcLoss Lstm Reverse Transpose
video-caffe: data VideoData
YOLO: resize Reorg / proposals Yolov3DetectionOutput
"""


class Fork(NamedTuple):
    """Layers of a fork of Caffe: what it is called, the file that has them, and their types."""

    name: str
    file: str
    types: tuple[str, ...]


FORKS = [
    Fork(name, file, tuple(types))
    for name, _, rows in (line.partition(": ") for line in _FORKS.strip().split("\n"))
    for file, *types in map(str.split, rows.split(" / "))
]
