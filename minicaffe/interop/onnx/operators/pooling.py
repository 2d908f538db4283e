"""Pooling, by Caffe's rules of rounding and clipping, in ONNX's poolings, which have others.

Pooling clips a window to the image and its pads; of MAX, a pad never wins. DilatedPooling, whose windows have
gaps, does too. What differs is said exactly: `round_mode: FLOOR` where ONNX rounds down, a factor for each
place where a mean leaves pads out, and a cut where pads differ at the two ends.

Caffe's number of windows is ceil((size + 2 pad - kernel) / stride) + 1 and, with a pad, no window starts
beyond the image. A pooling that rounds down gives as many if there is room behind the image for

    pad + stride - 1, with a pad at most kernel - 1,

whatever the size is, so that an image may be of any size. What is filled in there is no pixel: it never wins
a maximum, and in a mean, whose divisor is the window clipped to the image and its pad, it does not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.core.layers.pooling import Pool
from minicaffe.core.ops.geometry import Sizes, pool_output_size, window_sizes
from minicaffe.core.ops.pool import TINY as STOCHASTIC_TINY
from minicaffe.errors import ShapeError, SpecError
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Shape, differing, limited
from minicaffe.interop.onnx.exported import as_exported
from minicaffe.interop.onnx.operators.weighted import LOWEST, grown, window_keys, window_over
from minicaffe.interop.onnx.patterns import recognises
from minicaffe.interop.onnx.table import RefusedError, draws, read_as, reads, writes
from minicaffe.interop.onnx.writer.model import Graph, Written

PLACES = "its second output, places in the whole tensor, is no layer's top"


read_as(
    "GlobalAveragePool",
    "Pooling AVE of the whole image.",
    lambda draft, node, x: over_image(draft, x, "AVE"),
)
read_as(
    "GlobalMaxPool",
    "Pooling MAX of the whole image.",
    lambda draft, node, x: over_image(draft, x, "MAX"),
)
read_as(
    "AveragePool",
    "Pooling or DilatedPooling AVE; times a factor for each place where pads do not count.",
    lambda draft, node, x: pooled(draft, node, x, "AVE"),
)


def over_image(draft: Draft, x: Blob, pool: str) -> Blob:
    """The mean or maximum over all axes behind the channels, which become 1."""
    n, c, *image = x.shape
    flat = draft.reshape(x, (n, c, *image) if len(image) == 2 else (n, c, 1, math.prod(image)))
    keys = {"global_pooling": True} | differing(pool=(pool, "MAX"))
    y = draft.layer("Pooling", flat, shape=(n, c, 1, 1), **keys)
    return draft.reshape(y, (n, c, *(1,) * len(image)))


@reads("MaxPool")
def read_max_pool(draft: Draft, node: Node, x: Blob) -> list[Blob]:
    """Pooling MAX; DilatedPooling where its windows have gaps; its places are read by MaxUnpool alone."""
    return [pooled(draft, node, x, "MAX"), Blob(node.shape, refused=(PLACES,))]


@reads("MaxUnpool", looks_back=True)
def read_max_unpool(draft: Draft, node: Node, x: Blob) -> Blob:
    """Upsample by the mask, a second top of the MaxPool whose places it reads, to that one's image."""
    places = node.inputs[1]
    pool = places.node if places is not None else None
    if pool is None or pool.kind != "MaxPool" or pool.outputs[0].blob is None:
        raise RefusedError("its places are not those of a MaxPool")
    y = pool.outputs[0].blob
    pooling, image = y.layer, draft.blob(pool.inputs[0])
    if pooling is None or pooling.type != "Pooling" or pooling.bottoms[0] is not image:
        raise RefusedError("its MaxPool is no Pooling, which alone has a mask")
    if pool.get("storage_order", 0):
        raise RefusedError("the places of its MaxPool are counted by columns")
    size = node.const(2)
    shape = node.outputs[0].shape if size is None else tuple(int(one) for one in size.ravel())
    if shape != image.shape or x.shape != y.shape:
        problem = f"its places are of {y.shape} windows of {image.shape}"
        raise RefusedError(f"it makes {shape} of {x.shape}; {problem}")
    if len(pooling.tops) == 1:
        pooling.tops.append(Blob(y.shape, pooling))
    h, w = image.shape[2:]
    return draft.layer("Upsample", x, pooling.tops[1], shape=shape, upsample_h=h, upsample_w=w)


