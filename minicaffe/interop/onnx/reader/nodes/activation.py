"""Functions entry by entry that have layers of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node, numbers_run
from minicaffe.interop.onnx.reader.table import reads

PLAIN = {
    "Sigmoid": "Sigmoid",
    "Tanh": "TanH",
    "Abs": "AbsVal",
    "Softplus": "BNLL",
    "Exp": "Exp",
    "Log": "Log",
}


@reads(*PLAIN)
def plain(draft: Draft, node: Node) -> Blob:
    """The layer of the same formula: Sigmoid, TanH, AbsVal, BNLL, Exp, Log."""
    x = draft.blob(node.inputs[0])
    made = x.layer
    if node.kind in ("Exp", "Log") and made is not None and made.type == "Power":
        keys = dict(made.keys)
        if keys.pop("power", 1.0) == 1.0:  # base^(shift + scale x), and the logarithm of it
            return draft.layer(PLAIN[node.kind], *made.bottoms, **keys)
    return draft.layer(PLAIN[node.kind], x)


@reads("Relu")
def relu(draft: Draft, node: Node) -> Blob:
    """ReLU."""
    return draft.layer("ReLU", draft.blob(node.inputs[0]))


@reads("LeakyRelu")
def leaky_relu(draft: Draft, node: Node) -> Blob:
    """ReLU with a negative_slope."""
    return draft.layer("ReLU", draft.blob(node.inputs[0]), negative_slope=node.get("alpha", 0.01))


@reads("PRelu")
def prelu(draft: Draft, node: Node) -> Blob:
    """PReLU, whose slopes are one or one a channel; of others ReLU of x and of -x, times the slopes."""
    x, slope = draft.blob(node.inputs[0]), np.asarray(node.needs_const(1, "slope"))
    if slope.size == 1 and len(x.shape) >= 2:
        return draft.layer("PReLU", x, arrays=[slope.reshape(())], channel_shared=True)
    if slope.size == 1:
        return draft.layer("ReLU", x, negative_slope=float(slope.ravel()[0]))
    axis, run = numbers_run(slope, x.shape)
    if axis != 1 or run.ndim != 1:
        below = draft.times(draft.layer("ReLU", draft.linear(x, -1.0)), -slope)
        return draft.layer("Eltwise", draft.layer("ReLU", x), below)
    return draft.layer("PReLU", x, arrays=[run])


@reads("Elu")
def elu(draft: Draft, node: Node) -> Blob:
    """ELU."""
    return draft.layer("ELU", draft.blob(node.inputs[0]), alpha=node.get("alpha", 1.0))


@reads("Selu")
def selu(draft: Draft, node: Node) -> Blob:
    """ELU, times gamma."""
    alpha, gamma = node.get("alpha", 1.6732632), node.get("gamma", 1.0507010)
    return draft.linear(draft.layer("ELU", draft.blob(node.inputs[0]), alpha=alpha), gamma)


@reads("Clip")
def clip(draft: Draft, node: Node) -> Blob:
    """ReLU6, ReLU, or Clip, by its limits; limits before opset 11 are attributes."""
    return clipped(draft, draft.blob(node.inputs[0]), *limits(node))


def limits(node: Node) -> tuple[float, float]:
    """Those of a Clip: inputs, or attributes before opset 11."""
    low, high = (
        float(node.needs_const(i, key).ravel()[0])
        if node.input(i) is not None
        else float(node.get(key, default))
        for i, key, default in ((1, "min", -math.inf), (2, "max", math.inf))
    )
    return low, high


def clipped(draft: Draft, x: Blob, low: float, high: float) -> Blob:
    """min(max(x, low), high)."""
    huge = float(np.finfo(np.float32).max)
    low, high = (-math.inf if low <= -huge else low), (math.inf if high >= huge else high)
    if (low, high) == (0.0, 6.0):
        return draft.layer("ReLU6", x)
    if high == math.inf:
        return largest(draft, x, low)
    if low == -math.inf:
        return draft.linear(largest(draft, draft.linear(x, -1.0), -high), -1.0)
    return draft.layer("Clip", x, min=low, max=high)


def largest(draft: Draft, x: Blob, low: float) -> Blob:
    """max(x, low): ReLU for 0, else Eltwise MAX with a Power whose scale is 0, which is `low` everywhere."""
    if low == -math.inf:
        return x
    if low == 0:
        return draft.layer("ReLU", x)
    return draft.layer("Eltwise", x, draft.linear(x, 0.0, low), operation="MAX")


@reads("HardSigmoid")
def hard_sigmoid(draft: Draft, node: Node) -> Blob:
    """Power and Clip."""
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    return clipped(draft, draft.linear(draft.blob(node.inputs[0]), alpha, beta), 0.0, 1.0)


@reads("HardSwish")
def hard_swish(draft: Draft, node: Node) -> Blob:
    """HardSwish."""
    return draft.layer("HardSwish", draft.blob(node.inputs[0]))


@reads("Gelu")
def gelu(draft: Draft, node: Node) -> Blob:
    """GELU, exact or by tanh."""
    how: dict[str, Any] = (
        {"approximate": "tanh"} if node.get("approximate", "none") == "tanh" else {}
    )
    return draft.layer("GELU", draft.blob(node.inputs[0]), **how)


@reads("Mish")
def mish(draft: Draft, node: Node) -> Blob:
    """BNLL, TanH and a product."""
    x = draft.blob(node.inputs[0])
    return draft.layer("Eltwise", x, draft.layer("TanH", draft.layer("BNLL", x)), operation="PROD")


@reads("Softsign")
def softsign(draft: Draft, node: Node) -> Blob:
    """x / (1 + |x|): AbsVal, Power and a product."""
    x = draft.blob(node.inputs[0])
    share = draft.power(draft.layer("AbsVal", x), -1.0, 1.0, 1.0)
    return draft.layer("Eltwise", x, share, operation="PROD")


@reads("ThresholdedRelu")
def thresholded_relu(draft: Draft, node: Node) -> Blob:
    """Threshold and a product."""
    x = draft.blob(node.inputs[0])
    above = draft.layer("Threshold", x, threshold=node.get("alpha", 1.0))
    return draft.layer("Eltwise", x, above, operation="PROD")


@reads("Celu")
def celu(draft: Draft, node: Node) -> Blob:
    """max(x, 0) + min(alpha (exp(x / alpha) - 1), 0): ELU of x / alpha, times alpha."""
    alpha = node.get("alpha", 1.0)
    x = draft.linear(draft.blob(node.inputs[0]), 1 / alpha)
    return draft.linear(draft.layer("ELU", x), alpha)
