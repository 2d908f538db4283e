"""Operators that move numbers and compute none."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.layers.fillers import fill
from minicaffe.core.layers.inputs import FIXED
from minicaffe.core.ops.random import random_stream
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.draft import FLOATS, Blob, Draft, Layer, Node, differing, limited, sized
from minicaffe.interop.onnx.operators.reduce import permuted
from minicaffe.interop.onnx.operators.weighted import window_keys
from minicaffe.interop.onnx.patterns import recognises
from minicaffe.interop.onnx.table import (
    RefusedError,
    draws_below,
    lowers,
    read_as,
    reads,
    says,
    writes,
)
from minicaffe.interop.onnx.writer.model import END, Graph, Written


@reads("Identity", "Dropout")
def read_identity(draft: Draft, node: Node, x: Blob) -> Any:
    """Nothing: a Dropout passes all on when a net infers."""
    if node.kind == "Dropout" and node.input(2) is not None and node.needs_const(2, "mode").any():
        raise RefusedError("it is in training mode: export the model as it infers")
    if len(node.outputs) > 1 and node.outputs[1].readers:
        raise RefusedError("its mask is read, which no layer returns")
    return x


@reads("Cast", "CastLike")
def read_cast(draft: Draft, node: Node) -> Any:
    """Nothing between types of floating point, or from whole numbers; to whole numbers it would cut digits."""
    source, target = node.known[0], node.outputs[0]
    if source.data is not None:  # like the type of what is computed
        return source.data.astype(target.dtype)
    to_whole = target.dtype not in FLOATS and not source.dtype.startswith(("bool", "int", "uint"))
    to_bool = target.dtype.startswith("bool") and not source.dtype.startswith("bool")
    if to_whole or to_bool:
        change = f"from {source.dtype} to {target.dtype}"
        raise RefusedError(f"{change} it changes numbers; blobs are floating point")
    return draft.blob(source)


read_as(
    "Reshape Squeeze Unsqueeze", "Reshape.", lambda draft, node, x: draft.reshape(x, node.shape)
)
read_as("Expand", "Tile, of axes of 1.", lambda draft, node, x: draft.spread(x, node.shape))


@reads("Flatten")
def read_flatten(draft: Draft, node: Node, x: Blob) -> Blob:
    """Flatten, or Reshape where not only the axes behind the samples become one."""
    if node.get("axis", 1) == 1 and len(x.shape) > 1:
        return x if len(x.shape) == 2 else draft.layer("Flatten", x, shape=node.shape)
    return draft.reshape(x, node.shape)


@reads("Transpose")
def read_transpose(draft: Draft, node: Node, x: Blob) -> Blob:
    """Permute, or Reshape where only axes of 1 move."""
    order = node.get("perm", list(range(len(x.shape)))[::-1])
    return permuted(draft, x, [axis % max(len(x.shape), 1) for axis in order])


@reads("Concat")
def read_concat(draft: Draft, node: Node) -> Blob:
    """Concat; constants by Parameter layers."""
    blobs = [draft.blob(one) for one in node.inputs]
    axis = node.get("axis", 1) % len(node.shape)
    return draft.concat([blob for blob in blobs if blob.shape[axis]], axis)


@reads("Split")
def read_split(draft: Draft, node: Node, x: Blob) -> list[Blob]:
    """Slice."""
    axis = node.get("axis", 0) % len(x.shape)
    sizes = node.ints("split", 1)
    if sizes is None:
        each = -(-x.shape[axis] // len(node.outputs))
        sizes = [min(each, x.shape[axis] - i * each) for i in range(len(node.outputs))]
    if min(sizes, default=1) < 1:
        raise RefusedError(f"one of its {len(sizes)} parts is empty, and no blob of a net is")
    return draft.cut(x, axis, [int(point) for point in np.cumsum(sizes)[:-1]])


@reads("Slice")
def read_slice(draft: Draft, node: Node, x: Blob) -> Blob:
    """Slice; steps of an image by a Pooling of one pixel, others by parts joined anew."""
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
        # up, a window would start behind the image
        keys |= differing(round_mode=("FLOOR" if down else "CEIL", "CEIL"))
        x = draft.layer("Pooling", x, shape=(*x.shape[:2], *sizes), **keys)
    return x


@reads("Pad")
def read_pad(draft: Draft, node: Node, x: Blob) -> Blob:
    """The pad of the Conv that reads it; else parts joined anew, or a Convolution of 1s and a Bias."""
    mode: Any = node.get("mode", "constant")  # edge, reflect and wrap as NumPy has them
    pads, axes = node.ints("pads", 1) or [], node.ints("axes", 3)
    rank, count = len(x.shape), len(pads) // 2
    widths = [(0, 0)] * rank
    for i, axis in enumerate(axes if axes is not None else range(rank)):
        widths[axis % rank] = pads[i], pads[i + count]
    number = node.number("value", 2, 0.0)
    for axis, (begin, end) in enumerate(widths):  # what is cut off is cut first
        if min(begin, end) < 0:
            x = draft.part(x, axis, max(-begin, 0), x.shape[axis] + min(end, 0))
            widths[axis] = max(begin, 0), max(end, 0)
    if mode == "constant":
        return _filled(draft, x, widths, number)
    for axis, width in enumerate(widths):
        if any(width):
            order = np.pad(np.arange(x.shape[axis]), width, mode=mode)
            x = draft.take(x, axis, [int(one) for one in order])
    return x


def _filled(draft: Draft, x: Blob, widths: Sequence[tuple[int, int]], number: float) -> Blob:
    """x with so much of a number around it: around an image by a Convolution and a Bias, else by constants."""
    if not any(map(any, widths)):
        return x
    around_image = len(x.shape) in (3, 4) and not any(map(any, widths[:2]))
    if not around_image or not np.isfinite(number):
        for axis, width in enumerate(widths):
            begin, end = (
                [draft.constant(np.full(limited(*sized(x.shape, axis, size)), number))] * bool(size)
                for size in width
            )
            x = draft.concat([*begin, x, *end], axis)
        return x
    before, behind = zip(*widths[2:], strict=True)
    kernel = [abs(a - b) + 1 for a, b in zip(before, behind, strict=True)]
    weight = np.zeros(limited(x.shape[1], 1, *kernel), np.float32)
    place = tuple(k - 1 if a < b else 0 for a, b, k in zip(before, behind, kernel, strict=True))
    index: Any = (slice(None), 0, *place)
    weight[index] = 1
    both = [max(a, b) for a, b in zip(before, behind, strict=True)]
    sizes = [s + a + b for s, a, b in zip(x.shape[2:], before, behind, strict=True)]
    keys = window_keys(kernel_size=kernel, pad=both)
    y = draft.weighted("Convolution", x, weight, (*x.shape[:2], *sizes), group=x.shape[1], **keys)
    frame = np.zeros(limited(*x.shape[2:]), np.float32)
    return draft.plus(y, np.pad(frame, widths[2:], constant_values=number))


@reads("Tile")
def read_tile(draft: Draft, node: Node, x: Blob) -> Blob:
    """Tile, one for each axis that grows."""
    repeats = node.needs_const(1, "repeats").ravel()
    return draft.tile(x, [size * int(n) for size, n in zip(x.shape, repeats, strict=True)])


@reads("DepthToSpace")
def read_depth_to_space(draft: Draft, node: Node, x: Blob) -> Blob:
    """Deconvolution by ones and zeros, whose stride is the block."""
    b = node.get("blocksize")
    n, c, h, w = x.shape
    out = c // (b * b)
    by_channel = node.get("mode", "DCR") == "CRD"
    weight = np.zeros(limited(c, 1 if by_channel else out, b, b), np.float32)
    for i in range(c):
        top, place = (0, i % (b * b)) if by_channel else (i % out, i // out)
        weight[i, top, place // b, place % b] = 1
    keys: dict[str, Any] = {"kernel_size": b, "stride": b, "group": out if by_channel else 1}
    return draft.weighted("Deconvolution", x, weight, (n, out, h * b, w * b), **keys)


@reads("SpaceToDepth")
def read_space_to_depth(draft: Draft, node: Node, x: Blob) -> Blob:
    """Convolution by ones and zeros, whose stride is the block."""
    b = node.get("blocksize")
    n, c, h, w = x.shape
    weight = np.zeros(limited(c * b * b, c, b, b), np.float32)
    for i in range(c * b * b):
        weight[i, i % c, i // c // b, i // c % b] = 1
    shape = (n, c * b * b, h // b, w // b)
    return draft.weighted("Convolution", x, weight, shape, kernel_size=b, stride=b)


@recognises(("Reshape", ("Transpose:turn", ("Reshape:split", "x"))))
def find_shuffle_channel(draft: Draft, node: Node, x: Blob, turn: Node, split: Node) -> Blob | None:
    """ShuffleChannel: (n, g, c / g, ...) transposed to (n, c / g, g, ...) and back to (n, c, ...)."""
    if x.shape != node.shape or len(node.shape) < 2:
        return None
    (n, c, *image), parts = node.shape, split.outputs[0].shape
    group = parts[1] if parts is not None and len(parts) > 1 else 0
    order = [0, 2, 1, *range(3, len(image) + 3)]
    if group == 0 or parts != (n, group, c // group, *image) or turn.get("perm") != order:
        return None
    return draft.layer("ShuffleChannel", x, group=group)


says("Permute", "Transpose", perm=lambda step: step.layer.axes)
says("Transpose", "Transpose", perm=lambda step: step.layer.axes)
draws_below(lambda step: step.bottoms[0].shape[0], ("BatchReindex", 1))
draws_below(lambda step: 2, ("Filter", -1))
writes("BatchReindex")(
    lambda graph, step, x, index: graph.op("Gather", x, graph.op("Cast", index, to=7), axis=0)
)
writes("Split")(lambda graph, step, x: [x] * len(step.tops))  # any number may read a tensor
says("Concat", "Concat", axis=lambda step: len(step.layer.parts[0]) - 1)
writes("Flip", "Reverse")(lambda graph, step, x: graph.turned(x, step.layer.axes))
writes("Silence")(lambda graph, step, *xs: [])
writes("Parameter")(lambda graph, step: graph.param(step, 0))
writes("Reshape", "Flatten")(
    lambda graph, step, x: graph.reshape(x, *map(graph.shapes, (step.bottoms[0], step.tops[0])))
)


@writes("ShuffleChannel")
def write_shuffle_channel(graph: Graph, step: Written, x: str) -> str:
    """The groups an axis of their own, exchanged with that of their channels."""
    group: int = step.layer.group
    shapes = graph.shapes(step.bottoms[0])
    before = [(n, group, c // group, *image) for n, c, *image in shapes]
    after = [(n, c // group, group, *image) for n, c, *image in shapes]
    x = graph.reshape(x, shapes, before)
    x = graph.op("Transpose", x, perm=[0, 2, 1, *range(3, len(before[0]))])
    return graph.reshape(x, after, shapes)


@writes("Crop")
def write_crop(graph: Graph, step: Written, x: str, like: str) -> str:
    """Slice, to where the other bottom's sizes end."""
    first, axes = canonical_axis(step.layer.axis, step.bottoms[0].shape), len(step.bottoms[0].shape)
    cropped = list(range(first, axes))
    starts = [step.layer.part[axis].start for axis in cropped]
    if graph.varies(step.bottoms[1], *cropped):
        ends = graph.op("Add", graph.op("Shape", like, start=first, end=axes), starts)
    else:
        ends = graph.const([step.layer.part[axis].stop for axis in cropped])
    return graph.op("Slice", x, starts, ends, cropped)


