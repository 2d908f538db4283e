"""Convolutions of 1 to 3 axes; those of ONNX with pads that may differ at the two ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minicaffe.core.net.step import Step
from minicaffe.core.ops.geometry import Window
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.draft import Blob, Draft, Node, Shape, limited
from minicaffe.interop.onnx.table import RefusedError, reads, writes
from minicaffe.interop.onnx.writer.graph import Graph

PLAIN = ("NOTSET", "VALID")  # of auto_pad: the pads are known without the image's size


LOWEST = float(np.finfo(np.float32).min)


def window_over(
    node: Node, x: Blob, kernel: Sequence[int], neutral: Callable[[float], bool]
) -> tuple[Blob, list[int], list[int], list[int]]:
    """What a window goes over, its strides, dilations and pads (begin of each axis, then end of each).

    A Pad around the image before it is taken in where its number is `neutral`.
    """
    ones = [1] * len(kernel)
    strides, dilations = list(node.get("strides", ones)), list(node.get("dilations", ones))
    pads = pads_of(node, kernel, strides, dilations)
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


def pads_of(
    node: Node, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """The pads as `pads` or `auto_pad` says. Raises RefusedError."""
    auto, axes = node.get("auto_pad", "NOTSET"), len(kernel)
    if auto in PLAIN:
        return [0] * 2 * axes if auto == "VALID" else list(node.get("pads", [0] * 2 * axes))
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusedError(f"its auto_pad is {auto!r}, which ONNX does not have")
    source = node.inputs[0]
    image = source.shape[2:] if source is not None and source.shape is not None else ()
    begin, end = [], []
    for size, k, s, d in zip(image, kernel, strides, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begin.append(small if auto == "SAME_UPPER" else large)
        end.append(large if auto == "SAME_UPPER" else small)
    return begin + end


def window_keys(**sizes: Sequence[int]) -> dict[str, Any]:
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


def evened(
    weight: np.ndarray, pads: Sequence[int], dilations: Sequence[int]
) -> tuple[np.ndarray, list[int]]:
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
    return draft.weighted(
        "Convolution", x, weight, node.shape, bias, **keys, group=node.get("group", 1)
    )


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
def write_filter(graph: Graph, step: Step, *bottoms: str) -> list[str]:
    """Conv or ConvTranspose, whose weight is laid out as ours is."""
    kind = "Conv" if step.spec.type == "Convolution" else "ConvTranspose"
    return [filtered(graph, step, kind, i, x) for i, x in enumerate(bottoms)]


def filtered(
    graph: Graph, step: Step, kind: str, i: int, x: str, group: int = 0, *weights: np.ndarray
) -> str:
    """Bottom i filtered by the parameters, or by other weights, its batch axes made one."""
    layer: Any = step.layer
    window = layer.split(step.bottoms[i].shape)[3]
    image = len(window.kernel)
    before, after = graph.shapes(step.bottoms[i]), graph.shapes(step.tops[i])
    x = graph.reshape(x, before, [one_batch(shape, image) for shape in before])
    own = weights or [graph.param(step, index) for index in range(len(layer.params))]
    y = graph.op(kind, x, *own, group=group or layer.group, **attributes(window))
    return graph.reshape(y, [one_batch(shape, image) for shape in after], after)


@writes("Im2col")
def write_im2col(graph: Graph, step: Step, x: str) -> str:
    """Conv with a filter for each element of a channel's window, which is 1 there and 0 elsewhere."""
    layer: Any = step.layer
    lead, c, _, window = layer.split(step.bottoms[0].shape)
    if graph.varies(step.bottoms[0], len(lead)):
        raise SpecError("cannot be exported with channels of a dynamic number")
    each = math.prod(window.kernel)
    pick = np.tile(np.eye(each, dtype=np.float32), (c, 1)).reshape(c * each, 1, *window.kernel)
    return filtered(graph, step, "Conv", 0, x, c, pick)


def attributes(window: Window) -> dict[str, Any]:
    """A window as ONNX's convolutions have it, with as much pad behind the image as before it."""
    return {
        "kernel_shape": window.kernel,
        "strides": window.stride,
        "pads": window.pad * 2,
        "dilations": window.dilation,
    }


def one_batch(shape: Shape, image: int) -> Shape:
    """A shape whose axes before the channels', which stand before `image` others, are one."""
    lead = len(shape) - image - 1
    return (math.prod(shape[:lead]), *shape[lead:])
