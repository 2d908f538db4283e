"""Normalisations: by what was seen in training, of a sample, of its groups, of neighbours.

Those of a sample are said in Reduction, Power, Bias and Scale, which any Caffe has; Caffe's own MVN adds eps
to the deviation, ONNX to the variance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node
from minicaffe.interop.onnx.reader.nodes.reduce import reduction, shrunk
from minicaffe.interop.onnx.reader.patterns import short
from minicaffe.interop.onnx.reader.table import RefusedError, reads

TINY = float(np.finfo(np.float32).tiny)


@reads("BatchNormalization")
def batch_normalization(draft: Draft, node: Node) -> Blob:
    """BatchNorm, and a Scale behind it unless it changes nothing."""
    x = draft.blob(node.inputs[0])
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
    if (scale == 1).all() and (bias == 0).all():
        return y
    return draft.layer("Scale", y, arrays=[scale, bias], bias_term=True)


def _eps(node: Node) -> float:
    """epsilon, as short as float32 has it."""
    return short(node.get("epsilon", 1e-5))


@reads("LRN")
def lrn(draft: Draft, node: Node) -> Blob:
    """LRN across channels, of an odd size."""
    size = node.get("size")
    if size % 2 == 0:
        raise RefusedError(f"its window of {size} channels is even; Caffe's is odd")
    numbers: dict[str, Any] = {
        "alpha": short(node.get("alpha", 1e-4)),
        "beta": short(node.get("beta", 0.75)),
        "k": short(node.get("bias", 1.0)),
    }
    return draft.layer("LRN", draft.blob(node.inputs[0]), local_size=size, **numbers)


@reads("InstanceNormalization")
def instance_normalization(draft: Draft, node: Node) -> Blob:
    """Each channel of each sample by its own mean and variance: Reduction, Bias, Power, Scale."""
    x = draft.blob(node.inputs[0])
    scale, bias = node.needs_const(1, "scale"), node.needs_const(2, "bias")
    y = standardised(draft, x, 2, _eps(node))
    return affine(draft, y, scale, bias, 1)


@reads("GroupNormalization")
def group_normalization(draft: Draft, node: Node) -> Blob:
    """GroupNorm: channels in groups, by the group's mean and variance, then a scale and a bias a channel."""
    x = draft.blob(node.inputs[0])
    scale, bias = node.needs_const(1, "scale"), node.needs_const(2, "bias")
    groups, channels = node.get("num_groups"), x.shape[1]
    if len(scale) != channels:  # opset 18 has one a group
        scale, bias = (np.repeat(one, channels // groups) for one in (scale, bias))
    arrays = [scale, bias]
    return draft.layer("GroupNorm", x, arrays=arrays, num_groups=groups, eps=_eps(node))


@reads("LayerNormalization")
def layer_normalization(draft: Draft, node: Node) -> Blob:
    """LayerNorm: over the axes from `axis` on."""
    x = draft.blob(node.inputs[0])
    axis = node.get("axis", -1) % len(x.shape)
    scale = np.broadcast_to(node.needs_const(1, "scale"), x.shape[axis:])
    bias = node.needs_const(2, "bias") if node.input(2) is not None else np.zeros(1)
    if any(one.readers for one in node.outputs[1:]):
        raise RefusedError("its mean and deviation are read; a LayerNorm returns none")
    arrays = [scale, np.broadcast_to(bias, x.shape[axis:])]
    return draft.layer("LayerNorm", x, arrays=arrays, axis=axis, eps=_eps(node))


@reads("MeanVarianceNormalization")
def mean_variance(draft: Draft, node: Node) -> Blob:
    """(x - mean) / (deviation + 1e-9), over axes that are the last ones: MVN."""
    x = draft.blob(node.inputs[0])
    axes = sorted(axis % len(x.shape) for axis in node.get("axes", [0, 2, 3]))
    last = list(range(len(x.shape) - len(axes), len(x.shape)))
    if axes != last or axes[0] == 0:
        raise RefusedError(
            f"it is over the axes {axes}; MVN's are the last ones, and not the samples'"
        )
    rows = (math.prod(x.shape[: axes[0]]), 1, 1, math.prod(x.shape[axes[0] :]))
    y = draft.layer("MVN", draft.reshape(x, rows), eps=1e-9)
    return draft.reshape(y, x.shape)


@reads("LpNormalization")
def lp_normalization(draft: Draft, node: Node) -> Blob:
    """x / its length along an axis, of p = 1 or 2: Reduction, Power, Scale."""
    x = draft.blob(node.inputs[0])
    axis, p = node.get("axis", -1) % len(x.shape), node.get("p", 2)
    total = reduction(draft, x, [axis], "SUMSQ" if p == 2 else "ASUM")
    power = -0.5 if p == 2 else -1.0
    share = draft.power(total, power, 1.0, TINY)  # where all is 0 the result is 0, not 0 / 0
    share = draft.reshape(share, shrunk(x, [axis]))
    return draft.combined("Scale", x, share, x.shape)


@reads("Softmax", "LogSoftmax")
def softmax(draft: Draft, node: Node) -> Blob:
    """Softmax; LogSoftmax is x - m - log(sum of exp(x - m)), of the maximum m.

    Before opset 13 the axes from `axis` on are one.
    """
    x = draft.blob(node.inputs[0])
    old = node.opset < 13
    axis = node.get("axis", 1 if old else -1) % max(len(x.shape), 1)
    inner = x
    if old and axis != len(x.shape) - 1:
        flat = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        inner, axis = draft.reshape(x, flat), 1
    if node.kind == "Softmax":
        y = draft.layer("Softmax", inner, **({} if axis == 1 else {"axis": axis}))
        return draft.reshape(y, x.shape)
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
    keys: dict[str, Any] = {"bias_term": True} | ({} if axis == 1 else {"axis": axis})
    keys |= {} if scale.ndim == 1 else {"num_axes": scale.ndim}
    return draft.layer("Scale", x, arrays=[scale, bias], **keys)
