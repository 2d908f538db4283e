"""Operators that make few numbers of many: means, sums, maxima, norms along axes, and ArgMax."""

from __future__ import annotations

import math

from minicaffe.bridges.draft import Blob, Draft, Node
from minicaffe.bridges.readers.arithmetic import raised
from minicaffe.bridges.readers.pooling import over_image
from minicaffe.bridges.table import RefusedError, reads

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
        if node.get("noop_with_empty_axes", 0):
            return None
        return list(range(rank))
    return sorted({axis % rank for axis in axes})


@reads(*OPERATIONS)
def reduce(draft: Draft, node: Node) -> Blob:
    """Pooling AVE where the axes are an image's; else Reduction, over axes brought to the end."""
    x = draft.blob(node.inputs[0])
    axes = axes_of(node, len(x.shape))
    operation = OPERATIONS[node.kind]
    if axes is None:
        return _behind(draft, node, _alone(draft, x, operation))
    image = list(range(2, len(x.shape)))
    if node.kind == "ReduceMean" and axes == image and len(image) == 2:
        y = over_image(draft, x, "AVE")
        return y if node.get("keepdims", 1) else draft.layer("Flatten", y, shape=node.shape)
    made = x.layer
    if operation == "SUM" and node.kind == "ReduceSum" and made is not None:
        if made.type == "AbsVal":
            x, operation = made.bottoms[0], "ASUM"
        elif made.type == "Power" and made.keys == {"power": 2.0}:
            x, operation = made.bottoms[0], "SUMSQ"
    y = reduction(draft, x, axes, operation)
    return draft.reshape(_behind(draft, node, y), node.shape)


def _alone(draft: Draft, x: Blob, operation: str) -> Blob:
    """What a reduction makes of each number when it reduces no axis."""
    if operation == "ASUM":
        return draft.layer("AbsVal", x)
    return raised(draft, x, 2.0) if operation == "SUMSQ" else x


def _behind(draft: Draft, node: Node, y: Blob) -> Blob:
    if node.kind == "ReduceL2":
        return draft.power(y, 0.5)
    return draft.layer("Log", y) if node.kind == "ReduceLogSum" else y


def reduction(draft: Draft, x: Blob, axes: list[int], operation: str) -> Blob:
    """x reduced along axes, which are then gone."""
    rank = len(x.shape)
    others = [axis for axis in range(rank) if axis not in axes]
    if axes != list(range(rank - len(axes), rank)):
        x = permuted(draft, x, [*others, *axes])
    y = draft.layer(
        "Reduction", x, shape=x.shape[: len(others)], operation=operation, axis=len(others)
    )
    return y


def permuted(draft: Draft, x: Blob, order: list[int]) -> Blob:
    """A blob with its axes in another order: a Reshape where only axes of 1 move."""
    shape = tuple(x.shape[axis] for axis in order)
    moved = [axis for axis in order if x.shape[axis] != 1]
    if moved == sorted(moved):
        return draft.reshape(x, shape)
    return draft.layer("Permute", x, shape=shape, order=order)


@reads("ReduceMax", "ReduceMin")
def reduce_max(draft: Draft, node: Node) -> Blob:
    """Pooling MAX over the axes as one image; a minimum as the maximum with the signs turned."""
    x = draft.blob(node.inputs[0])
    axes = axes_of(node, len(x.shape))
    if axes is None:
        return x
    sign = 1.0 if node.kind == "ReduceMax" else -1.0
    rank = len(x.shape)
    others = [axis for axis in range(rank) if axis not in axes]
    turned = permuted(draft, draft.linear(x, sign), [*others, *axes])
    rows, columns = (math.prod(x.shape[axis] for axis in some) for some in (others, axes))
    flat = draft.reshape(turned, (rows, 1, 1, columns))
    y = draft.layer("Pooling", flat, shape=(rows, 1, 1, 1), global_pooling=True)
    return draft.reshape(draft.linear(y, sign), node.shape)


@reads("TopK")
def top_k(draft: Draft, node: Node) -> list[Blob]:
    """ArgMax of the axis turned round: of equal numbers TopK has the first, Caffe the last."""
    x = draft.blob(node.inputs[0])
    axis, (k,) = node.get("axis", -1) % len(x.shape), node.ints("k", 1) or []
    if not node.get("largest", 1):
        raise RefusedError("it takes the smallest; an ArgMax takes the largest")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    turned = draft.turned(x, axis)
    keys = {"axis": axis} | ({} if k == 1 else {"top_k": k})
    number = draft.layer("ArgMax", turned, shape=shape, out_max_val=True, **keys)
    place = draft.layer("ArgMax", turned, shape=shape, **keys)
    return [number, draft.linear(place, -1.0, x.shape[axis] - 1)]


@reads("ArgMax", "ArgMin")
def arg_max(draft: Draft, node: Node) -> Blob:
    """ArgMax along an axis, turned round where of equal numbers the first counts: Caffe's takes the last."""
    x = draft.blob(node.inputs[0])
    if not x.shape:
        raise RefusedError("a number alone has no largest entry")
    axis = node.get("axis", 0) % len(x.shape)
    x = draft.linear(x, -1.0) if node.kind == "ArgMin" else x
    shape, size = (*x.shape[:axis], 1, *x.shape[axis + 1 :]), x.shape[axis]
    if node.get("select_last_index", 0) or size == 1:
        return draft.reshape(draft.layer("ArgMax", x, shape=shape, axis=axis), node.shape)
    turned = draft.turned(x, axis)
    place = draft.layer("ArgMax", turned, shape=shape, axis=axis)
    return draft.reshape(draft.linear(place, -1.0, size - 1), node.shape)
