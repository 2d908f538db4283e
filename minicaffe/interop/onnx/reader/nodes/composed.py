"""Layers whose formula a model says in several nodes: normalisations, activations, shuffled channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node, numbers_run
from minicaffe.interop.onnx.reader.exported import as_exported
from minicaffe.interop.onnx.reader.nodes.activation import limits
from minicaffe.interop.onnx.reader.nodes.reduce import axes_of
from minicaffe.interop.onnx.reader.nodes.window import window_keys
from minicaffe.interop.onnx.reader.patterns import CLOSE, Pattern, match, recognises, short

ROOT = math.sqrt(2 / math.pi)


def squared(x: Pattern) -> Pattern:
    """x^2."""
    return [("Mul", x, x), ("Pow", x, 2.0)]


def halved(x: Pattern, share: Pattern) -> Pattern:
    """x / 2 share, whichever way the product is put."""
    return [
        ("Mul", ("Mul", x, 0.5), share),
        ("Mul", ("Mul", x, share), 0.5),
        ("Mul", x, ("Mul", share, 0.5)),
    ]


def centred(x: Pattern) -> Pattern:
    """x - mean."""
    return ("Sub", x, ("ReduceMean:mean", x))


def standard(x: Pattern) -> Pattern:
    """(x - mean) / sqrt(variance + eps)."""
    variance = ("ReduceMean:variance", squared(centred(x)))
    return ("Div", centred(x), ("Sqrt", ("Add", variance, "#eps")))


def deviated(x: Pattern) -> Pattern:
    """(x - mean) / (deviation + eps)."""
    variance = ("ReduceMean:variance", squared(centred(x)))
    return ("Div", centred(x), ("Add", ("Sqrt", variance), "#eps"))


def affine(x: Pattern) -> Pattern:
    """x times a scale, plus a bias."""
    return ("Add", ("Mul", x, "*scale"), "*bias")


def reduced(words: dict[str, Any], rank: int) -> list[int] | None:
    """The axes of a pattern's mean and variance, where they are the same and stay as 1."""
    nodes = [words[word] for word in ("mean", "variance") if word in words]
    axes = [axes_of(node, rank) for node in nodes]
    same = axes.count(axes[0]) == len(axes) and all(node.get("keepdims", 1) for node in nodes)
    return axes[0] if same else None


@recognises("Div", "Add")
def layer_norm(draft: Draft, node: Node) -> Blob | None:
    """LayerNorm: (x - mean) / sqrt(variance + eps) over the last axes, with a scale and a bias or none."""
    words = match([standard("x"), affine(standard("x"))], node)
    if words is None:
        return None
    x = words["x"].blob
    rank = len(x.shape)
    axes = reduced(words, rank)
    if not axes or axes != list(range(axes[0], rank)):
        return None
    arrays = [words[word] for word in ("*scale", "*bias") if word in words]
    if any(array.shape != x.shape[axes[0] :] for array in arrays):
        return None
    keys: dict[str, Any] = {} if arrays else {"affine": False}
    return draft.layer("LayerNorm", x, arrays=arrays, axis=axes[0], eps=words["#eps"], **keys)


ROWS = ("Reshape:rows", "x")
GROUPS: Pattern = [
    ("Reshape", standard(ROWS)),
    ("Reshape", ("InstanceNormalization:instance", ROWS, "*ones", "*zeros")),
]


@recognises("Reshape", "Add")
def group_norm(draft: Draft, node: Node) -> Blob | None:
    """GroupNorm: groups as rows (n, groups, rest), standardised; a scale and a bias a channel or none."""
    words = match([GROUPS, affine(GROUPS)], node)
    if words is None:
        return None
    x, shape, rows = words["x"].blob, node.shape, words["rows"].shape
    if x.shape != shape or len(shape) < 2 or len(rows) != 3:
        return None
    if rows[0] != shape[0] or shape[1] % rows[1]:
        return None
    if "instance" not in words:
        eps = words["#eps"] if reduced(words, 3) == [2] else None
    elif (words["*ones"] == 1).all() and (words["*zeros"] == 0).all():
        eps = short(words["instance"].get("epsilon", 1e-5))
    else:
        eps = None
    if eps is None:
        return None
    keys: dict[str, Any] = {"num_groups": rows[1], "eps": eps}
    if "*scale" not in words:
        return draft.layer("GroupNorm", x, affine=False, **keys)
    scale, bias = (of_channels(words[word], shape) for word in ("*scale", "*bias"))
    if scale is None or bias is None:
        return None
    return draft.layer("GroupNorm", x, arrays=[scale, bias], **keys)


