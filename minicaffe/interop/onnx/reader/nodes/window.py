"""Conv and ConvTranspose: convolutions of 1 to 3 axes, with pads that may differ at the two ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node, limited
from minicaffe.interop.onnx.reader.table import RefusedError, reads

PLAIN = ("NOTSET", "VALID")  # of auto_pad: the pads are known without the image's size
LOWEST = float(np.finfo(np.float32).min)


def pads_of(
    node: Node, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """The pads (begin of each axis, then end of each), as `pads` or `auto_pad` says. Raises RefusedError."""
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


def padded_before(node: Node, lowest: bool = False) -> tuple[Blob | None, list[int]]:
    """The blob before a Pad of zeros around the image that the node reads, and its pads; else None.

    With `lowest` one of the least numbers of float32, which are no maximum.
    """
    source = node.inputs[0]
    pad = source.node if source is not None else None
    if pad is None or pad.kind != "Pad" or pad.get("mode", "constant") != "constant":
        return None, []
    before = pad.inputs[0]
    pads, value = pad.ints("pads", 1), pad.const(2)
    if pads is None or before is None or before.blob is None or pad.input(3) is not None:
        return None, []
    axes = len(pads) // 2
    number = (
        float(value.ravel()[0])
        if value is not None and value.size
        else float(pad.get("value", 0.0))
    )
    neutral = number <= LOWEST if lowest else number == 0
    if not neutral or min(pads) < 0 or any(pads[:2] + pads[axes : axes + 2]):
        return None, []
    return before.blob, pads[2:axes] + pads[axes + 2 :]


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
def conv(draft: Draft, node: Node) -> Blob:
    """Convolution; unequal pads become zeros in the kernel, a Pad before it becomes its pad."""
    weight = node.needs_const(1, "weight")
    x = draft.blob(node.inputs[0])
    axes = weight.ndim - 2
    strides = node.get("strides", [1] * axes)
    dilations = node.get("dilations", [1] * axes)
    pads = pads_of(node, weight.shape[2:], strides, dilations)
    before, more = padded_before(node)
    if before is not None and node.get("auto_pad", "NOTSET") in PLAIN:
        x, pads = before, [a + b for a, b in zip(pads, more, strict=True)]
    if min(pads, default=0) < 0:
        raise RefusedError(f"its pads {pads} cut the image; a layer's do not")
    weight, both = evened(weight, pads, dilations)
    bias = node.needs_const(2, "bias") if node.input(2) is not None else None
    keys = window_keys(kernel_size=weight.shape[2:], stride=strides, pad=both, dilation=dilations)
    return convolution(draft, x, weight, bias, node.shape, node.get("group", 1), **keys)


def convolution(
    draft: Draft, x: Blob, weight: Any, bias: Any, shape: Sequence[int], group: int = 1, **keys: Any
) -> Blob:
    """A Convolution of these numbers."""
    arrays = [weight] if bias is None else [weight, bias]
    keys = {"num_output": len(weight), **keys}
    keys |= {} if group == 1 else {"group": int(group)}
    keys |= {"bias_term": False} if bias is None else {}
    return draft.layer("Convolution", x, shape=shape, arrays=arrays, **keys)


@reads("ConvTranspose")
def conv_transpose(draft: Draft, node: Node) -> Blob:
    """Deconvolution; what unequal pads or an output_padding leave over is computed, then cut off or added."""
    weight = node.needs_const(1, "weight")
    x = draft.blob(node.inputs[0])
    axes = weight.ndim - 2
    group = node.get("group", 1)
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
    bias = node.needs_const(2, "bias") if node.input(2) is not None else None
    keys = window_keys(kernel_size=weight.shape[2:], stride=strides, pad=both, dilation=dilations)
    sizes = [w - 2 * p for w, p in zip(whole, both, strict=True)]
    y = deconvolution(draft, x, weight, bias, (*node.shape[:2], *sizes), group, **keys)
    for axis in range(axes):
        start = starts[axis] - both[axis]
        y = draft.part(y, 2 + axis, start, start + wanted[axis])
    return y


def deconvolution(
    draft: Draft, x: Blob, weight: Any, bias: Any, shape: Sequence[int], group: int = 1, **keys: Any
) -> Blob:
    """A Deconvolution of these numbers (c, outputs a group, ...)."""
    arrays = [weight] if bias is None else [weight, bias]
    keys = {"num_output": weight.shape[1] * group, **keys}
    keys |= {} if group == 1 else {"group": int(group)}
    keys |= {"bias_term": False} if bias is None else {}
    return draft.layer("Deconvolution", x, shape=shape, arrays=arrays, **keys)