@writes("Tile")
def write_tile(graph: Graph, step: Written, x: str) -> str:
    """Tile along one axis."""
    shape = step.bottoms[0].shape
    repeats = [1] * len(shape)
    repeats[canonical_axis(step.layer.axis, shape)] = step.layer.tiles
    return graph.op("Tile", x, repeats)


@writes("Slice")
def write_slice(graph: Graph, step: Written, x: str) -> Any:
    """Slice for each piece; the last one goes to the end."""
    layer = step.layer
    if len(step.tops) == 1:
        return x
    axis = len(layer.parts[0]) - 1
    if not graph.varies(step.bottoms[0], axis):
        sizes = [part[axis].stop - part[axis].start for part in layer.parts]
        return graph.ops("Split", len(step.tops), x, sizes, axis=axis)
    if not layer.slice_point:
        return graph.ops("Split", len(step.tops), x, axis=axis)
    ends = [*layer.slice_point, END]
    starts = [0, *layer.slice_point]
    return [graph.op("Slice", x, [a], [b], [axis]) for a, b in zip(starts, ends, strict=True)]


@writes("Reorg")
def write_reorg(graph: Graph, step: Written, x: str) -> str:
    """A transposition of the parts that sides and channels consist of."""
    layer = step.layer
    if graph.varies(step.bottoms[0], 1, 2, 3):
        raise SpecError("with a dynamic height or width its parts would not be known")
    _, *parts = layer.parts
    channels = [parts[i - 1] for i in layer.order[1:]]
    order = np.argsort(layer.order) if layer.reverse else layer.order
    x = graph.op("Reshape", x, [0, *(channels if layer.reverse else parts)])
    x = graph.op("Transpose", x, perm=tuple(int(axis) for axis in order))
    return graph.op("Reshape", x, [0, *step.tops[0].shape[1:]])


