"""Functions entry by entry: a formula of formulas.py each, in ONNX's operators and in layers of their own.

What has no operator, or no layer, is a tree of others (patterns.py): its nodes are written, matched, and said
in plainer layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.core.layers.elementwise import ROWS
from minicaffe.core.net.step import Step
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.draft import Blob, Draft, Layer, Node, differing, numbers_run
from minicaffe.interop.onnx.patterns import Pattern, emit, recognises
from minicaffe.interop.onnx.table import RefusedError, lowers, read_as, reads, writes
from minicaffe.interop.onnx.writer.graph import Graph

PLAIN = {  # operators and the layers of the same formula
    "Sigmoid": "Sigmoid",
    "Tanh": "TanH",
    "Abs": "AbsVal",
    "Softplus": "BNLL",
    "Exp": "Exp",
    "Log": "Log",
}


def halved(share: Pattern) -> list[Pattern]:
    """x / 2 share, whichever way the product is put."""
    return [
        ("Mul", ("Mul", "x", 0.5), share),
        ("Mul", ("Mul", "x", share), 0.5),
        ("Mul", "x", ("Mul", share, 0.5)),
    ]


def gate(factor: float) -> Pattern:
    """factor sqrt(2 / pi) (x + 0.044715 x^3)."""
    cube = [("Mul", ("Mul", "x", "x"), "x"), ("Pow", "x", 3.0)]
    return ("Mul", ("Add", "x", ("Mul", cube, 0.044715)), factor * math.sqrt(2 / math.pi))


ERF = ("Erf:erf", [("Mul", "x", math.sqrt(0.5)), ("Div", "x", math.sqrt(2))])
GELU = halved(("Add", ERF, 1.0))
GELU_TANH = ("Mul", "x", ("Sigmoid", gate(2)))
SWISH = ("Mul", "x", ("Sigmoid", [("Mul", "x", "#beta"), "x"]))
CLIPPED = ("Clip:clip", ("Add", "x", 3.0))
HARD_SWISH: Pattern = [
    ("Div", ("Mul", "x", CLIPPED), 6.0),
    ("Mul", "x", [("Div", CLIPPED, 6.0), ("Mul", CLIPPED, 1 / 6)]),
    ("Mul", "x", ("HardSigmoid:gate", "x")),
]
MISH = ("Mul", "x", ("Tanh", ("Softplus", "x")))
SOFTSIGN = ("Mul", "x", ("Reciprocal", ("Add", ("Abs", "x"), 1.0)))


@reads(*PLAIN)
def plain(draft: Draft, node: Node, x: Blob) -> Blob:
    """The layer of the same formula: Sigmoid, TanH, AbsVal, BNLL, Exp, Log."""
    if node.kind not in ("Exp", "Log"):
        return draft.layer(PLAIN[node.kind], x)
    before, scale, shift = draft.before_power(x)  # base^(shift + scale x), and the logarithm of it
    keys = differing(scale=(scale, 1.0), shift=(shift, 0.0))
    return draft.layer(PLAIN[node.kind], before, **keys)


read_as("Relu", "ReLU.", lambda draft, node, x: draft.layer("ReLU", x))
read_as(
    "LeakyRelu",
    "ReLU with a negative_slope.",
    lambda draft, node, x: draft.layer("ReLU", x, negative_slope=node.get("alpha", 0.01)),
)
read_as("Elu", "ELU.", lambda draft, node, x: draft.layer("ELU", x, alpha=node.get("alpha", 1.0)))
read_as(
    "Clip",
    "ReLU6, ReLU, or Clip, by its limits; limits before opset 11 are attributes.",
    lambda draft, node, x: clipped(draft, x, *limits(node)),
)
read_as(
    "HardSigmoid",
    "Power and Clip.",
    lambda draft, node, x: clipped(draft, draft.linear(x, *slope_of(node)), 0.0, 1.0),
)
read_as("HardSwish", "HardSwish.", lambda draft, node, x: draft.layer("HardSwish", x))
read_as(
    "Gelu",
    "GELU, exact or by tanh.",
    lambda draft, node, x: gelu(draft, x, node.get("approximate", "none")),
)
read_as("Mish", "BNLL, TanH and a product.", lambda draft, node, x: emit(MISH, {"x": x}, draft.op))
read_as(
    "Softsign",
    "x / (1 + |x|): AbsVal, Power and a product.",
    lambda draft, node, x: emit(SOFTSIGN, {"x": x}, draft.op),
)
read_as(
    "ThresholdedRelu",
    "Threshold and a product.",
    lambda draft, node, x: draft.product(
        x, draft.layer("Threshold", x, threshold=node.get("alpha", 1.0))
    ),
)


@reads("Selu")
def selu(draft: Draft, node: Node, x: Blob) -> Blob:
    """ELU, times gamma."""
    alpha, gamma = node.get("alpha", 1.6732632), node.get("gamma", 1.0507010)
    return draft.linear(draft.layer("ELU", x, alpha=alpha), gamma)


@reads("Celu")
def celu(draft: Draft, node: Node, x: Blob) -> Blob:
    """max(x, 0) + min(alpha (exp(x / alpha) - 1), 0): ELU of x / alpha, times alpha."""
    alpha = node.get("alpha", 1.0)
    return draft.linear(draft.layer("ELU", draft.linear(x, 1 / alpha)), alpha)


@reads("PRelu")
def read_prelu(draft: Draft, node: Node, x: Blob) -> Blob:
    """PReLU, whose slopes are one or one a channel; of others ReLU of x and of -x, times the slopes."""
    slope = np.asarray(node.needs_const(1, "slope"))
    if slope.size == 1 and len(x.shape) >= 2:
        return draft.layer("PReLU", x, arrays=[slope.reshape(())], channel_shared=True)
    if slope.size == 1:
        return draft.layer("ReLU", x, negative_slope=float(slope.ravel()[0]))
    axis, run = numbers_run(slope, x.shape)
    if axis != 1 or run.ndim != 1:
        below = draft.times(draft.layer("ReLU", draft.linear(x, -1.0)), -slope)
        return draft.layer("Eltwise", draft.layer("ReLU", x), below)
    return draft.layer("PReLU", x, arrays=[run])


def limits(node: Node) -> tuple[float, float]:
    """Those of a Clip: inputs, or attributes before opset 11."""
    return node.number("min", 1, -math.inf), node.number("max", 2, math.inf)


def clipped(draft: Draft, x: Blob, low: float, high: float) -> Blob:
    """min(max(x, low), high)."""
    huge = float(np.finfo(np.float32).max)
    low, high = (-math.inf if low <= -huge else low), (math.inf if high >= huge else high)
    if (low, high) == (0.0, 6.0):
        return draft.layer("ReLU6", x)
    if high == math.inf:
        return largest(draft, x, low)
    if low == -math.inf:
        return between(draft, x, low, high)
    return draft.layer("Clip", x, min=low, max=high)


def largest(draft: Draft, x: Blob, low: float) -> Blob:
    """max(x, low): ReLU for 0, else Eltwise MAX with a Power whose scale is 0, which is `low` everywhere."""
    if low == -math.inf:
        return x
    if low == 0:
        return draft.layer("ReLU", x)
    return draft.layer("Eltwise", x, draft.linear(x, 0.0, low), operation="MAX")


def between(draft: Draft, x: Blob, low: float, high: float) -> Blob:
    """min(max(x, low), high), by ReLU and Eltwise MAX."""
    below = draft.linear(largest(draft, x, low), -1.0)
    return draft.linear(largest(draft, below, -high), -1.0)


@lowers("ReLU6", "Clip")
def lower_clip(draft: Draft, layer: Layer) -> Blob:
    """min(max(x, low), high)."""
    return between(draft, layer.bottoms[0], layer.keys.get("min", 0.0), layer.keys.get("max", 6.0))


def slope_of(node: Node) -> tuple[float, float]:
    """The factor and the term of a HardSigmoid."""
    return node.get("alpha", 0.2), node.get("beta", 0.5)


@recognises(HARD_SWISH)
def find_hard_swish(
    draft: Draft, node: Node, x: Blob, clip: Node | None = None, gate: Node | None = None
) -> Blob | None:
    """HardSwish: x min(max(x + 3, 0), 6) / 6 in whichever order; x HardSigmoid(x) by 1 / 6 and 1 / 2."""
    if clip is not None:
        meant = limits(clip) == (0, 6)
    else:
        assert gate is not None
        meant = np.allclose(slope_of(gate), (1 / 6, 0.5), rtol=0, atol=1e-6)
    return draft.layer("HardSwish", x) if meant else None


@lowers("HardSwish")
def lower_hard_swish(draft: Draft, layer: Layer) -> Blob:
    """x times min(max(x + 3, 0), 6) / 6."""
    x = layer.bottoms[0]
    gate = draft.linear(between(draft, draft.linear(x, shift=3.0), 0.0, 6.0), 1 / 6)
    return draft.product(x, gate)


@recognises([*GELU, GELU_TANH, *halved(("Add", ("Tanh", gate(1)), 1.0))])
def find_gelu(draft: Draft, node: Node, x: Blob, erf: Node | None = None) -> Blob:
    """GELU: x / 2 (1 + erf(x / sqrt(2))), or by tanh, or by its sigmoid."""
    return gelu(draft, x, "tanh" if erf is None else "none")


def gelu(draft: Draft, x: Blob, approximate: str) -> Blob:
    """GELU, exact or by tanh."""
    return draft.layer("GELU", x, **differing(approximate=(approximate, "none")))


@lowers("GELU")
def lower_gelu(draft: Draft, layer: Layer) -> Blob:
    """x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), where it is meant by tanh."""
    if layer.keys.get("approximate", "none") != "tanh":
        raise RefusedError(
            "export it with approximate: tanh, which is Sigmoid, Power and a product"
        )
    return emit(GELU_TANH, {"x": layer.bottoms[0]}, draft.op, -1)


@recognises(SWISH)
def find_swish(draft: Draft, node: Node, x: Blob, **beta: Any) -> Blob:
    """Swish: x sigmoid(beta x)."""
    return draft.layer("Swish", x, **beta)


@lowers("Swish")
def lower_swish(draft: Draft, layer: Layer) -> Blob:
    """x sigmoid(beta x)."""
    return emit(SWISH, {"x": layer.bottoms[0], "#beta": layer.keys.get("beta", 1.0)}, draft.op)


def shifted(op: Any, x: str, scale: float, shift: float = 0.0) -> str:
    """shift + scale x."""
    x = x if scale == 1 else op("Mul", x, scale)
    return x if shift == 0 else op("Add", x, shift)


def square(op: Any, x: str, scale: float, shift: float) -> str:
    """(shift + scale x)^2."""
    x = shifted(op, x, scale, shift)
    return op("Mul", x, x)


FORMULAS: dict[str, Callable[..., str]] = {  # of the graph's `op`, x, and the formula's numbers
    **{layer: lambda op, x, kind=kind: op(kind, x) for kind, layer in PLAIN.items()},
    "Clip": lambda op, x, low, high: op("Clip", x, low, high),
    "Constant": lambda op, x, value: op("Expand", value, op("Shape", x)),
    "ELU": lambda op, x, alpha: op("Elu", x, alpha=alpha),
    "Exp": lambda op, x, inner, outer: shifted(op, op("Exp", shifted(op, x, inner)), outer),
    "GELU": lambda op, x: emit(GELU, {"x": x}, op),
    "GELUTanh": lambda op, x: emit(GELU_TANH, {"x": x}, op),
    "HardSwish": lambda op, x: op("HardSwish", x),
    "LeakyReLU": lambda op, x, low: op("LeakyRelu", x, alpha=low),
    "Linear": shifted,
    "Log": lambda op, x, scale, shift, factor: shifted(
        op, op("Log", shifted(op, x, scale, shift)), factor
    ),
    "Power": lambda op, x, scale, shift, p: op("Pow", shifted(op, x, scale, shift), p),
    "ReLU": lambda op, x: op("Relu", x),
    "ReLU6": lambda op, x: op("Clip", x, 0.0, 6.0),
    "Square": square,
    "Swish": lambda op, x, beta: emit(SWISH, {"x": x, "#beta": beta}, op, -1 if beta == 1 else 0),
    "Threshold": lambda op, x, threshold: op("Cast", op("Greater", x, threshold), to=1),
}


@writes(*(row.name for row in ROWS if row.name != "Threshold"))
def elementwise(graph: Graph, step: Step, x: str) -> str:
    """The formula, with the numbers that the layer's keys give."""
    name, numbers = step.layer.call  # type: ignore[attr-defined]
    return FORMULAS[name](graph.op, x, *numbers)


writes("Threshold", jumps=True)(elementwise)


@writes("Dropout")
def dropout(graph: Graph, step: Step, x: str) -> str:
    """Nothing: in the phase TEST its top is its bottom, but for the share that scale_train leaves to it."""
    layer: Any = step.layer
    if layer.drops:
        raise SpecError("sample_weights_test drops entries at random, which ONNX's runtimes do not")
    return x if layer.scale_train else graph.op("Mul", x, float(1 - layer.dropout_ratio))
