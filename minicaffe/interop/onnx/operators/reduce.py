"""Operators that make few numbers of many: means, sums, maxima, norms along axes, and ArgMax."""

import math
from collections.abc import Sequence

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Shape, differing, limited, sized
from minicaffe.interop.onnx.operators.pooling import over_image
from minicaffe.interop.onnx.operators.weighted import window_keys
from minicaffe.interop.onnx.table import RefusedError, reads, writes
from minicaffe.interop.onnx.writer.model import Graph, Written

OPERATIONS = {
    "ReduceMean": "MEAN",
    "ReduceSum": "SUM",
    "ReduceL1": "ASUM",
    "ReduceL2": "SUMSQ",
    "ReduceSumSquare": "SUMSQ",
    "ReduceLogSum": "SUM",
}


def axes_of(node: Node, rank: int) -> list[int] | None:
    """The axes, counted from 0, in order; None where nothing is reduced."""
    axes = node.ints("axes", 1)
    if not axes:
        return None if node.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({axis % rank for axis in axes})


@reads(*OPERATIONS)
def read_reduce(draft: Draft, node: Node, x: Blob) -> Blob:
    """Pooling AVE of images; else Reduction of axes brought to the end, or Poolings and 1 x 1 Convolutions."""
    axes = axes_of(node, len(x.shape))
    operation = OPERATIONS[node.kind]
    image = list(range(2, len(x.shape)))
    if node.kind == "ReduceMean" and axes == image and len(image) == 2:
        y = over_image(draft, x, "AVE")
        return y if node.get("keepdims", 1) else draft.layer("Flatten", y, shape=node.shape)
    before = x.layer
    if node.kind == "ReduceSum" and axes is not None and before is not None:
        if before.type == "AbsVal":
            x, operation = before.bottoms[0], "ASUM"
        elif before.type == "Power" and before.keys == {"power": 2.0}:
            x, operation = before.bottoms[0], "SUMSQ"
    y = _alone(draft, x, operation) if axes is None else reduction(draft, x, axes, operation)
    y = draft.power(y, 0.5) if node.kind == "ReduceL2" else y
    return draft.reshape(draft.layer("Log", y) if node.kind == "ReduceLogSum" else y, node.shape)


def _alone(draft: Draft, x: Blob, operation: str) -> Blob:
    """What a reduction makes of each number when it reduces no axis."""
    if operation == "ASUM":
        return draft.layer("AbsVal", x)
    return draft.raised(x, 2.0) if operation == "SUMSQ" else x


def reduction(draft: Draft, x: Blob, axes: list[int], operation: str) -> Blob:
    """x reduced along axes, which are then gone, or 1: a Reduction, or of MAX a Pooling over one image."""
    others = [axis for axis in range(len(x.shape)) if axis not in axes]
    order = [*others, *axes]
    if draft.lacks("Reduction") or (moved(x, order) and draft.lacks("Permute")):
        return in_windows(draft, x, axes, operation)
    rows = permuted(draft, x, order)
    shape = rows.shape[: len(others)]
    if operation == "MAX":
        flat = draft.reshape(rows, (math.prod(shape), 1, 1, math.prod(rows.shape[len(others) :])))
        return draft.layer("Pooling", flat, shape=(*flat.shape[:3], 1), global_pooling=True)
    return draft.layer("Reduction", rows, shape=shape, operation=operation, axis=len(others))


def in_windows(draft: Draft, x: Blob, axes: list[int], operation: str) -> Blob:
    """x reduced along axes, which become 1, without Permute and Reduction: by neighbours, from the last."""
    if operation in ("ASUM", "SUMSQ"):
        x, operation = _alone(draft, x, operation), "SUM"
    while axes:
        first = last = axes[-1]
        while first - 1 in axes and first != 2:
            first -= 1
        axes = axes[: axes.index(first)]
        if first >= 2 or operation == "MAX":
            y = _pooled(draft, x, first, last, operation)
        else:  # of the channels, of all samples too if `first` is 0: a Convolution by 1 x 1
            n, c = x.shape[0] if first else 1, math.prod(x.shape[first : last + 1])
            weight = np.full(limited(1, c), 1.0 if operation == "SUM" else 1 / c)
            y = draft.mixed(draft.reshape(x, (n, c, *x.shape[last + 1 :])), weight)
        x = draft.reshape(y, shrunk(x, range(first, last + 1)))
    return x


