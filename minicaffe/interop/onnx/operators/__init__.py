"""The operators, a file for each family; importing this package makes those of every file known.

Here are those that no layer says, layers that no operator says, and layers that a net is written without.
"""

import importlib
import pkgutil

from minicaffe.interop.onnx.table import REFUSED, UNREAD

_UNREAD = {
    "Caffe has no product of two blobs: attention cannot be said in its layers": "Attention Einsum",
    "a net of Caffe's is the same for all inputs: unroll it before the export": "Loop",
    "a blob is a tensor": """SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap SplitToSequence ConcatFromSequence Optional OptionalGetElement""",
    "it is a quantised model: export the float32 one, and see `minicaffe calibrate`": """QuantizeLinear
    DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger""",
    "no layer computes it, but for that of a GELU": "Erf",
    "a Caffe net has no GRU; an LSTM is read": "GRU",
    "its size depends on the numbers, a blob's does not": "NonZero Compress Unique",
    "text is no blob": "StringConcat StringNormalizer StringSplit TfIdfVectorizer",
    "random numbers in inference have no layer": (
        "RandomNormal RandomUniform Multinomial RandomNormalLike RandomUniformLike Bernoulli"
    ),
    "no layer takes a window's norm: say it as Mul, AveragePool, Mul, Sqrt": "LpPool GlobalLpPool",
}
_REFUSED = {
    "ONNX knows nothing of Python": "Python",
    "it chooses what is learnt from: leave it out of a deploy net": "BoxAnnotatorOHEM",
    "ONNX pools no regions in this way": "PSROIPooling ROIAlign ROIWarping",
    "ONNX has no word for it: have the net end before it": (
        "BoxOutput CTCGreedyDecoder DecodeBBox Proposal Yolov3DetectionOutput"
    ),
    "ONNX reads points near an image's border in another way": "DeformableConvolution FlowWarp",
    "ONNX has no word for it": "CompactBilinear Correlation",
}
UNREAD |= {kind: why for why, kinds in _UNREAD.items() for kind in kinds.split()}
REFUSED |= {kind: why for why, kinds in _REFUSED.items() for kind in kinds.split()}
for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")
