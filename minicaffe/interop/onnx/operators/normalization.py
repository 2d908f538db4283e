"""Normalisations: by what was seen in training, of a sample, of its groups, of neighbours.

Those of a sample are said in Reduction, Power, Bias and Scale, which any Caffe has; Caffe's own MVN adds eps
to the deviation, ONNX to the variance.
"""

import math
from typing import Any

import numpy as np

from minicaffe.core.layers.base import canonical_axis
from minicaffe.interop.onnx.draft import Blob, Draft, Layer, Node, differing, limited, numbers_run
from minicaffe.interop.onnx.operators.reduce import axes_of, reduction, shrunk
from minicaffe.interop.onnx.patterns import Pattern, emit, recognises, short
from minicaffe.interop.onnx.table import RefusedError, lowers, reads, says, writes
from minicaffe.interop.onnx.writer.model import Graph, Written

TINY = float(np.finfo(np.float32).tiny)


def squared(x: Pattern) -> Pattern:
    """x^2."""
    return [("Mul", x, x), ("Pow", x, 2.0)]


def centred(x: Pattern) -> Pattern:
    """x - mean."""
    return ("Sub", x, ("ReduceMean:mean", x))


def standard(x: Pattern) -> Pattern:
    """(x - mean) / sqrt(variance + eps)."""
    apart = centred(x)
    return ("Div", apart, ("Sqrt", ("Add", ("ReduceMean:variance", squared(apart)), "#eps")))


def deviated(x: Pattern) -> Pattern:
    """(x - mean) / (deviation + eps)."""
    apart = centred(x)
    return ("Div", apart, ("Add", ("Sqrt", ("ReduceMean:variance", squared(apart))), "#eps"))


def scaled(*forms: Pattern) -> list[Pattern]:
    """One of several forms, or it times a scale, plus a bias."""
    return [*forms, ("Add", ("Mul", list(forms), "*scale"), "*bias")]


CENTRED, STANDARD, DEVIATED = centred("x"), standard("x"), deviated("x")
ROWS = ("Reshape:rows", "x")
GROUPS = (
    ("Reshape", standard(ROWS)),
    ("Reshape", ("InstanceNormalization:instance", ROWS, "*ones", "*zeros")),
)
UNIT = ("Div", "x", ("Sqrt", ("Add", ("ReduceSum:total", squared("x")), "#eps")))
POOLED = ("Mul", ("AveragePool:pool", squared("x")), "#alpha")
WITHIN = ("Mul", "x", ("Pow", ("Add", POOLED, 1.0), "#beta"))


def reduced(rank: int, *means: Node) -> list[int] | None:
    """The axes of means, where they are the same and stay as 1."""
    axes = [axes_of(node, rank) for node in means]
    same = axes.count(axes[0]) == len(axes) and all(node.get("keepdims", 1) for node in means)
    return axes[0] if same else None


@reads("BatchNormalization")
def read_batch_normalization(draft: Draft, node: Node, x: Blob) -> Blob:
    """BatchNorm, and a Scale behind it unless it changes nothing."""
    scale, bias, mean, variance = (
        node.needs_const(i, what) for i, what in enumerate(("scale", "bias", "mean", "variance"), 1)
    )
    trains = node.get("training_mode", 0) or (node.opset < 14 and len(node.outputs) > 1)
    if trains or any(one.readers for one in node.outputs[1:]):
        raise RefusedError("it is in training mode: export the model as it infers")
    for array in (scale, bias, mean, variance):
        if array.shape != x.shape[1:2]:
            raise RefusedError(f"numbers of shape {array.shape} are not one a channel of {x.shape}")
    y = draft.layer(
        "BatchNorm", x, arrays=[mean, variance, np.ones(1)], eps=_eps(node), use_global_stats=True
    )
    return affine(draft, y, scale, bias, 1)


def _eps(node: Node) -> float:
    return short(node.get("epsilon", 1e-5))


@reads("LRN")
def read_lrn(draft: Draft, node: Node, x: Blob) -> Blob:
    """LRN across channels, of an odd size."""
    size = node.get("size")
    if size % 2 == 0:
        raise RefusedError(f"its window of {size} channels is even; Caffe's is odd")
    numbers: dict[str, Any] = {
        "alpha": short(node.get("alpha", 1e-4)),
        "beta": short(node.get("beta", 0.75)),
        "k": short(node.get("bias", 1.0)),
    }
    return draft.layer("LRN", x, local_size=size, **numbers)