def _pooled(draft: Draft, x: Blob, first: int, last: int, operation: str) -> Blob:
    """Poolings of windows as long as the axes; of channels too, as rows, or as halves without a Reshape."""
    if first == last == 1 and draft.lacks("Reshape"):
        while (c := x.shape[1]) > 1:
            halves = [draft.picked(x, range(i, i - c // -2)) for i in (0, c // 2)]
            x = draft.layer("Eltwise", *halves, operation="MAX")
        return x
    size = math.prod(x.shape[first : last + 1])
    window = [x.shape[axis] if first <= axis <= last else 1 for axis in (2, 3) if first >= 2]
    if len(x.shape) != 4 or first < 2:
        before, behind = math.prod(x.shape[1:first]), math.prod(x.shape[last + 1 :])
        x, window = draft.reshape(x, (x.shape[0] if first else 1, before, size, behind)), [size, 1]
    whole = tuple(window) == x.shape[2:]
    keys = {"global_pooling": True} if whole else window_keys(kernel_size=window)
    keys |= differing(pool=("MAX" if operation == "MAX" else "AVE", "MAX"))
    sizes = [size - part + 1 for size, part in zip(x.shape[2:], window, strict=True)]
    y = draft.layer("Pooling", x, shape=(*x.shape[:2], *sizes), **keys)
    return draft.linear(y, size) if operation == "SUM" else y


def shrunk(x: Blob, axes: Sequence[int]) -> Shape:
    """The shape of x with 1 for these axes."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))


def moved(x: Blob, order: Sequence[int]) -> bool:
    """True if more than axes of 1 move where the axes are put into this order."""
    own = [axis for axis in order if x.shape[axis] != 1]
    return own != sorted(own)


def permuted(draft: Draft, x: Blob, order: list[int]) -> Blob:
    """A blob with its axes in another order: a Reshape where only axes of 1 move."""
    shape = tuple(x.shape[axis] for axis in order)
    if not moved(x, order):
        return draft.reshape(x, shape)
    return draft.layer("Permute", x, shape=shape, order=order)


@reads("ReduceMax", "ReduceMin")
def read_reduce_max(draft: Draft, node: Node, x: Blob) -> Blob:
    """Pooling MAX over the axes as one image; a minimum as the maximum with the signs turned."""
    axes = axes_of(node, len(x.shape))
    if axes is None:
        return x
    sign = 1.0 if node.kind == "ReduceMax" else -1.0
    y = reduction(draft, draft.linear(x, sign), axes, "MAX")
    return draft.reshape(draft.linear(y, sign), node.shape)


@reads("TopK")
def read_top_k(draft: Draft, node: Node, x: Blob) -> list[Blob]:
    """ArgMax of the axis turned round: of equal numbers TopK has the first, Caffe the last."""
    axis, (k,) = node.get("axis", -1) % len(x.shape), node.ints("k", 1) or []
    if not node.get("largest", 1):
        raise RefusedError("it takes the smallest; an ArgMax takes the largest")
    shape, turned = sized(x.shape, axis, k), draft.turned(x, axis)
    keys = {"axis": axis} | differing(top_k=(k, 1))
    number = draft.layer("ArgMax", turned, shape=shape, out_max_val=True, **keys)
    place = draft.layer("ArgMax", turned, shape=shape, **keys)
    return [number, draft.linear(place, -1.0, x.shape[axis] - 1)]


@reads("ArgMax", "ArgMin")
def read_arg_max(draft: Draft, node: Node, x: Blob) -> Blob:
    """ArgMax along an axis, turned round where of equal numbers the first counts: Caffe's takes the last."""
    if not x.shape:
        raise RefusedError("a number alone has no largest entry")
    axis = node.get("axis", 0) % len(x.shape)
    x = draft.linear(x, -1.0) if node.kind == "ArgMin" else x
    shape, last = sized(x.shape, axis, 1), x.shape[axis] - 1
    turns = last and not node.get("select_last_index", 0)
    x = draft.turned(x, axis) if turns else x
    place = draft.layer("ArgMax", x, shape=shape, axis=axis)
    return draft.reshape(draft.linear(place, -1.0, last) if turns else place, node.shape)


@writes("Reduction")
def write_reduction(graph: Graph, step: Written, x: str) -> str:
    """The sum or mean of the axes behind, times a factor."""
    layer = step.layer
    shape, op = step.bottoms[0].shape, graph.op
    axes = list(range(canonical_axis(layer.axis, shape), len(shape))) if shape else []
    x = op("Abs", x) if layer.operation == "ASUM" else x
    x = op("Mul", x, x) if layer.operation == "SUMSQ" else x
    if layer.operation == "MEAN" and axes:
        x = op("ReduceMean", x, axes=axes, keepdims=0)
    elif axes:
        x = op("ReduceSum", x, axes, keepdims=0)
    return x if layer.coeff == 1 and axes else op("Mul", x, layer.coeff)


@writes("ArgMax", jumps=True)
def write_arg_max(graph: Graph, step: Written, x: str) -> str:
    """TopK of the axis turned round, for of equal numbers the last one comes first."""
    layer = step.layer
    k, op, shapes = layer.top_k, graph.op, graph.shapes(step.bottoms[0])
    axis = 1 if layer.axis is None else canonical_axis(layer.axis, shapes[0])
    if layer.axis is None:
        x = op("Flatten", x, axis=1)
    number, place = graph.ops("TopK", 2, graph.turned(x, [axis]), [k], axis=axis)
    place = op("Cast", op("Sub", op("Sub", graph.size(x, axis), 1), place), to=1)
    if layer.axis is not None:
        return number if layer.out_max_val else place
    parts = [place, number] if layer.out_max_val else [place]
    parts = [op("Unsqueeze", part, [1, *range(3, len(step.tops[0].shape))]) for part in parts]
    return op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
