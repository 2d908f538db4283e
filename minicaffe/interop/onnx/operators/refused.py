"""Operators that no layer says, layers that no operator says, and layers that a net is written without."""

from __future__ import annotations

from minicaffe.interop.onnx.table import refuses, unread

unread(
    "Caffe has no product of two blobs: attention cannot be said in its layers", "Attention Einsum"
)
unread("a net of Caffe's is the same for all inputs: unroll it before the export", "Loop")
unread(
    "a blob is a tensor",
    "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap "
    "SplitToSequence ConcatFromSequence Optional OptionalGetElement",
)
unread(
    "it is a quantised model: export the float32 one, and see `minicaffe calibrate`",
    "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul "
    "ConvInteger MatMulInteger",
)
unread("no layer computes it, but for that of a GELU", "Erf")
unread("a Caffe net has no GRU; an LSTM is read", "GRU")
unread("its size depends on the numbers, a blob's does not", "NonZero Compress Unique")
unread("text is no blob", "StringConcat StringNormalizer StringSplit TfIdfVectorizer")
unread(
    "random numbers in inference have no layer",
    "RandomNormal RandomUniform Multinomial RandomNormalLike RandomUniformLike Bernoulli",
)
unread(
    "no layer takes a window's norm: say it as Mul, AveragePool, Mul, Sqrt", "LpPool GlobalLpPool"
)

refuses("ONNX knows nothing of Python", "Python")
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
