"""Operators that move numbers and compute none."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node, Tensor, limited
from minicaffe.interop.onnx.reader.nodes.reduce import permuted
from minicaffe.interop.onnx.reader.nodes.window import convolution, deconvolution, window_keys
from minicaffe.interop.onnx.reader.patterns import match, recognises
from minicaffe.interop.onnx.reader.source import FLOATS
from minicaffe.interop.onnx.reader.table import RefusedError, reads


@reads("Identity", "Dropout")
def identity(draft: Draft, node: Node) -> Any:
    """Nothing: a Dropout passes all on when a net infers."""
    if node.kind == "Dropout" and node.input(2) is not None and node.needs_const(2, "mode").any():
        raise RefusedError("it is in training mode: export the model as it infers")
    if len(node.outputs) > 1 and node.outputs[1].readers:
        raise RefusedError("its mask is read, which no layer returns")
    return draft.blob(node.inputs[0])


@reads("Cast", "CastLike")
def cast(draft: Draft, node: Node) -> Any:
    """Nothing between types of floating point, or from whole numbers; to whole numbers it would cut digits."""
    source, target = node.known[0], node.outputs[0]
    if source.data is not None:  # like the type of what is computed
        return source.data.astype(target.dtype)
    whole = ("bool", "int", "uint")
    if target.dtype not in FLOATS and not source.dtype.startswith(whole):
        raise RefusedError(_cut_digits(source, target))
    if target.dtype.startswith("bool") and not source.dtype.startswith("bool"):
        raise RefusedError(_cut_digits(source, target))
    return draft.blob(source)


def _cut_digits(source: Tensor, target: Tensor) -> str:
    return f"from {source.dtype} to {target.dtype} it changes numbers; blobs are floating point"


@reads("Reshape", "Squeeze", "Unsqueeze")
def reshape(draft: Draft, node: Node) -> Blob:
    """Reshape."""
    return draft.reshape(draft.blob(node.inputs[0]), node.shape)


@reads("Flatten")
def flatten(draft: Draft, node: Node) -> Blob:
    """Flatten, or Reshape where not only the axes behind the samples become one."""
    x, axis = draft.blob(node.inputs[0]), node.get("axis", 1)
    if axis == 1 and len(x.shape) > 1:
        return x if len(x.shape) == 2 else draft.layer("Flatten", x, shape=node.shape)
    return draft.reshape(x, node.shape)


@reads("Transpose")
def transpose(draft: Draft, node: Node) -> Blob:
    """Permute, or Reshape where only axes of 1 move."""
    x = draft.blob(node.inputs[0])
    order = node.get("perm", list(range(len(x.shape)))[::-1])
    return permuted(draft, x, [axis % max(len(x.shape), 1) for axis in order])


@reads("Concat")
def concat(draft: Draft, node: Node) -> Blob:
    """Concat; constants by Parameter layers."""
    blobs = [draft.blob(one) for one in node.inputs]
    axis = node.get("axis", 1) % len(node.shape)
    return draft.concat([blob for blob in blobs if blob.shape[axis]], axis)


@reads("Split")
def split(draft: Draft, node: Node) -> list[Blob]:
    """Slice."""
    x = draft.blob(node.inputs[0])
    axis = node.get("axis", 0) % len(x.shape)
    sizes = node.ints("split", 1)
    if sizes is None:
        each = -(-x.shape[axis] // len(node.outputs))
        sizes = [min(each, x.shape[axis] - i * each) for i in range(len(node.outputs))]
    if min(sizes, default=1) < 1:
        raise RefusedError(f"one of its {len(sizes)} parts is empty, and no blob of a net is")
    points = [int(point) for point in np.cumsum(sizes)[:-1]]
    return draft.cut(x, axis, points)


@reads("Slice")
def slice_(draft: Draft, node: Node) -> Blob:
    """Slice; steps of an image by a Pooling of one pixel, others by parts joined anew."""
    x = draft.blob(node.inputs[0])
    starts, ends = node.ints("starts", 1) or [], node.ints("ends", 2) or []
    axes = node.ints("axes", 3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = node.ints("steps", 4) or [1] * len(starts)
    ranges = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis %= len(x.shape)
        ranges[axis] = range(x.shape[axis])[
            slice(start, None if step < 0 and end < -x.shape[axis] else end, step)
        ]
    strided = {axis: one for axis, one in ranges.items() if one.step > 1 and axis >= 2}
    for axis, one in ranges.items():
        if axis in strided and len(x.shape) == 4:
            x = draft.part(x, axis, one.start, one[-1] + 1)  # where a Pooling rounds nothing
        elif one.step == 1:
            x = draft.part(x, axis, one.start, one.stop)
        elif one.step == -1:
            x = draft.turned(draft.part(x, axis, one.stop + 1, one.start + 1), axis)
        else:
            x = draft.take(x, axis, list(one))
    if strided and len(x.shape) == 4:
        stride = [strided[axis].step if axis in strided else 1 for axis in (2, 3)]
        sizes = [-(-size // step) for size, step in zip(x.shape[2:], stride, strict=True)]
        down = any((size - 1) % step for size, step in zip(x.shape[2:], stride, strict=True))
        keys = {"kernel_size": 1} | window_keys(stride=stride)
        keys |= {"round_mode": "FLOOR"} if down else {}  # up, a window would start behind the image
        x = draft.layer("Pooling", x, shape=(*x.shape[:2], *sizes), **keys)
    return x


@reads("Gather")
def gather(draft: Draft, node: Node) -> Blob:
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


@recognises("Gather")
def embed(draft: Draft, node: Node) -> Blob | None:
    """Embed: rows of a constant by numbers that are made whole."""
    words = match(("Gather", "*table", ("Cast", "x")), node)
    if words is None or node.get("axis", 0) != 0 or words["*table"].ndim != 2:
        return None
    return _embed(draft, words["x"].blob, words["*table"])


def _embed(draft: Draft, index: Blob, table: np.ndarray) -> Blob:
    keys = {"input_dim": len(table), "num_output": table.shape[1], "bias_term": False}
    shape = (*index.shape, table.shape[1])
    return draft.layer("Embed", index, shape=shape, arrays=[table], **keys)


@reads("Pad")
def pad(draft: Draft, node: Node) -> Blob:
    """The pad of the Conv that reads it; else parts joined anew, or a Convolution of 1s and a Bias."""
    x, mode = draft.blob(node.inputs[0]), node.get("mode", "constant")
    pads = node.ints("pads", 1) or []
    axes = node.ints("axes", 3)
    rank = len(x.shape)
    full = [0] * 2 * rank
    for i, axis in enumerate(axes if axes is not None else range(rank)):
        count = len(pads) // 2
        full[axis % rank], full[axis % rank + rank] = pads[i], pads[i + count]
    value = node.needs_const(2, "value") if node.input(2) is not None else None
    number = (
        float(value.ravel()[0])
        if value is not None and value.size
        else float(node.get("value", 0.0))
    )
    for axis in range(rank):  # what is cut off is cut first
        begin, end = full[axis], full[axis + rank]
        if min(begin, end) < 0:
            x = draft.part(x, axis, max(-begin, 0), x.shape[axis] + min(end, 0))
            full[axis], full[axis + rank] = max(begin, 0), max(end, 0)
    if mode == "constant":
        return _filled(draft, x, full, number)
    for axis in range(rank):
        begin, end, size = full[axis], full[axis + rank], x.shape[axis]
        if begin or end:
            kind = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}[mode]
            order = np.pad(np.arange(size), (begin, end), mode=kind)  # type: ignore[call-overload]
            x = draft.take(x, axis, [int(one) for one in order])
    return x


def _filled(draft: Draft, x: Blob, full: list[int], number: float) -> Blob:
    """x with so much of a number around it: around an image by a Convolution and a Bias, else by constants."""
    rank = len(x.shape)
    if not any(full):
        return x
    around_image = rank in (3, 4) and not any(full[:2] + full[rank : rank + 2])
    if not around_image or not np.isfinite(number):
        for axis in range(rank):
            begin, end = full[axis], full[axis + rank]
            ends = [
                draft.constant(np.full(limited(*_sized(x.shape, axis, size)), number))
                for size in (begin, end)
            ]
            parts = [ends[0]] * bool(begin) + [x] + [ends[1]] * bool(end)
            x = draft.concat(parts, axis)
        return x
    before, behind = full[2:rank], full[rank + 2 :]
    kernel = [abs(a - b) + 1 for a, b in zip(before, behind, strict=True)]
    weight = np.zeros(limited(x.shape[1], 1, *kernel), np.float32)
    place = tuple(k - 1 if a < b else 0 for a, b, k in zip(before, behind, kernel, strict=True))
    index: Any = (slice(None), 0, *place)
    weight[index] = 1
    both = [max(a, b) for a, b in zip(before, behind, strict=True)]
    sizes = [s + a + b for s, a, b in zip(x.shape[2:], before, behind, strict=True)]
    keys = {"kernel_size": 1} | window_keys(kernel_size=kernel, pad=both)
    if "kernel_h" in keys:
        del keys["kernel_size"]
    shape = (*x.shape[:2], *sizes)
    y = convolution(draft, x, weight, None, shape, x.shape[1], **keys)
    frame = np.zeros(limited(*x.shape[2:]), np.float32)
    widths = list(zip(before, behind, strict=True))
    return draft.plus(y, np.pad(frame, widths, constant_values=number))


def _sized(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


@reads("Expand")
def expand(draft: Draft, node: Node) -> Blob:
    """Tile, of axes of 1."""
    return draft.spread(draft.blob(node.inputs[0]), node.shape)


@reads("Tile")
def tile(draft: Draft, node: Node) -> Blob:
    """Tile, one for each axis that grows."""
    x = draft.blob(node.inputs[0])
    for axis, count in enumerate(node.needs_const(1, "repeats").ravel()):
        if count != 1:
            shape = _sized(x.shape, axis, x.shape[axis] * int(count))
            x = draft.layer("Tile", x, shape=shape, axis=axis, tiles=int(count))
    return x


@reads("DepthToSpace")
def depth_to_space(draft: Draft, node: Node) -> Blob:
    """Deconvolution by ones and zeros, whose stride is the block."""
    x, b = draft.blob(node.inputs[0]), node.get("blocksize")
    n, c, h, w = x.shape
    out = c // (b * b)
    keys: dict[str, Any] = {"kernel_size": b, "stride": b}
    shape = (n, out, h * b, w * b)
    if node.get("mode", "DCR") == "CRD":
        weight = np.zeros(limited(c, 1, b, b), np.float32)
        for i in range(c):
            weight[i, 0, i % (b * b) // b, i % b] = 1
        return deconvolution(draft, x, weight, None, shape, out, **keys)
    weight = np.zeros(limited(c, out, b, b), np.float32)
    for i in range(c):
        weight[i, i % out, i // out // b, i // out % b] = 1
    return deconvolution(draft, x, weight, None, shape, 1, **keys)


@reads("SpaceToDepth")
def space_to_depth(draft: Draft, node: Node) -> Blob:
    """Convolution by ones and zeros, whose stride is the block."""
    x, b = draft.blob(node.inputs[0]), node.get("blocksize")
    n, c, h, w = x.shape
    weight = np.zeros(limited(c * b * b, c, b, b), np.float32)
    for i in range(c * b * b):
        weight[i, i % c, i // c // b, i // c % b] = 1
    shape = (n, c * b * b, h // b, w // b)
    return convolution(draft, x, weight, None, shape, kernel_size=b, stride=b)