def of_channels(numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A number a channel, of numbers that broadcast along channels alone; None of others."""
    if numbers.ndim > len(shape) or shape[1:2] != (numbers.size,):
        return None
    axis, run = numbers_run(numbers, shape) if numbers.size > 1 else (1, numbers.reshape(1))
    return run if axis == 1 and run.ndim == 1 else None


@recognises("Reshape")
def mvn(draft: Draft, node: Node) -> Blob | None:
    """MVN: rows (n, c, rest) or (n, rest) less their mean, over the deviation plus eps."""
    words = match([("Reshape", deviated(ROWS)), ("Reshape", centred(ROWS))], node)
    if words is None:
        return None
    x, rows = words["x"].blob, words["rows"].shape
    last = len(rows) - 1
    if x.shape != node.shape or len(x.shape) < 2 or last not in (1, 2):
        return None
    if rows[:last] != x.shape[:last]:
        return None
    if reduced(words, len(rows)) != [last]:
        return None
    keys: dict[str, Any] = {"across_channels": True} if last == 1 else {}
    keys |= {"eps": words["#eps"]} if "#eps" in words else {"normalize_variance": False}
    return draft.layer("MVN", x, **keys)


@recognises("Mul")
def normalize(draft: Draft, node: Node) -> Blob | None:
    """Normalize: x / sqrt(sum of squares + eps), over a sample or the channels, times a scale."""
    total = ("ReduceSum:sum", squared("x"))
    words = match(("Mul", ("Div", "x", ("Sqrt", ("Add", total, "#eps"))), "*scale"), node)
    if words is None:
        return None
    x, scale = words["x"].blob, words["*scale"]
    rank = len(x.shape)
    axes = axes_of(words["sum"], rank)
    if not words["sum"].get("keepdims", 1) or axes not in ([1], list(range(1, rank))) or rank < 2:
        return None
    keys: dict[str, Any] = {"eps": words["#eps"]}
    keys |= {"across_spatial": False} if axes == [1] else {}
    if scale.size == 1:
        return draft.layer("Normalize", x, arrays=[scale.reshape(())], **keys)
    run = of_channels(scale, x.shape)
    if run is None:
        return None
    return draft.layer("Normalize", x, arrays=[run], channel_shared=False, **keys)


@recognises("Mul")
def lrn_within(draft: Draft, node: Node) -> Blob | None:
    """LRN within channels: x (1 + alpha mean of squares in a window)^-beta, pads counting."""
    mean = ("Mul", ("AveragePool:pool", squared("x")), "#alpha")
    words = match(("Mul", "x", ("Pow", ("Add", mean, 1.0), "#beta")), node)
    if words is None:
        return None
    pool = words["pool"]
    size = pool.get("kernel_shape")[0]
    window = {"kernel_shape": [size] * 2, "pads": [size // 2] * 4, "count_include_pad": 1}
    usual = {"strides": [1, 1], "dilations": [1, 1], "ceil_mode": 0, "auto_pad": "NOTSET"}
    got = {"pads": [0] * 4, "count_include_pad": 0} | usual | pool.attributes
    if got != window | usual or size % 2 == 0:
        return None
    keys = {"local_size": size, "alpha": words["#alpha"], "beta": -words["#beta"]}
    return draft.layer("LRN", words["x"].blob, norm_region="WITHIN_CHANNEL", **keys)


def gate(factor: float) -> Pattern:
    """factor sqrt(2 / pi) (x + 0.044715 x^3)."""
    cube = [("Mul", ("Mul", "x", "x"), "x"), ("Pow", "x", 3.0)]
    return ("Mul", ("Add", "x", ("Mul", cube, 0.044715)), factor * ROOT)


@recognises("Mul")
def gelu(draft: Draft, node: Node) -> Blob | None:
    """GELU: x / 2 (1 + erf(x / sqrt(2))), or by tanh, or by its sigmoid."""
    inner = [("Mul", "x", math.sqrt(0.5)), ("Div", "x", math.sqrt(2))]
    words = match(halved("x", ("Add", ("Erf", inner), 1.0)), node)
    if words is not None:
        return draft.layer("GELU", words["x"].blob)
    by_tanh = halved("x", ("Add", ("Tanh", gate(1)), 1.0))
    words = match([by_tanh, ("Mul", "x", ("Sigmoid", gate(2)))], node)
    return draft.layer("GELU", words["x"].blob, approximate="tanh") if words is not None else None


@recognises("Mul")
def swish(draft: Draft, node: Node) -> Blob | None:
    """Swish: x sigmoid(beta x)."""
    words = match(("Mul", "x", ("Sigmoid", ["x", ("Mul", "x", "#beta")])), node)
    if words is None:
        return None
    keys = {"beta": words["#beta"]} if "#beta" in words else {}
    return draft.layer("Swish", words["x"].blob, **keys)


@recognises("Mul", "Div")
def hard_swish(draft: Draft, node: Node) -> Blob | None:
    """HardSwish: x min(max(x + 3, 0), 6) / 6 in whichever order; x HardSigmoid(x) by 1 / 6 and 1 / 2."""
    clipped = ("Clip:clip", ("Add", "x", 3.0))
    sixth = [("Div", clipped, 6.0), ("Mul", clipped, 1 / 6)]
    forms = [("Div", ("Mul", "x", clipped), 6.0), ("Mul", "x", sixth)]
    words = match([*forms, ("Mul", "x", ("HardSigmoid:gate", "x"))], node)
    if words is None:
        return None
    if "clip" in words:
        return (
            draft.layer("HardSwish", words["x"].blob) if limits(words["clip"]) == (0, 6) else None
        )
    alpha, beta = words["gate"].get("alpha", 0.2), words["gate"].get("beta", 0.5)
    meant = abs(alpha - 1 / 6) < 1e-6 and abs(beta - 0.5) < 1e-6
    return draft.layer("HardSwish", words["x"].blob) if meant else None


@recognises("Reshape")
def shuffle_channel(draft: Draft, node: Node) -> Blob | None:
    """ShuffleChannel: (n, g, c / g, ...) transposed to (n, c / g, g, ...) and back to (n, c, ...)."""
    words = match(("Reshape", ("Transpose:turn", ("Reshape:split", "x"))), node)
    if words is None or words["x"].blob.shape != node.shape or len(node.shape) < 2:
        return None
    (n, c, *image), parts = node.shape, words["split"].outputs[0].shape
    group = parts[1] if parts is not None and len(parts) > 1 else 0
    order = [0, 2, 1, *range(3, len(image) + 3)]
    if group == 0 or parts != (n, group, c // group, *image) or words["turn"].get("perm") != order:
        return None
    return draft.layer("ShuffleChannel", words["x"].blob, group=group)


@recognises("Reshape")
def inner_product(draft: Draft, node: Node) -> Blob | None:
    """InnerProduct of the last axes: they are made rows of a matrix, which is multiplied, and back."""
    words = match(
        ("Reshape", [("Gemm:product", ROWS), ("Gemm:product", ("Flatten:rows", "x"))]), node
    )
    made = words["product"].outputs[0].blob.layer if words is not None else None
    if (
        words is None
        or made is None
        or made.type != "InnerProduct"
        or made.keys.get("axis", 1) != 1
    ):
        return None
    x, axis = words["x"].blob, len(node.shape) - 1
    rows = words["rows"].shape
    if axis < 2 or x.shape[:axis] != node.shape[:-1] or rows[1:] != (math.prod(x.shape[axis:]),):
        return None
    if made.keys["num_output"] != node.shape[-1] or len(x.shape) <= axis:
        return None
    return draft.layer(
        "InnerProduct", x, shape=node.shape, arrays=made.arrays, **made.keys | {"axis": axis}
    )


@recognises("Mul")
def factor_behind(draft: Draft, node: Node) -> Blob | None:
    """A key of the Reduction, Exp or Log before it: a factor."""
    words = match(("Mul", "x", "#factor"), node)
    made = words["x"].blob.layer if words is not None and words["x"].readers == 1 else None
    if words is None or made is None or made.tops[0].shape != node.shape:
        return None
    factor, keys = words["#factor"], dict(made.keys)
    if made.type == "Reduction":
        keys["coeff"] = keys.get("coeff", 1.0) * factor
    elif made.type == "Exp" and factor > 0 and "base" not in keys:
        keys["shift"] = keys.get("shift", 0.0) + math.log(factor)
    elif made.type == "Log" and "base" not in keys and (base := base_of(factor)) is not None:
        keys["base"] = base
    else:
        return None
    return draft.layer(made.type, *made.bottoms, shape=node.shape, **keys)


def base_of(factor: float) -> float | None:
    """The base b of factor log(x) = log_b(x); None where float32, as Caffe has it, holds none."""
    if not 1 / 80 < factor < math.inf:
        return None
    base = math.exp(1 / factor)
    return base if abs(factor * math.log(np.float32(base)) - 1) < CLOSE else None


@recognises("Mul", "MaxPool")
def pooling(draft: Draft, node: Node) -> Blob | None:
    """Pooling by Caffe's rules, as export writes it: room behind the image, means of the pixels in it."""
    image = ("Pad:pad", "x")
    mean = ("Mul", ("AveragePool:pool", [image, "x"]), "*share")
    words = match([("MaxPool:pool", image), mean], node)
    shape = words["x"].blob.shape if words is not None else ()
    if words is None or len(shape) != 4:
        return None
    pool = words["pool"]
    begin = pool.get("pads", [0] * 4)[:2]
    around = words["pad"].const(1) if "pad" in words else None
    if around is not None and len(around) == 8:
        begin = [a + int(b) for a, b in zip(begin, around[2:4], strict=True)]
    stride = pool.get("strides", [1, 1])
    keys = window_keys(kernel_size=pool.get("kernel_shape"), stride=stride, pad=begin)
    keys |= {"pool": "AVE"} if pool.kind == "AveragePool" else {}
    return as_exported(draft, node, "Pooling", {"x": shape}, keys)
