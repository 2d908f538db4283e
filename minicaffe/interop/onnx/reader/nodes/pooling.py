"""Poolings, by ONNX's rules of rounding and padding, in Caffe's Pooling, which has others.

Pooling clips a window to the image and its pads; of MAX, a pad never wins. DilatedPooling, whose windows have
gaps, does too. What differs is said exactly: `round_mode: FLOOR` where ONNX rounds down, a factor for each
place where a mean leaves pads out, and a cut where pads differ at the two ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.core.ops.geometry import pool_output_size
from minicaffe.errors import ShapeError
from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node, limited
from minicaffe.interop.onnx.reader.nodes.window import (
    PLAIN,
    convolution,
    grown,
    padded_before,
    pads_of,
    window_keys,
)
from minicaffe.interop.onnx.reader.table import RefusedError, reads

PLACES = "its second output, places in the whole tensor, is no layer's top"


@reads("GlobalAveragePool")
def global_average(draft: Draft, node: Node) -> Blob:
    """Pooling AVE of the whole image."""
    return over_image(draft, draft.blob(node.inputs[0]), "AVE")


@reads("GlobalMaxPool")
def global_max(draft: Draft, node: Node) -> Blob:
    """Pooling MAX of the whole image."""
    return over_image(draft, draft.blob(node.inputs[0]), "MAX")


def over_image(draft: Draft, x: Blob, pool: str) -> Blob:
    """The mean or maximum over all axes behind the channels, which become 1."""
    n, c, *image = x.shape
    flat = draft.reshape(x, (n, c, *image) if len(image) == 2 else (n, c, 1, math.prod(image)))
    how: dict[str, Any] = {} if pool == "MAX" else {"pool": pool}
    y = draft.layer("Pooling", flat, shape=(n, c, 1, 1), global_pooling=True, **how)
    return draft.reshape(y, (n, c, *(1,) * len(image)))


@reads("MaxPool")
def max_pool(draft: Draft, node: Node) -> list[Blob]:
    """Pooling MAX; DilatedPooling where its windows have gaps; its places are read by MaxUnpool alone."""
    places = Blob(node.shape, refused=(PLACES,))
    return [pooled(draft, node, "MAX"), places]


@reads("MaxUnpool", looks_back=True)
def max_unpool(draft: Draft, node: Node) -> Blob:
    """Upsample by the mask, a second top of the MaxPool whose places it reads, to that one's image."""
    x, places = draft.blob(node.inputs[0]), node.inputs[1]
    pool = places.node if places is not None else None
    if pool is None or pool.kind != "MaxPool" or pool.outputs[0].blob is None:
        raise RefusedError("its places are not those of a MaxPool")
    y = pool.outputs[0].blob
    made, image = y.layer, draft.blob(pool.inputs[0])
    if made is None or made.type != "Pooling" or made.bottoms[0] is not image:
        raise RefusedError("its MaxPool is no Pooling, which alone has a mask")
    if pool.get("storage_order", 0):
        raise RefusedError("the places of its MaxPool are counted by columns")
    size = node.const(2)
    shape = node.outputs[0].shape if size is None else tuple(int(one) for one in size.ravel())
    if shape != image.shape or x.shape != y.shape:
        raise RefusedError(
            f"it makes {shape} of {x.shape}; its places are of {y.shape} windows of {image.shape}"
        )
    if len(made.tops) == 1:
        made.tops.append(Blob(y.shape, made))
    h, w = image.shape[2:]
    return draft.layer("Upsample", x, made.tops[1], shape=shape, upsample_h=h, upsample_w=w)


@reads("AveragePool")
def average_pool(draft: Draft, node: Node) -> Blob:
    """Pooling or DilatedPooling AVE; times a factor for each place where pads do not count."""
    return pooled(draft, node, "AVE")


@reads("MaxRoiPool")
def max_roi_pool(draft: Draft, node: Node) -> Blob:
    """ROIPooling."""
    h, w = node.get("pooled_shape")
    bottoms = [draft.blob(one) for one in node.inputs]
    keys = {"pooled_h": h, "pooled_w": w, "spatial_scale": node.get("spatial_scale", 1.0)}
    return draft.layer("ROIPooling", *bottoms, shape=node.shape, **keys)


@dataclass(frozen=True)
class Windows:
    """The windows of a pooling over an image (h, w), by ONNX's rules.

    Args:
        image: rows and columns
        kernel: a window's places along each axis
        strides: the step from a window to the next
        dilations: the step from a place of a window to the next
        pads: of the axes' beginnings, then of their ends
        counts: how many windows there are along each axis
        counts_pads: whether a mean divides by the places of pads too
    """

    image: Sequence[int]
    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    counts: Sequence[int]
    counts_pads: bool = False

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


def pooled(draft: Draft, node: Node, pool: str) -> Blob:
    """A pooling of one to three axes. Raises RefusedError for what no layer says."""
    x, kernel = draft.blob(node.inputs[0]), list(node.get("kernel_shape"))
    axes = len(kernel)
    strides, dilations = node.get("strides", [1] * axes), node.get("dilations", [1] * axes)
    pads = list(pads_of(node, kernel, strides, dilations))
    before, more = padded_before(node, lowest=True)
    if pool == "MAX" and before is not None and node.get("auto_pad", "NOTSET") in PLAIN:
        x, pads = before, [a + b for a, b in zip(pads, more, strict=True)]
    shape = node.shape
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
    if any((windows.counts[i] - 1) * strides[i] >= image[i] + pads[i] for i in (0, 1)):
        raise RefusedError("its last window starts behind the image, where opsets differ")
    empty = any((windows.inside(i, 0, image[i]) == 0).any() for i in (0, 1))
    if empty and not (pool == "AVE" and windows.counts_pads):
        raise RefusedError("one of its windows holds no pixel, where runtimes differ")
    clipped = any(
        (windows.counts[i] - 1) * strides[i] + windows.spans[i] > image[i] + pads[i] + pads[2 + i]
        for i in (0, 1)
    )
    if pool == "AVE" and (any(pads) or clipped):
        return _mean(draft, x, windows)
    both, first = [], []
    for i in (0, 1):
        begin, end = pads[i], pads[2 + i]
        lacks = windows.sizes(pads[:2], "CEIL")[i] < windows.counts[i]
        steps = math.ceil((end - begin) / strides[i]) if begin < end and lacks else 0
        both.append(begin + steps * strides[i])
        first.append(steps)  # windows before the first are cut off
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
    keys |= {"round_mode": "FLOOR"} if mode == "FLOOR" else {}
    keys |= {} if pool == "MAX" else {"pool": pool}
    kind = "Pooling"
    if set(windows.dilations) != {1}:
        kind, keys = "DilatedPooling", keys | window_keys(dilation=windows.dilations)
    y = draft.layer(kind, x, shape=(*x.shape[:2], *sizes[mode]), **keys)
    for i in (0, 1):
        y = draft.part(y, 2 + i, first[i], wanted[i])
    return y


def _mean(draft: Draft, x: Blob, windows: Windows) -> Blob:
    """A mean with pads: the layer's, times what it divides by and ONNX does not, of each place.

    Where no layer has these windows the sums are a convolution's, by ones, channel by channel.
    """
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
    for i in (
        0,
        1,
    ):  # a convolution's pads are equal: zeros before or behind the kernel make up for it
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
    y = convolution(draft, x, weight, None, (*x.shape[:2], *sizes), x.shape[1], **keys)
    for i in (0, 1):
        y = draft.part(y, 2 + i, 0, windows.counts[i])
    return draft.times(y, math.prod(kernel) / divisor)