@reads("MaxRoiPool")
def read_max_roi_pool(draft: Draft, node: Node) -> Blob:
    """ROIPooling."""
    h, w = node.get("pooled_shape")
    bottoms = [draft.blob(one) for one in node.inputs]
    keys = {"pooled_h": h, "pooled_w": w, "spatial_scale": node.get("spatial_scale", 1.0)}
    return draft.layer("ROIPooling", *bottoms, shape=node.shape, **keys)


@dataclass(frozen=True)
class Windows:
    """The windows of a pooling over an image (h, w), by ONNX's rules."""

    image: Sequence[int]
    kernel: Sequence[int]  # a window's places along each axis
    strides: Sequence[int]  # from a window to the next
    dilations: Sequence[int]  # from a place of a window to the next
    pads: Sequence[int]  # of the axes' beginnings, then of their ends
    counts: Sequence[int]  # how many windows there are along each axis
    counts_pads: bool = False  # whether a mean divides by the places of pads too

    @property
    def spans(self) -> list[int]:
        """A window's size with its gaps."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def inside(self, axis: int, low: int, high: int) -> np.ndarray:
        """How many places of each window along an axis lie from low to below high, pixel 0 being the first."""
        k, d = self.kernel[axis], self.dilations[axis]
        starts = np.arange(self.counts[axis]) * self.strides[axis] - self.pads[axis]
        before, behind = (np.clip(-((starts - edge) // d), 0, k) for edge in (low, high))
        return behind - before

    def sizes(self, pads: Sequence[int], mode: str) -> list[int]:
        """How many windows a layer padded so at both ends has, rounding so; 0 where it takes no such pad."""
        sizes = []
        for size, span, stride, pad in zip(self.image, self.spans, self.strides, pads, strict=True):
            try:
                count = pool_output_size(size, span, stride, pad, mode == "CEIL", any(pads))
            except ShapeError:
                count = 0
            sizes.append(count)
        return sizes


def pooled(draft: Draft, node: Node, x: Blob, pool: str) -> Blob:
    """A pooling of one to three axes. Raises RefusedError for what no layer says."""
    kernel, shape = list(node.get("kernel_shape")), node.shape
    axes = len(kernel)
    x, strides, dilations, pads = window_over(
        node, x, kernel, lambda number: pool == "MAX" and number <= LOWEST
    )
    counts_pads = bool(node.get("count_include_pad", 0))

    def along(x: Blob, chosen: Sequence[int | None], counts: Sequence[int]) -> Blob:
        """The pooling of images along two of the axes; None is an axis whose windows are single pixels."""

        def of(values: Sequence[int], usual: int) -> list[int]:
            return [usual if axis is None else values[axis] for axis in chosen]

        both_pads = of(pads[:axes], 0) + of(pads[axes:], 0)
        sizes = of(kernel, 1), of(strides, 1), of(dilations, 1), both_pads
        return pool_2d(draft, x, pool, Windows(x.shape[2:], *sizes, counts, counts_pads))

    if axes == 1:
        y = along(draft.reshape(x, (*x.shape[:2], 1, x.shape[2])), (None, 0), (1, shape[2]))
    elif axes == 2:
        y = along(x, (0, 1), shape[2:])
    else:  # each image, then along the axis before it
        n, c, d, h, w = x.shape
        y = along(draft.reshape(x, (n, c * d, h, w)), (1, 2), shape[3:])
        flat = draft.reshape(y, (n, c, d, shape[3] * shape[4]))
        y = along(flat, (0, None), (shape[2], shape[3] * shape[4]))
    return draft.reshape(y, shape)


def pool_2d(draft: Draft, x: Blob, pool: str, windows: Windows) -> Blob:
    """The pooling of these windows. Raises RefusedError for what no layer says."""
    image, pads, strides = windows.image, windows.pads, windows.strides
    lasts = [
        (count - 1) * s - begin
        for count, s, begin in zip(windows.counts, strides, pads[:2], strict=True)
    ]
    if any(last >= size for last, size in zip(lasts, image, strict=True)):
        raise RefusedError("its last window starts behind the image, where opsets differ")
    empty = any((windows.inside(i, 0, image[i]) == 0).any() for i in (0, 1))
    if empty and not (pool == "AVE" and windows.counts_pads):
        raise RefusedError("one of its windows holds no pixel, where runtimes differ")
    clipped = any(lasts[i] + windows.spans[i] > image[i] + pads[2 + i] for i in (0, 1))
    if pool == "AVE" and (any(pads) or clipped):
        return _mean(draft, x, windows)
    first = [0, 0]  # windows before the first are cut off
    for i, count in enumerate(windows.sizes(pads[:2], "CEIL")):
        if count < windows.counts[i]:
            first[i] = max(math.ceil((pads[2 + i] - pads[i]) / strides[i]), 0)
    both = [begin + n * s for begin, n, s in zip(pads[:2], first, strides, strict=True)]
    y = _layer(draft, x, pool, windows, both, first)
    if y is None:
        raise RefusedError(
            f"its pads {list(pads)} are too large for a Pooling by {list(windows.kernel)}, or differ"
        )
    return y


def _layer(
    draft: Draft, x: Blob, pool: str, windows: Windows, pads: Sequence[int], first: Sequence[int]
) -> Blob | None:
    """The layer that is padded so at both ends, without its windows before `first`; None if it lacks some."""
    wanted = [first[i] + windows.counts[i] for i in (0, 1)]
    sizes = {mode: windows.sizes(pads, mode) for mode in ("CEIL", "FLOOR")}
    enough = [mode for mode in sizes if all(sizes[mode][i] >= wanted[i] for i in (0, 1))]
    if not enough:
        return None
    mode = next((one for one in enough if sizes[one] == wanted), enough[0])
    keys = window_keys(kernel_size=windows.kernel, stride=windows.strides, pad=pads)
    keys |= differing(round_mode=(mode, "CEIL"), pool=(pool, "MAX"))
    kind = "Pooling"
    if set(windows.dilations) != {1}:
        kind, keys = "DilatedPooling", keys | window_keys(dilation=windows.dilations)
    y = draft.layer(kind, x, shape=(*x.shape[:2], *sizes[mode]), **keys)
    for i in (0, 1):
        y = draft.part(y, 2 + i, first[i], wanted[i])
    return y


def _mean(draft: Draft, x: Blob, windows: Windows) -> Blob:
    """A mean with pads: the layer's, rescaled by place; of windows no layer has, sums by a convolution."""
    image, kernel, pads = windows.image, list(windows.kernel), windows.pads
    ours, theirs = [], []
    for i in (0, 1):
        begin, end = pads[i], pads[2 + i]
        ours.append(windows.inside(i, -begin, image[i] + begin))
        low, high = (-begin, image[i] + end) if windows.counts_pads else (0, image[i])
        theirs.append(windows.inside(i, low, high))
    divisor = (theirs[0][:, None] * theirs[1]).astype(np.float64)
    if pads[:2] == pads[2:]:
        y = _layer(draft, x, "AVE", windows, pads[:2], (0, 0))
        if y is not None:
            return draft.times(y, ours[0][:, None] * ours[1] / divisor)
    widths, both, sizes = [(0, 0), (0, 0)], [], []
    for i in (0, 1):  # a convolution's pads are equal: zeros around the kernel make up for it
        s, d, count, begin = windows.strides[i], windows.dilations[i], windows.counts[i], pads[i]
        end = max((count - 1) * s + windows.spans[i] - image[i] - begin, 0)
        before = -(-max(end - begin, 0) // d)
        pad = begin + before * d
        behind = (pad - end) // d
        widths.append((before, behind))
        both.append(pad)
        sizes.append((image[i] + 2 * pad - windows.spans[i] - (before + behind) * d) // s + 1)
    weight = np.full(limited(x.shape[1], 1, *kernel), 1 / math.prod(kernel), np.float32)
    weight = grown(weight, widths)
    keys = window_keys(
        kernel_size=weight.shape[2:], stride=windows.strides, pad=both, dilation=windows.dilations
    )
    y = draft.weighted("Convolution", x, weight, (*x.shape[:2], *sizes), group=x.shape[1], **keys)
    for i in (0, 1):
        y = draft.part(y, 2 + i, 0, windows.counts[i])
    return draft.times(y, math.prod(kernel) / divisor)


IMAGE = ("Pad:pad", "x")
MEAN = ("Mul", ("AveragePool:pool", [IMAGE, "x"]), "*share")


@recognises([("MaxPool:pool", IMAGE), MEAN])
def find_pooling(
    draft: Draft, node: Node, x: Blob, pool: Node, pad: Node | None = None, **share: np.ndarray
) -> Blob | None:
    """Pooling by Caffe's rules, as export writes it: room behind the image, means of the pixels in it."""
    if len(x.shape) != 4:
        return None
    begin = pool.get("pads", [0] * 4)[:2]
    around = pad.const(1) if pad is not None else None
    if around is not None and len(around) == 8:
        begin = [a + int(b) for a, b in zip(begin, around[2:4], strict=True)]
    stride = pool.get("strides", [1, 1])
    keys = window_keys(kernel_size=pool.get("kernel_shape"), stride=stride, pad=begin)
    keys |= differing(pool=("AVE" if pool.kind == "AveragePool" else "MAX", "MAX"))
    return as_exported(draft, node, "Pooling", {"x": x.shape}, keys)


NOT_DYNAMIC = "cannot be exported with a dynamic height or width: "


@writes("Pooling")
def write_pooling(graph: Graph, step: Written, x: str) -> Any:
    """A pooling of any kind, and the mask of MAX."""
    layer = step.layer
    if layer.deep is not None:  # each image, and then along the axis before it what came of it
        if graph.varies(step.bottoms[0], 2, 3, 4):
            raise SpecError(f"{NOT_DYNAMIC}it pools three axes")
        for pool in (layer.it, layer.deep):
            x = graph.op("Reshape", x, [0, *pool.x_shape[1:]])
            x = write_pool(graph, Room.of(pool, layer.round_mode == "CEIL", True), x)
        return graph.op("Reshape", x, [0, *step.tops[0].shape[1:]])
    masked, fixed = len(step.tops) > 1, not graph.varies(step.bottoms[0], 2, 3)
    if layer.global_pooling and not masked and layer.pool != "STOCHASTIC":
        return graph.op("GlobalMaxPool" if layer.pool == "MAX" else "GlobalAveragePool", x)
    if layer.global_pooling and not fixed:
        raise SpecError(f"{NOT_DYNAMIC}its window is the image")
    return write_pool(graph, Room.of(layer.it, layer.round_mode == "CEIL", fixed), x, masked)


@draws("Pooling", 0)
def pixels(random: Any, step: Written, shape: Shape) -> Any:
    """None below 0 where STOCHASTIC divides by their sum."""
    normal = random.standard_normal(shape)
    return abs(normal) if step.layer.pool == "STOCHASTIC" else normal


def write_pool(graph: Graph, room: Room, x: str, masked: bool = False) -> Any:
    """The pooling of a tensor; of MAX [top, mask] where that is asked for."""
    if room.pool.kind == "MAX":
        return write_maximum(graph, room, x, masked)
    if room.pool.kind == "AVE":
        return write_mean(graph, room, x)
    x = room.pad(graph, x, room.end)
    sums = [room.average(graph, part) for part in (graph.op("Mul", x, x), x)]
    squares, total = (graph.op("Mul", part, float(room.count)) for part in sums)
    return graph.op("Div", squares, graph.op("Add", total, STOCHASTIC_TINY))


@dataclass(frozen=True)
class Room:
    """A pooling, and the room behind the image, along each axis, that makes its windows fit."""

    pool: Pool
    end: Sizes
    fixed: bool  # the image's size is known

    @classmethod
    def of(cls, pool: Pool, ceil: bool, fixed: bool) -> Room:
        """The room that any image needs, or, if its size is fixed, no more than the pad where that will do."""
        window, end = pool.window, []
        for axis in (0, 1):
            k, s, p = window.kernel[axis], window.stride[axis], window.pad[axis]
            size, count = pool.x_shape[2 + axis], pool.y_shape[2 + axis]
            fits = fixed and size + 2 * p >= k
            if not ceil or (fits and count == pool_output_size(size, k, s, p, False)):
                end.append(p)
            else:
                end.append(min(p + s, k) - 1 if any(window.pad) else s - 1)
        return cls(pool, tuple(end), fixed)

    @property
    def count(self) -> int:
        """Pixels in a window."""
        return math.prod(self.pool.window.kernel)

    @property
    def past(self) -> bool:
        """Whether a window may lie wholly behind the image; it is 0 then."""
        return any(end >= k for end, k in zip(self.end, self.pool.window.kernel, strict=True))

    def pad(self, graph: Graph, x: str, end: Sizes, value: float = -0.0) -> str:
        """The image with pads before and `end` behind, of -0: onnxruntime would move 0 into a pooling."""
        return around(graph, x, self.pool.window.pad, end, value)

    def average(self, graph: Graph, x: str, pads: Sizes = (0, 0, 0, 0)) -> str:
        """The mean of each whole window."""
        window = self.pool.window
        sizes: Any = {"kernel_shape": window.kernel, "strides": window.stride, "pads": pads}
        return graph.op("AveragePool", x, count_include_pad=1, **sizes)


def around(graph: Graph, x: str, begin: Sizes, end: Sizes, value: float) -> str:
    """A tensor with so much of a value before and behind its last two axes."""
    return graph.op("Pad", x, [0, 0, *begin, 0, 0, *end], value) if any((*begin, *end)) else x


def write_maximum(graph: Graph, room: Room, x: str, masked: bool) -> Any:
    """Of pixels alone; a window that lies wholly behind the image is 0, and -1 in the mask."""
    window, pool = room.pool.window, room.pool
    sizes: Any = {"kernel_shape": window.kernel, "strides": window.stride}
    if room.past and not room.fixed:
        if masked:
            raise SpecError(f"{NOT_DYNAMIC}its stride is more than its kernel, and it has a mask")
        y = graph.op("MaxPool", room.pad(graph, x, room.end, LOWEST), **sizes)
        return graph.op("Where", graph.op("Equal", y, LOWEST), 0.0, y)
    end = tuple(min(e, k - 1) for e, k in zip(room.end, window.kernel, strict=True))
    y, *places = graph.ops("MaxPool", 1 + masked, x, pads=window.pad + end, **sizes)
    lacks: Sizes = (0, 0)
    if room.past:
        axes = zip(
            pool.x_shape[2:], end, pool.y_shape[2:], window.kernel, window.stride, strict=True
        )
        lacks = tuple(count - (size + more - k) // s - 1 for size, more, count, k, s in axes)
    y = around(graph, y, (0, 0), lacks, 0.0)
    if not masked:
        return y
    h, w = pool.x_shape[2:]
    plane = h * w if room.fixed else graph.op("Mul", graph.size(x, 2), graph.size(x, 3))
    mask = graph.op("Cast", graph.op("Mod", places[0], plane), to=1)
    return y, around(graph, mask, (0, 0), lacks, -1.0)


def write_mean(graph: Graph, room: Room, x: str) -> str:
    """Pads count, and what lies behind them does not."""
    window, shape = room.pool.window, room.pool.x_shape
    if room.end == window.pad:
        return room.average(graph, x, window.pad * 2)
    y = room.average(graph, room.pad(graph, x, room.end))
    if room.fixed:
        rows, columns = (
            np.maximum(window_sizes(shape[2 + i], room.pool.y_shape[2 + i], *of), 1)
            for i, of in enumerate(zip(window.kernel, window.stride, window.pad, strict=True))
        )
        return graph.op("Mul", y, room.count / (rows[:, None] * columns))
    image = graph.op("Concat", [1, 1], graph.size(x, 2), graph.size(x, 3), axis=0)
    ones = room.pad(graph, graph.op("Expand", 1.0, image), window.pad, 1.0)
    behind = tuple(end - p for end, p in zip(room.end, window.pad, strict=True))
    counted = room.average(graph, around(graph, ones, (0, 0), behind, -0.0))
    return graph.op("Div", y, graph.op("Max", counted, 1 / room.count))


@writes("SPP")
def write_spp(graph: Graph, step: Written, x: str) -> str:
    """Poolings whose windows are a part of the image each."""
    if graph.varies(step.bottoms[0], 2, 3):
        raise SpecError(f"{NOT_DYNAMIC}its windows are parts of the image")
    levels = [write_pool(graph, Room.of(level, True, True), x) for level in step.layer.levels]
    if len(levels) == 1:
        return str(levels[0])
    return graph.op("Concat", *(graph.op("Flatten", y, axis=1) for y in levels), axis=1)


@writes("DilatedPooling")
def write_dilated_pooling(graph: Graph, step: Written, x: str) -> str:
    """A MaxPool with gaps; or the sum, a Conv of ones, by the number of a window's pixels."""
    layer = step.layer
    if graph.varies(step.bottoms[0], 2, 3):
        raise SpecError("cannot be exported with a dynamic height or width: windows are counted")
    window, (h, w), (oh, ow) = layer.window, layer.x_shape[2:], step.tops[0].shape[2:]
    spans = zip((oh, ow), (h, w), layer.spans, window.stride, window.pad, strict=True)
    end = tuple(max(0, (count - 1) * s + k - n - p) for count, n, k, s, p in spans)
    sizes: Any = {"kernel_shape": window.kernel, "strides": window.stride}
    number, seen = layer.counts()
    if layer.pool == "AVE":
        x = around(graph, x, window.pad, end, 0.0)
        channels = layer.x_shape[1]
        ones = graph.const(np.ones((channels, 1, *window.kernel), np.float32))
        y = graph.op("Conv", x, ones, group=channels, dilations=window.dilation, **sizes)
        return graph.op("Mul", y, graph.const((1 / np.maximum(number, 1)).astype(np.float32)))
    x = around(graph, x, window.pad, end, LOWEST)
    y = graph.op("MaxPool", x, dilations=window.dilation, **sizes)
    return y if seen.all() else graph.op("Where", graph.const(seen), y, 0.0)


@writes("ROIPooling", jumps=True)
def write_roi_pooling(graph: Graph, step: Written, x: str, rois: str) -> str:
    """MaxRoiPool: the standard leaves open how it rounds; onnxruntime does as Fast R-CNN did."""
    layer = step.layer
    shapes = graph.shapes(step.bottoms[1])
    rois = graph.reshape(rois, shapes, [(shape[0], 5) for shape in shapes])
    if layer.pad_ratio:
        rois = graph.op("Gemm", rois, *widening(layer.pad_ratio))
    pooled = layer.pooled_h, layer.pooled_w
    scale = float(layer.spatial_scale)
    return graph.op("MaxRoiPool", x, rois, pooled_shape=pooled, spatial_scale=scale)


def widening(ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """A matrix and what is added to its product, of regions (image, x0, y0, x1, y1) that are widened.

    >>> matrix, added = widening(0.5)
    >>> np.array([[0, 2, 4, 5, 7]]) @ matrix + added
    array([[0., 0., 2., 7., 9.]])
    """
    matrix, added = np.eye(5), np.zeros(5)
    for start, end in ((1, 3), (2, 4)):
        matrix[start, start] = matrix[end, end] = 1 + ratio
        matrix[end, start] = matrix[start, end] = added[start] = -ratio
        added[end] = ratio
    return matrix.astype(np.float32), added.astype(np.float32)


@draws("ROIPooling", 1)
def drawn_regions(random: Any, step: Written, shape: tuple[int, ...]) -> Any:
    """Regions of images that there are, some of them partly outside."""
    count, (h, w) = shape[0], step.bottoms[0].shape[2:]
    side = np.array([w, h, w, h]) / step.layer.spatial_scale
    corners = random.uniform(-0.2, 1.2, (count, 4)) * side
    images = random.integers(step.layer.images, size=(count, 1))
    return np.concatenate([images, corners], axis=1).reshape(shape)
