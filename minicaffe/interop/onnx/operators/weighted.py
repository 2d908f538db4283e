"""Products with weights: convolutions of 1 to 3 axes, with a matrix of numbers; rows of one by number."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Shape, Sizes, differing, limited
from minicaffe.interop.onnx.patterns import recognises
from minicaffe.interop.onnx.table import RefusedError, draws_below, reads, writes
from minicaffe.interop.onnx.writer.model import Graph, Written

PLAIN = ("NOTSET", "VALID")  # of auto_pad: the pads are known without the image's size
LOWEST = float(np.finfo(np.float32).min)


def window_over(
    node: Node, x: Blob, kernel: Sizes, neutral: Callable[[float], bool]
) -> tuple[Blob, list[int], list[int], list[int]]:
    """What a window goes over (a Pad of `neutral` taken in), strides, dilations, pads: begins, then ends."""
    ones = [1] * len(kernel)
    strides, dilations = list(node.get("strides", ones)), list(node.get("dilations", ones))
    pads = pads_of(node, x, kernel, strides, dilations)
    source = node.inputs[0]
    pad = source.node if source is not None else None
    if pad is None or pad.kind != "Pad" or node.get("auto_pad", "NOTSET") not in PLAIN:
        return x, strides, dilations, pads
    before, more = pad.inputs[0], pad.ints("pads", 1)
    if before is None or before.blob is None or more is None or pad.input(3) is not None:
        return x, strides, dilations, pads
    outer, inner = np.split(np.reshape(more, (2, -1)), [2], axis=1)
    around = pad.get("mode", "constant") == "constant" and not outer.any() and min(more) >= 0
    if not around or not neutral(pad.number("value", 2, 0.0)):
        return x, strides, dilations, pads
    return before.blob, strides, dilations, [int(p) for p in pads + inner.ravel()]


def pads_of(node: Node, x: Blob, kernel: Sizes, strides: Sizes, dilations: Sizes) -> list[int]:
    """The pads as `pads` or `auto_pad` says. Raises RefusedError."""
    auto, axes = node.get("auto_pad", "NOTSET"), len(kernel)
    if auto in PLAIN:
        return [0] * 2 * axes if auto == "VALID" else list(node.get("pads", [0] * 2 * axes))
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedError(f"its auto_pad is {auto!r}, which ONNX does not have")
    begin, end = [], []
    for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begin.append(small if auto == "SAME_UPPER" else large)
        end.append(large if auto == "SAME_UPPER" else small)
    return begin + end


def window_keys(**sizes: Sizes) -> dict[str, Any]:
    """A window's sizes as keys: one number where the axes agree, kernel_h and kernel_w or a list elsewhere.

    >>> window_keys(kernel_size=[3, 3], stride=[1, 1], pad=[1, 2])
    {'kernel_size': 3, 'pad_h': 1, 'pad_w': 2}
    """
    keys: dict[str, Any] = {}
    usual = {"kernel_size": None, "stride": 1, "pad": 0, "dilation": 1}
    for key, values in sizes.items():
        values = [int(value) for value in values]
        if len(set(values)) == 1:
            if values[0] != usual[key]:
                keys[key] = values[0]
        elif len(values) == 2 and key != "dilation":
            word = key.removesuffix("_size")
            keys |= {f"{word}_h": values[0], f"{word}_w": values[1]}
        else:
            keys[key] = values
    return keys


def evened(weight: np.ndarray, pads: Sizes, dilations: Sizes) -> tuple[np.ndarray, list[int]]:
    """A kernel with zeros before or behind, and a pad for both ends, that do what unequal pads do.

    With pads b and e, b < e, zeros before the kernel move its first place to -e. Raises RefusedError where a
    dilation does not divide the difference.
    """
    axes = len(pads) // 2
    widths, both = [(0, 0), (0, 0)], []
    for begin, end, dilation in zip(pads[:axes], pads[axes:], dilations, strict=True):
        more, rest = divmod(abs(end - begin), dilation)
        if rest:
            raise RefusedError(
                f"its pads {list(pads)} differ by no multiple of its dilation {dilation}"
            )
        widths.append((more, 0) if begin < end else (0, more))
        both.append(max(begin, end))
    return grown(weight, widths), both


def grown(weight: np.ndarray, widths: Sequence[tuple[int, int]]) -> np.ndarray:
    """A kernel with zeros before and behind. Raises RefusedError where it becomes too large."""
    if any(map(any, widths)):
        limited(*(size + sum(width) for size, width in zip(weight.shape, widths, strict=True)))
    return np.pad(weight, widths)


@reads("Conv")
def read_conv(draft: Draft, node: Node, x: Blob) -> Blob:
    """Convolution; unequal pads become zeros in the kernel, a Pad before it becomes its pad."""
    weight = node.needs_const(1, "weight")
    x, strides, dilations, pads = window_over(node, x, weight.shape[2:], lambda number: number == 0)
    if min(pads, default=0) < 0:
        raise RefusedError(f"its pads {pads} cut the image; a layer's do not")
    weight, both = evened(weight, pads, dilations)
    bias = node.optional_const(2, "bias")
    keys = window_keys(kernel_size=weight.shape[2:], stride=strides, pad=both, dilation=dilations)
    keys["group"] = node.get("group", 1)
    return draft.weighted("Convolution", x, weight, node.shape, bias, **keys)


@reads("ConvTranspose")
def read_conv_transpose(draft: Draft, node: Node, x: Blob) -> Blob:
    """Deconvolution; what unequal pads or an output_padding leave over is computed, then cut off or added."""
    weight = node.needs_const(1, "weight")
    axes = weight.ndim - 2
    strides, dilations = node.get("strides", [1] * axes), node.get("dilations", [1] * axes)
    extent = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    whole = [(size - 1) * s + e for size, s, e in zip(x.shape[2:], strides, extent, strict=True)]
    wanted = list(node.shape[2:])
    starts = [0] * axes
    auto = node.get("auto_pad", "NOTSET")
    extra = node.get("output_padding", [0] * axes)
    if auto in ("SAME_UPPER", "SAME_LOWER") or "output_shape" in node.attributes:
        total = [max(w + o - size, 0) for w, o, size in zip(whole, extra, wanted, strict=True)]
        starts = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]
    else:
        starts = list(node.get("pads", [0] * 2 * axes))[:axes]
    for axis in range(axes):  # zeros behind the kernel reach as far as output_padding asks
        lacks = starts[axis] + wanted[axis] - whole[axis]
        if lacks > 0:
            more = -(-lacks // dilations[axis])
            widths = [(0, 0)] * weight.ndim
            widths[2 + axis] = (0, more)
            weight, whole[axis] = grown(weight, widths), whole[axis] + more * dilations[axis]
    ends = [w - start - size for w, start, size in zip(whole, starts, wanted, strict=True)]
    both = [max(min(a, b), 0) for a, b in zip(starts, ends, strict=True)]
    if min(starts, default=0) < 0:
        raise RefusedError("its pads are below 0; a layer's are not")
    bias = node.optional_const(2, "bias")
    keys = window_keys(kernel_size=weight.shape[2:], stride=strides, pad=both, dilation=dilations)
    sizes = [w - 2 * p for w, p in zip(whole, both, strict=True)]
    shape, group = (*node.shape[:2], *sizes), node.get("group", 1)
    y = draft.weighted("Deconvolution", x, weight, shape, bias, **keys, group=group)
    for axis in range(axes):
        start = starts[axis] - both[axis]
        y = draft.part(y, 2 + axis, start, start + wanted[axis])
    return y


@writes("Convolution", "Deconvolution")
def write_filter(graph: Graph, step: Written, *bottoms: str) -> list[str]:
    """Conv or ConvTranspose, whose weight is laid out as ours is."""
    kind = "Conv" if step.spec.type == "Convolution" else "ConvTranspose"
    return [filtered(graph, step, kind, i, x) for i, x in enumerate(bottoms)]


def filtered(
    graph: Graph, step: Written, kind: str, i: int, x: str, group: int = 0, *weights: np.ndarray
) -> str:
    """Bottom i filtered by the parameters, or by other weights, its batch axes made one."""
    window = step.layer.split(step.bottoms[i].shape)[3]
    image = len(window.kernel)
    before, after = graph.shapes(step.bottoms[i]), graph.shapes(step.tops[i])
    x = graph.reshape(x, before, [one_batch(shape, image) for shape in before])
    own = weights or [graph.param(step, index) for index in range(len(step.layer.params))]
    sizes: Any = {"kernel_shape": window.kernel, "strides": window.stride}
    sizes |= {"pads": window.pad * 2, "dilations": window.dilation}
    y = graph.op(kind, x, *own, group=group or step.layer.group, **sizes)
    return graph.reshape(y, [one_batch(shape, image) for shape in after], after)


@writes("Im2col")
def write_im2col(graph: Graph, step: Written, x: str) -> str:
    """Conv with a filter for each element of a channel's window, which is 1 there and 0 elsewhere."""
    lead, c, _, window = step.layer.split(step.bottoms[0].shape)
    if graph.varies(step.bottoms[0], len(lead)):
        raise SpecError("cannot be exported with channels of a dynamic number")
    each = math.prod(window.kernel)
    pick = np.tile(np.eye(each, dtype=np.float32), (c, 1)).reshape(c * each, 1, *window.kernel)
    return filtered(graph, step, "Conv", 0, x, c, pick)