@writes("Filter", jumps=True)
def write_filter(graph: Graph, step: Written, *bottoms: str) -> list[str]:
    """Compress of each bottom but the last."""
    *xs, selector = bottoms
    graph.open |= {value: [0] for value in step.tops}
    flat = [(shape[0],) for shape in graph.shapes(step.bottoms[-1])]
    selector = graph.reshape(selector, graph.shapes(step.bottoms[-1]), flat)
    chosen = graph.op("Cast", selector, to=9)
    return [graph.op("Compress", x, chosen, axis=0) for x in xs]


@writes("DummyData")
def write_dummy_data(graph: Graph, step: Written) -> list[str]:
    """Constants. Numbers that are drawn anew for each pass are refused."""
    constants = []
    for i, (filler, value) in enumerate(zip(step.layer.fillers, step.tops, strict=True)):
        if filler.type not in FIXED:
            problem = "draws anew for each pass; expected constant"
            raise SpecError(f"data_filler {filler.type}: {problem}")
        stream = random_stream(step.layer.context.seed, step.layer.name, i)
        values = fill(filler, value.shape, stream).astype(np.float32)
        constants.append(graph.const(values, f"{step.spec.name}/{value.name}"))
    return constants


@lowers("Reverse")
def lower_reverse(draft: Draft, layer: Layer) -> Blob:
    """Each entry cut off, and joined again; channels by a Convolution by 1 x 1."""
    x, axis = layer.bottoms[0], layer.keys["axis"]
    return draft.take(x, axis, range(x.shape[axis])[::-1])


@lowers("ShuffleChannel")
def lower_shuffle_channel(draft: Draft, layer: Layer) -> Blob:
    """A Convolution by 1 x 1, of ones and zeros."""
    x, group = layer.bottoms[0], layer.keys["group"]
    return draft.picked(x, [int(one) for one in np.arange(x.shape[1]).reshape(group, -1).T.ravel()])
