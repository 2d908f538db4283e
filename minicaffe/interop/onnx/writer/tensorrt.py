"""What TensorRT 10 reads of ONNX: its operators, their restrictions, and a check of a graph against both.

Source: docs/operators.md of onnx/onnx-tensorrt, branch 10.1-GA, commit
96e781103cfc4adf4a6bb557e94bac8e693f6f4c: all operators that it supports, and the restrictions of those that an
export may write. The table is of opsets 9 to 20; ours is 17.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from minicaffe.core.net import Net
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.model import Body, Graph, Node

_READ = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast
CastLike Ceil Celu Clip Concat Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum
DeformConv DepthToSpace DequantizeLinear Div Dropout Einsum Elu Equal Erf Exp Expand EyeLike
Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool
GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization GRU HardSigmoid HardSwish
Hardmax Identity If ImageScaler InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu
Less LessOrEqual Log LogSoftmax Loop LRN LSTM LpNormalization LpPool MatMul Max MaxPool Mean
MeanVarianceNormalization Min Mish Mod Mul Neg NonMaxSuppression NonZero Not OneHot Or Pad
ParametricSoftplus Pow PRelu QuantizeLinear RandomNormal RandomNormalLike RandomUniform
RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence
RNN RoiAlign Round ScaledTanh Scan Scatter ScatterElements ScatterND Selu Shape Shrink Sigmoid
Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan
Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor
"""
READ = frozenset(_READ.split())
K_BELOW = 3840  # TopK's, by the table
MODES = ("half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners")

Reason = str | None  # what of an operation TensorRT does not read


def _pool(graph: Graph, node: Node) -> Reason:
    if len(node.outputs) > 1:
        return "a second output, the places of maxima"
    if any(size != 1 for size in node.attributes.get("dilations", ())):
        return "dilations other than 1"
    spatial = len(node.attributes["kernel_shape"])
    return None if spatial in (2, 3) else f"windows of {spatial} axes: it must be 2 or 3"


def _computed(at: int, what: str, graph: Graph, node: Node) -> Reason:
    """That an input is no constant."""
    name = len(node.inputs) > at and node.inputs[at]
    return f"{what} that are computed" if name and name not in graph.arrays else None


def _top_k(graph: Graph, node: Node) -> Reason:
    if node.attributes.get("sorted", 1) != 1:
        return "unsorted outputs"
    most = _bound(graph, node.inputs[1])
    if most is None or most >= K_BELOW:
        return f"a K that may be {most or 'of any size'}: it must be below {K_BELOW}"
    return None


def _bound(graph: Graph, name: str) -> int | None:
    """The most that a number is: a constant, or the least of several; None if that is not known."""
    if name in graph.arrays:
        return int(graph.arrays[name].max())
    node = next((node for node in graph.nodes if name in node.outputs), None)
    if node is None or node.kind != "Min":
        return None
    known = (_bound(graph, one) for one in node.inputs)
    return min((size for size in known if size is not None), default=None)


def _resize(graph: Graph, node: Node) -> Reason:
    mode = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    kind = node.attributes.get("mode", "nearest")
    if mode not in MODES:
        return f"the coordinates {mode}"
    return None if kind in ("nearest", "linear") else f"the mode {kind}"


REDUCED = [name for name in READ if name.startswith("Reduce")]
RESTRICTED: dict[str, Callable[[Graph, Node], Reason]] = {
    "MaxPool": _pool,
    "AveragePool": _pool,
    "TopK": _top_k,
    "Resize": _resize,
    "ScatterND": lambda graph, node: (
        "a reduction" if node.attributes.get("reduction", "none") != "none" else None
    ),
    "CumSum": partial(_computed, 1, "an axis"),
    **dict.fromkeys(("Pad", "Slice"), partial(_computed, 3, "axes")),
    **dict.fromkeys(("Squeeze", "Unsqueeze", *REDUCED), partial(_computed, 1, "axes")),
}


def check(graph: Graph, net: Net) -> None:
    """Raise SpecError for the first operation that TensorRT 10 does not read, with the layer it is part of."""
    for node in _all(graph.nodes):
        restriction = RESTRICTED.get(node.kind, lambda *_: None)(graph, node)
        if node.kind in READ and restriction is None:
            continue
        step = next(step for step in net.steps if step.spec.name == node.layer)
        what = f"{node.kind} with {restriction}" if node.kind in READ else node.kind
        raise SpecError(
            f"{step.place}: TensorRT 10 does not read ONNX's {what}; have the net end before this layer "
            "and compute the rest outside, or export without tensorrt_safe and give TensorRT a plugin"
        )


def check_axes(words: Sequence[str]) -> None:
    """Raise SpecError for axes of any size other than the batch's."""
    others = [word for word in words if word != "batch"]
    if others:
        raise SpecError(
            f"dynamic {', '.join(others)}: for TensorRT only the batch may be of any size; export a file "
            "for each size of images"
        )


def _all(nodes: Sequence[Node]) -> Iterator[Node]:
    """Nodes, and those of bodies within them."""
    for node in nodes:
        yield node
        for within in node.attributes.values():
            if isinstance(within, Body):
                yield from _all(within.nodes)