@reads("InstanceNormalization")
def read_instance_normalization(draft: Draft, node: Node, x: Blob) -> Blob:
    """Each channel of each sample by its own mean and variance: Reduction, Bias, Power, Scale."""
    scale, bias = node.needs_const(1, "scale"), node.needs_const(2, "bias")
    return affine(draft, standardised(draft, x, 2, _eps(node)), scale, bias, 1)


@reads("GroupNormalization")
def read_group_normalization(draft: Draft, node: Node, x: Blob) -> Blob:
    """GroupNorm: channels in groups, by the group's mean and variance, then a scale and a bias a channel."""
    scale, bias = node.needs_const(1, "scale"), node.needs_const(2, "bias")
    groups, channels = node.get("num_groups"), x.shape[1]
    if len(scale) != channels:  # opset 18 has one a group
        scale, bias = (np.repeat(one, channels // groups) for one in (scale, bias))
    return draft.layer("GroupNorm", x, arrays=[scale, bias], num_groups=groups, eps=_eps(node))


@reads("LayerNormalization")
def read_layer_normalization(draft: Draft, node: Node, x: Blob) -> Blob:
    """LayerNorm: over the axes from `axis` on."""
    axis = node.get("axis", -1) % len(x.shape)
    scale = np.broadcast_to(node.needs_const(1, "scale"), x.shape[axis:])
    bias = node.optional_const(2, "bias")
    if any(one.readers for one in node.outputs[1:]):
        raise RefusedError("its mean and deviation are read; a LayerNorm returns none")
    arrays = [scale, np.broadcast_to(0 if bias is None else bias, x.shape[axis:])]
    return draft.layer("LayerNorm", x, arrays=arrays, axis=axis, eps=_eps(node))


@reads("MeanVarianceNormalization")
def read_mean_variance(draft: Draft, node: Node, x: Blob) -> Blob:
    """(x - mean) / (deviation + 1e-9), over axes that are the last ones: MVN."""
    axes = sorted(axis % len(x.shape) for axis in node.get("axes", [0, 2, 3]))
    if axes != list(range(len(x.shape) - len(axes), len(x.shape))) or axes[0] == 0:
        problem = "MVN's are the last ones, and not the samples'"
        raise RefusedError(f"it is over the axes {axes}; {problem}")
    rows = (math.prod(x.shape[: axes[0]]), 1, 1, math.prod(x.shape[axes[0] :]))
    return draft.reshape(draft.layer("MVN", draft.reshape(x, rows), eps=1e-9), x.shape)


@reads("LpNormalization")
def read_lp_normalization(draft: Draft, node: Node, x: Blob) -> Blob:
    """x / its length along an axis, of p = 1 or 2: Reduction, Power, Scale."""
    axis, p = node.get("axis", -1) % len(x.shape), node.get("p", 2)
    total = reduction(draft, x, [axis], "SUMSQ" if p == 2 else "ASUM")
    power = -0.5 if p == 2 else -1.0
    share = draft.power(total, power, 1.0, TINY)  # where all is 0 the result is 0, not 0 / 0
    share = draft.reshape(share, shrunk(x, [axis]))
    return draft.combined("Scale", x, share, x.shape)


@reads("Softmax", "LogSoftmax")
def read_softmax(draft: Draft, node: Node, x: Blob) -> Blob:
    """Softmax; LogSoftmax is x - m - log(sum of exp(x - m)), m the maximum; before opset 13 of all behind."""
    old = node.opset < 13
    axis = node.get("axis", 1 if old else -1) % max(len(x.shape), 1)
    inner = x
    if old and axis != len(x.shape) - 1:
        flat = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        inner, axis = draft.reshape(x, flat), 1
    if node.kind == "Softmax":
        return draft.reshape(draft.layer("Softmax", inner, **differing(axis=(axis, 1))), x.shape)
    one, shape = shrunk(inner, [axis]), inner.shape
    top = draft.linear(reduction(draft, inner, [axis], "MAX"), -1.0)
    below = draft.combined("Bias", inner, draft.reshape(top, one), shape)
    total = draft.layer("Log", reduction(draft, draft.layer("Exp", below), [axis], "SUM"))
    rest = draft.reshape(draft.linear(total, -1.0), one)
    return draft.reshape(draft.combined("Bias", below, rest, shape), x.shape)


def standardised(draft: Draft, x: Blob, axis: int, eps: float) -> Blob:
    """(x - mean) / sqrt(variance + eps) over the axes from `axis` on, in layers that any Caffe has."""
    outer = x.shape[:axis]
    mean = draft.layer("Reduction", x, shape=outer, operation="MEAN", axis=axis)
    apart = draft.layer("Bias", x, draft.linear(mean, -1.0), axis=0)
    squares = draft.power(apart, 2.0)
    variance = draft.layer("Reduction", squares, shape=outer, operation="MEAN", axis=axis)
    return draft.layer("Scale", apart, draft.power(variance, -0.5, 1.0, eps), axis=0)


def affine(draft: Draft, x: Blob, scale: np.ndarray, bias: np.ndarray, axis: int) -> Blob:
    """x times a scale plus a bias, of the axes from `axis` on; nothing where they are 1 and 0."""
    if (scale == 1).all() and (bias == 0).all():
        return x
    keys = {"bias_term": True} | differing(axis=(axis, 1), num_axes=(scale.ndim, 1))
    return draft.layer("Scale", x, arrays=[scale, bias], **keys)


@recognises(scaled(STANDARD))
def find_layer_norm(
    draft: Draft, node: Node, x: Blob, eps: float, mean: Node, variance: Node, **numbers: Any
) -> Blob | None:
    """LayerNorm: (x - mean) / sqrt(variance + eps) over the last axes, with a scale and a bias or none."""
    rank = len(x.shape)
    axes = reduced(rank, mean, variance)
    if not axes or axes != list(range(axes[0], rank)):
        return None
    arrays = [numbers[word] for word in ("scale", "bias") if word in numbers]
    if any(array.shape != x.shape[axes[0] :] for array in arrays):
        return None
    keys = {"axis": axes[0], "eps": eps} | differing(affine=(bool(arrays), True))
    return draft.layer("LayerNorm", x, arrays=arrays, **keys)


@recognises(scaled(*GROUPS))
def find_group_norm(
    draft: Draft, node: Node, x: Blob, rows: Node, eps: float | None = None, **words: Any
) -> Blob | None:
    """GroupNorm: groups as rows (n, groups, rest), standardised; a scale and a bias a channel or none."""
    shape, parts = node.shape, rows.shape
    if x.shape != shape or len(shape) < 2 or len(parts) != 3:
        return None
    if parts[0] != shape[0] or shape[1] % parts[1]:
        return None
    if eps is not None:
        known = reduced(3, words["mean"], words["variance"]) == [2]
    else:
        eps = _eps(words["instance"])
        known = bool((words["ones"] == 1).all() and (words["zeros"] == 0).all())
    arrays = [of_channels(words[word], shape) for word in ("scale", "bias") if word in words]
    if not known or any(array is None for array in arrays):
        return None
    keys = {"num_groups": parts[1], "eps": eps} | differing(affine=(bool(arrays), True))
    return draft.layer("GroupNorm", x, arrays=arrays, **keys)


def of_channels(numbers: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A number a channel, of numbers that broadcast along channels alone; None of others."""
    if numbers.ndim > len(shape) or shape[1:2] != (numbers.size,):
        return None
    axis, run = numbers_run(numbers, shape) if numbers.size > 1 else (1, numbers.reshape(1))
    return run if axis == 1 and run.ndim == 1 else None


@recognises([("Reshape", deviated(ROWS)), ("Reshape", centred(ROWS))])
def find_mvn(
    draft: Draft, node: Node, x: Blob, rows: Node, eps: float | None = None, **means: Node
) -> Blob | None:
    """MVN: rows (n, c, rest) or (n, rest) less their mean, over the deviation plus eps."""
    last = len(rows.shape) - 1
    if x.shape != node.shape or len(x.shape) < 2 or last not in (1, 2):
        return None
    if rows.shape[:last] != x.shape[:last] or reduced(last + 1, *means.values()) != [last]:
        return None
    keys = differing(across_channels=(last == 1, False))
    keys |= {"eps": eps} if eps is not None else {"normalize_variance": False}
    return draft.layer("MVN", x, **keys)


@recognises(("Mul", UNIT, "*scale"))
def find_normalize(
    draft: Draft, node: Node, x: Blob, total: Node, eps: float, scale: np.ndarray
) -> Blob | None:
    """Normalize: x / sqrt(sum of squares + eps), over a sample or the channels, times a scale."""
    rank = len(x.shape)
    axes = reduced(rank, total)
    if axes not in ([1], list(range(1, rank))) or rank < 2:
        return None
    shared = scale.size == 1
    run = scale.reshape(()) if shared else of_channels(scale, x.shape)
    if run is None:
        return None
    keys = differing(across_spatial=(axes != [1], True), channel_shared=(shared, True))
    return draft.layer("Normalize", x, arrays=[run], eps=eps, **keys)


@recognises(WITHIN)
def find_lrn_within(
    draft: Draft, node: Node, x: Blob, alpha: float, beta: float, pool: Node
) -> Blob | None:
    """LRN within channels: x (1 + alpha mean of squares in a window)^-beta, pads counting."""
    size = pool.get("kernel_shape")[0]
    usual = {"strides": [1, 1], "dilations": [1, 1], "ceil_mode": 0, "auto_pad": "NOTSET"}
    attributes = {"pads": [0] * 4, "count_include_pad": 0} | usual | pool.attributes
    if attributes != window_of(size) | usual or size % 2 == 0:
        return None
    keys = {"local_size": size, "alpha": alpha, "beta": -beta}
    return draft.layer("LRN", x, norm_region="WITHIN_CHANNEL", **keys)


def window_of(size: int) -> dict[str, Any]:
    """The attributes of the mean that an LRN within channels is made of."""
    return {"kernel_shape": [size] * 2, "pads": [size // 2] * 4, "count_include_pad": 1}


@writes("BatchNorm")
def write_batch_norm(graph: Graph, step: Written, x: str) -> str:
    """BatchNormalization by the averages; of a batch's own statistics, in primitives."""
    layer = step.layer
    shape = step.bottoms[0].shape
    if not layer.by_past:
        axes = [axis for axis in range(len(shape)) if axis != 1]
        y = write_tree(graph, STANDARD, x, axes, layer.eps)
        return write_scaled(graph, step, y, 3) if layer.learnt else y
    mean, variance, count = (param.to_host() for param in layer.past)
    share = 1 / count[0] if count[0] else 0
    past = (("mean", mean), ("variance", variance))
    averages = [graph.const(one * share, f"{step.spec.name}/{word}") for word, one in past]
    if layer.learnt:
        learnt = [graph.param(step, 3), graph.param(step, 4)]
    else:
        learnt = [graph.const(np.ones(len(mean))), graph.const(np.zeros(len(mean)))]
    x = x if len(shape) > 1 else graph.op("Unsqueeze", x, [1])
    y = graph.op("BatchNormalization", x, *learnt, *averages, epsilon=layer.eps)
    return y if len(shape) > 1 else graph.op("Squeeze", y, [1])


def write_scaled(graph: Graph, step: Written, x: str, first: int) -> str:
    """Each channel times parameter `first`, plus the next."""
    shape = step.bottoms[0].shape
    own = (*(shape[1:2] or (1,)), *(1,) * (len(shape) - 2))
    y = graph.op("Mul", x, graph.param(step, first, own))
    return graph.op("Add", y, graph.param(step, first + 1, own))


def write_tree(graph: Graph, tree: Pattern, x: str, axes: list[int], eps: float) -> str:
    """A tree of means over axes."""
    words = {"x": x, "mean": {"axes": axes}, "variance": {"axes": axes}, "#eps": eps}
    return str(emit(tree, words, graph.op))


@writes("MVN")
def write_mvn(graph: Graph, step: Written, x: str) -> str:
    """By the deviation, to which eps is added."""
    shapes = graph.shapes(step.bottoms[0])
    first = 1 if step.layer.across_channels else 2
    rows = [(*shape[:first], math.prod(shape[first:])) for shape in shapes]
    tree = DEVIATED if step.layer.normalize_variance else CENTRED
    y = write_tree(graph, tree, graph.reshape(x, shapes, rows), [first], step.layer.eps)
    return graph.reshape(y, rows, shapes, like=step.bottoms[0])


@writes("LayerNorm")
def write_layer_norm(graph: Graph, step: Written, x: str) -> str:
    """LayerNormalization, or, where nothing is learnt, primitives."""
    layer = step.layer
    shape = step.bottoms[0].shape
    axis = canonical_axis(layer.axis, shape)
    if not layer.affine:
        return write_tree(graph, STANDARD, x, list(range(axis, len(shape))), layer.eps)
    learnt = [graph.param(step, i) for i in range(len(layer.params))]
    return graph.op("LayerNormalization", x, *learnt, axis=axis, epsilon=layer.eps)


@writes("GroupNorm")
def write_group_norm(graph: Graph, step: Written, x: str) -> str:
    """Groups as rows (n, groups, rest), standardised."""
    shapes, groups = graph.shapes(step.bottoms[0]), step.layer.num_groups
    rows = [(shape[0], groups, math.prod(shape[1:]) // groups) for shape in shapes]
    y = write_tree(graph, STANDARD, graph.reshape(x, shapes, rows), [2], step.layer.eps)
    y = graph.reshape(y, rows, shapes, like=step.bottoms[0])
    return write_scaled(graph, step, y, 0) if step.layer.affine else y


@writes("Normalize")
def write_normalize(graph: Graph, step: Written, x: str) -> str:
    """Divided by its length, over a sample or the channels of a place."""
    shape = step.bottoms[0].shape
    axes = list(range(1, len(shape))) if step.layer.across_spatial else [1]
    y = emit(UNIT, {"x": x, "#eps": step.layer.eps, "total": [axes]}, graph.op)
    own = () if step.layer.channel_shared else (shape[1], *(1,) * (len(shape) - 2))
    return graph.op("Mul", y, graph.param(step, 0, own))


@writes("LRN")
def write_lrn(graph: Graph, step: Written, x: str) -> str:
    """LRN along the channels; within them a mean of squares, pads counting, and a power."""
    layer = step.layer
    size = layer.local_size
    if layer.norm_region == "ACROSS_CHANNELS":
        numbers = {"alpha": layer.alpha, "beta": layer.beta, "bias": layer.k}
        return graph.op("LRN", x, size=size, **numbers)
    words = {"x": x, "#alpha": layer.alpha, "#beta": -layer.beta, "pool": window_of(size)}
    return str(emit(WITHIN, words, graph.op))


says("Softmax", "Softmax", axis=lambda step: canonical_axis(step.layer.axis, step.bottoms[0].shape))


@writes("L2Norm")
def write_l2_norm(graph: Graph, step: Written, x: str) -> str:
    """LpNormalization of each sample as a row."""
    if len(step.bottoms[0].shape) == 2:
        return graph.op("LpNormalization", x, axis=1, p=2)
    rows = graph.op("LpNormalization", graph.op("Flatten", x, axis=1), axis=1, p=2)
    return graph.op("Reshape", rows, graph.op("Shape", x))


@lowers("GroupNorm", "LayerNorm")
def lower_norm(draft: Draft, layer: Layer) -> Blob:
    """Groups as rows, or the axes behind, by their mean and variance; then a Scale."""
    x, keys, axis = layer.bottoms[0], layer.keys, layer.keys.get("axis", 1)
    rows, behind = x.shape, axis
    if layer.type == "GroupNorm":
        groups, behind = keys["num_groups"], 2
        rows = (x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    y = draft.reshape(standardised(draft, draft.reshape(x, rows), behind, keys["eps"]), x.shape)
    scale, bias = layer.arrays or (np.ones(1), np.zeros(1))
    return affine(draft, y, scale, bias, axis)


@lowers("Normalize")
def lower_normalize(draft: Draft, layer: Layer) -> Blob:
    """Sums of the squares, by Reduction or a Convolution by ones, Power, a product, and a Scale."""
    x, (scale,) = layer.bottoms[0], layer.arrays
    eps, channels = layer.keys["eps"], x.shape[1]
    if layer.keys.get("across_spatial", True):
        total = draft.layer("Reduction", x, shape=x.shape[:1], operation="SUMSQ", axis=1)
        y = draft.layer("Scale", x, draft.power(total, -0.5, 1.0, eps), axis=0)
    else:  # the sum of a place's channels, in each of them
        flat = draft.reshape(draft.power(x, 2.0), (x.shape[0], channels, math.prod(x.shape[2:]), 1))
        ones = np.ones(limited(channels, channels, 1, 1))
        total = draft.weighted("Convolution", flat, ones, flat.shape, kernel_size=1)
        y = draft.product(x, draft.reshape(draft.power(total, -0.5, 1.0, eps), x.shape))
    return draft.times(y, scale.reshape(-1, *(1,) * (len(x.shape) - 2)))