def one_batch(shape: Shape, image: int) -> Shape:
    """A shape whose axes before the channels', which stand before `image` others, are one."""
    lead = len(shape) - image - 1
    return (math.prod(shape[:lead]), *shape[lead:])


@reads("Gemm")
def read_gemm(draft: Draft, node: Node, x: Blob) -> Blob:
    """InnerProduct; alpha and beta are multiplied into its numbers."""
    weight = node.needs_const(1, "second matrix")
    if node.get("transA", 0):
        raise RefusedError("transA turns the samples into features")
    weight = weight if node.get("transB", 0) else weight.T
    weight = weight * np.float32(node.get("alpha", 1.0))
    y = inner_product(draft, x, weight, node.shape)
    if node.input(2) is None:
        return y
    term = node.const(2)
    if term is None:
        scaled = draft.linear(draft.blob(node.inputs[2]), node.get("beta", 1.0))
        return draft.combined("Bias", y, scaled, node.shape)
    term = np.broadcast_to(term, np.broadcast_shapes(term.shape, (1, len(weight))))
    return draft.plus(y, term * np.float32(node.get("beta", 1.0))) if term.any() else y


@reads("MatMul")
def read_mat_mul(draft: Draft, node: Node) -> Blob:
    """InnerProduct along the last axis, of a constant matrix on the right."""
    weight = node.const(1)
    if weight is None:
        matrix, x = node.const(0), draft.blob(node.inputs[1])
        if matrix is None:
            raise RefusedError("both matrices are computed: Caffe has no product of two blobs")
        if matrix.ndim != 2 or len(x.shape) < 2:
            raise RefusedError("its constant is a stack of matrices, or x a vector")
        return matrix_times(draft, matrix, x)
    x = draft.blob(node.inputs[0])
    if weight.ndim > 2 and math.prod(weight.shape[:-2]) != 1:
        raise RefusedError("its constant is a stack of matrices, an InnerProduct's is one")
    matrix = weight.reshape((-1, 1) if weight.ndim == 1 else weight.shape[-2:])
    y = inner_product(draft, x, matrix.T, (*x.shape[:-1], matrix.size // len(matrix)))
    return draft.reshape(y, node.shape)


def matrix_times(draft: Draft, matrix: np.ndarray, x: Blob) -> Blob:
    """A matrix times the last two axes of x: a Convolution by 1 x 1 whose channels are the rows of x."""
    *outer, rows, columns = x.shape
    y = draft.mixed(draft.reshape(x, (math.prod(outer), rows, columns, 1)), matrix)
    return draft.reshape(y, (*outer, len(matrix), columns))


def inner_product(draft: Draft, x: Blob, weight: np.ndarray, shape: Shape) -> Blob:
    """An InnerProduct over the last axis; a Flatten or Reshape before it that makes that axis is taken in."""
    axis, before = len(x.shape) - 1, x.layer
    if axis < 1:
        x = draft.reshape(x, (1, *x.shape))
        return draft.reshape(inner_product(draft, x, weight, (1, len(weight))), shape)
    if before is not None and before.type in ("Flatten", "Reshape") and len(x.shape) == 2:
        source = before.bottoms[0]
        if len(source.shape) > 2 and source.shape[0] == x.shape[0]:
            x, axis = source, 1
    return draft.weighted("InnerProduct", x, weight, shape, **differing(axis=(axis, 1)))


@recognises(("Reshape", ("Gemm:product", [("Reshape:rows", "x"), ("Flatten:rows", "x")])))
def find_inner_product(draft: Draft, node: Node, x: Blob, product: Node, rows: Node) -> Blob | None:
    """InnerProduct of the last axes: they are made rows of a matrix, which is multiplied, and back."""
    y, axis = product.outputs[0].blob, len(node.shape) - 1
    layer = y.layer if y is not None else None
    if layer is None or layer.type != "InnerProduct" or layer.keys.get("axis", 1) != 1:
        return None
    whole = rows.shape[1:] == (math.prod(x.shape[axis:]),)
    if axis < 2 or x.shape[:axis] != node.shape[:-1] or not whole:
        return None
    if layer.keys["num_output"] != node.shape[-1] or len(x.shape) <= axis:
        return None
    return draft.layer(
        "InnerProduct", x, shape=node.shape, arrays=layer.arrays, **layer.keys | {"axis": axis}
    )


@writes("InnerProduct")
def write_inner_product(graph: Graph, step: Written, x: str) -> str:
    """Gemm of x as a matrix, whose weight is laid out as ours is."""
    layer = step.layer
    axis, shapes = canonical_axis(layer.axis, step.bottoms[0].shape), graph.shapes(step.tops[0])
    x = graph.op("Flatten", x, axis=axis)
    params = [graph.param(step, i) for i in range(len(layer.params))]
    y = graph.op("Gemm", x, *params, transB=int(not layer.transpose))
    flat = [(math.prod(shape[:axis]), layer.num_output) for shape in shapes]
    return graph.reshape(y, flat, shapes, like=step.bottoms[0])


@writes("InnerDistance")
def write_inner_distance(graph: Graph, step: Written, x: str, *others: str) -> str:
    """ReduceSumSquare or ReduceL1 of each x less each w."""
    layer = step.layer
    k, shapes = layer.mk[1], graph.shapes(step.bottoms[0])
    rows = [math.prod(shape) // k for shape in shapes]
    x = graph.reshape(x, shapes, [(m, 1, k) for m in rows])
    if layer.weight is None:
        shapes_of_w = graph.shapes(step.bottoms[1])
        w = graph.reshape(others[0], shapes_of_w, [(shape[0], k) for shape in shapes_of_w])
    elif layer.normalize:
        weight = layer.weight.to_host()
        w = graph.const(weight / np.sqrt((weight * weight).sum(axis=1, keepdims=True) + 1e-6))
    else:
        w = graph.param(step, 0)
    kind = "ReduceL1" if layer.distance_type == "L1" else "ReduceSumSquare"
    y = graph.op(kind, graph.op("Sub", x, w), axes=[2], keepdims=0)
    return graph.reshape(y, [(m, layer.n) for m in rows], graph.shapes(step.tops[0]))


@reads("Gather")
def read_gather(draft: Draft, node: Node) -> Blob:
    """Slice and Concat of the entries that are wanted; rows of a constant by Embed."""
    table, indices = node.const(0), node.const(1)
    axis = node.get("axis", 0)
    if indices is None:
        if table is None or axis != 0 or table.ndim != 2:
            raise RefusedError("its indices are computed; Embed reads rows of a constant matrix")
        return _embed(draft, draft.blob(node.inputs[1]), table)
    x = draft.blob(node.inputs[0])
    axis %= len(x.shape)
    wanted = [int(index) % x.shape[axis] for index in indices.ravel()]
    return draft.reshape(draft.take(x, axis, wanted), node.shape)


@recognises(("Gather", "*table", ("Cast", "x")))
def find_embed(draft: Draft, node: Node, x: Blob, table: np.ndarray) -> Blob | None:
    """Embed: rows of a constant by numbers that are made whole."""
    return _embed(draft, x, table) if node.get("axis", 0) == 0 and table.ndim == 2 else None


def _embed(draft: Draft, index: Blob, table: np.ndarray) -> Blob:
    keys = {"input_dim": len(table), "num_output": table.shape[1], "bias_term": False}
    return draft.layer("Embed", index, shape=(*index.shape, table.shape[1]), arrays=[table], **keys)


draws_below(lambda step: step.layer.input_dim, ("Embed", 0))


@writes("Embed")
def write_embed(graph: Graph, step: Written, x: str) -> str:
    """Rows of the weight, by numbers that are whole."""
    y = graph.op("Gather", graph.param(step, 0), graph.op("Cast", x, to=7), axis=0)
    return graph.op("Add", y, graph.param(step, 1)) if len(step.layer.params) > 1 else str(y)
