"""Poolings, by ONNX's rules of rounding and padding, in Caffe's Pooling, which has others.

Pooling clips a window to the image and its pads; of MAX, a pad never wins. What differs is said exactly:
`round_mode: FLOOR` where ONNX rounds down, a factor for each place where a mean leaves pads out, and a
cut where pads differ at the two ends.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.bridges.draft import Blob, Draft, Node, limited
from minicaffe.bridges.readers.window import convolution, grown, pads_of, window_keys
from minicaffe.bridges.table import RefusedError, reads
from minicaffe.ops.geometry import pool_output_size


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
def max_pool(draft: Draft, node: Node) -> Blob:
    """Pooling MAX."""
    if len(node.outputs) > 1 and node.outputs[1].readers:
        raise RefusedError("its second output, places in the whole tensor, is no layer's top")
    return pooled(draft, node, "MAX")


@reads("AveragePool")
def average_pool(draft: Draft, node: Node) -> Blob:
    """Pooling AVE; times a factor for each place where pads do not count."""
    return pooled(draft, node, "AVE")


@reads("MaxRoiPool")
def max_roi_pool(draft: Draft, node: Node) -> Blob:
    """ROIPooling."""
    h, w = node.get("pooled_shape")
    bottoms = [draft.blob(one) for one in node.inputs]
    keys = {"pooled_h": h, "pooled_w": w, "spatial_scale": node.get("spatial_scale", 1.0)}
    return draft.layer("ROIPooling", *bottoms, shape=node.shape, **keys)


def pooled(draft: Draft, node: Node, pool: str) -> Blob:
    """A pooling of one to three axes. Raises RefusedError for what no layer says."""
    x, kernel = draft.blob(node.inputs[0]), list(node.get("kernel_shape"))
    axes = len(kernel)
    strides, dilations = node.get("strides", [1] * axes), node.get("dilations", [1] * axes)
    if set(dilations) != {1}:
        raise RefusedError("it is dilated, which BVLC Caffe's Pooling is not")
    pads = pads_of(node, kernel, strides, dilations)
    shape = node.shape
    counts = bool(node.get("count_include_pad", 0))
    if axes == 3:  # each image, then along the axis before it
        n, c, d, h, w = x.shape
        flat = draft.reshape(x, (n, c * d, h, w))
        y = pool_2d(
            draft, flat, pool, kernel[1:], strides[1:], pads[1:3] + pads[4:], shape[3:], counts
        )
        flat = draft.reshape(y, (n, c, d, shape[3] * shape[4]))
        deep = [pads[0], 0, pads[3], 0], (shape[2], shape[3] * shape[4])
        y = pool_2d(draft, flat, pool, [kernel[0], 1], [strides[0], 1], *deep, counts)
        return draft.reshape(y, shape)
    if axes == 1:
        x, kernel, strides = (
            draft.reshape(x, (*x.shape[:2], 1, x.shape[2])),
            [1, *kernel],
            [1, *strides],
        )
        pads = [0, pads[0], 0, pads[1]]
    wanted = shape[2:] if axes == 2 else (1, *shape[2:])
    y = pool_2d(draft, x, pool, kernel, strides, pads, wanted, counts)
    return draft.reshape(y, shape)


def pool_2d(
    draft: Draft,
    x: Blob,
    pool: str,
    kernel: list[int],
    strides: list[int],
    pads: list[int],
    wanted: tuple[int, ...],
    counts_pads: bool,
) -> Blob:
    """A pooling whose top has the size `wanted`."""
    image = x.shape[2:]
    if any((wanted[i] - 1) * strides[i] >= image[i] + pads[i] for i in (0, 1)):
        raise RefusedError("its last window starts behind the image, where opsets differ")
    both, first = [], [0, 0]
    for axis in (0, 1):
        begin, end, k, s = pads[axis], pads[2 + axis], kernel[axis], strides[axis]
        if begin < end and pool_output_size(image[axis], k, s, begin, True) < wanted[axis]:
            pad = begin + s * math.ceil((end - begin) / s)  # windows before the first are cut off
            first[axis] = (pad - begin) // s
        else:
            pad = begin
        both.append(pad)
    if any(pad >= k for pad, k in zip(both, kernel, strict=True)) or (
        pool == "AVE" and (any(pads) or _clipped(image, kernel, strides, pads, wanted))
    ):
        if pool == "AVE":
            return _mean(draft, x, kernel, strides, pads, wanted, counts_pads)
        raise RefusedError(f"its pads {pads} are too large for a Pooling by {kernel}, or differ")
    sizes = {
        mode: [
            pool_output_size(image[i], kernel[i], strides[i], both[i], mode == "CEIL", any(both))
            for i in (0, 1)
        ]
        for mode in ("CEIL", "FLOOR")
    }
    enough = [
        mode for mode, size in sizes.items() if all(size[i] >= first[i] + wanted[i] for i in (0, 1))
    ]
    exact = [mode for mode in enough if sizes[mode] == list(wanted) and first == [0, 0]]
    if not enough:
        raise RefusedError(f"a Pooling has {sizes['CEIL']} windows here, ONNX {list(wanted)}")
    mode = (exact or enough)[0]
    keys = window_keys(kernel_size=kernel, stride=strides, pad=both)
    keys |= {"round_mode": "FLOOR"} if mode == "FLOOR" else {}
    keys |= {} if pool == "MAX" else {"pool": pool}
    y = draft.layer("Pooling", x, shape=(*x.shape[:2], *sizes[mode]), **keys)
    for axis in (0, 1):
        y = draft.part(y, 2 + axis, first[axis], first[axis] + wanted[axis])
    return y


def _clipped(image: Any, kernel: Any, strides: Any, pads: Any, wanted: Any) -> bool:
    """Whether a window reaches behind the image and its pads, as where ONNX rounds up."""
    return any(
        (wanted[i] - 1) * strides[i] + kernel[i] > image[i] + pads[i] + pads[2 + i] for i in (0, 1)
    )


def _mean(
    draft: Draft,
    x: Blob,
    kernel: list[int],
    strides: list[int],
    pads: list[int],
    wanted: tuple[int, ...],
    counts_pads: bool,
) -> Blob:
    """A mean with pads: Pooling AVE where that divides as ONNX does, else times a factor for each place.

    Where no Pooling has these windows the sums are a convolution's, by ones, channel by channel.
    """
    image = x.shape[2:]
    counts = []
    for axis in (0, 1):
        begin, end = pads[axis], pads[2 + axis]
        starts = np.arange(wanted[axis]) * strides[axis] - begin
        low, high = (-begin, image[axis] + end) if counts_pads else (0, image[axis])
        counts.append(np.minimum(starts + kernel[axis], high) - np.maximum(starts, low))
    divisor = np.maximum(counts[0][:, None] * counts[1], 1).astype(np.float64)
    even = pads[:2] == pads[2:] and all(p < k for p, k in zip(pads, kernel, strict=False))
    keys = window_keys(kernel_size=kernel, stride=strides, pad=pads[:2])
    if even:
        for mode in ("CEIL", "FLOOR"):
            sizes = [
                pool_output_size(
                    image[i], kernel[i], strides[i], pads[i], mode == "CEIL", any(pads[:2])
                )
                for i in (0, 1)
            ]
            if sizes != list(wanted):
                continue
            ours = [
                np.minimum(start + kernel[i], image[i] + pads[i]) - start
                for i in (0, 1)
                for start in [np.arange(wanted[i]) * strides[i] - pads[i]]
            ]
            factor = (ours[0][:, None] * ours[1]) / divisor
            rounding = {"round_mode": "FLOOR"} if mode == "FLOOR" else {}
            y = draft.layer(
                "Pooling", x, shape=(*x.shape[:2], *wanted), pool="AVE", **keys, **rounding
            )
            return draft.times(y, factor)
    more = [max((wanted[i] - 1) * strides[i] + kernel[i] - image[i] - pads[i], 0) for i in (0, 1)]
    weight = np.ones(limited(x.shape[1], 1, *kernel), np.float32)
    before = [
        max(more[i] - pads[i], 0) for i in (0, 1)
    ]  # zeros before the kernel: its pad grows alike
    behind = [max(pads[i] - more[i], 0) for i in (0, 1)]
    weight = grown(weight, [(0, 0), (0, 0), *zip(before, behind, strict=True)])
    pad = [max(pads[i], more[i]) for i in (0, 1)]
    keys = window_keys(kernel_size=weight.shape[2:], stride=strides, pad=pad)
    shape = (*x.shape[:2], *wanted)
    y = convolution(
        draft, x, weight / np.float32(math.prod(kernel)), None, shape, x.shape[1], **keys
    )
    return draft.times(y, math.prod(kernel) / divisor)
