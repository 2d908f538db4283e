"""Functions entry by entry, sums and products of blobs and numbers; layers with numbers of their own.

A function is a formula of formulas.py, in ONNX's operators and in layers of their own. What has no operator,
or no layer, is a tree of others (patterns.py): its nodes are written, matched, and said in plainer layers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minicaffe.core.layers.channels import own_axes
from minicaffe.core.layers.elementwise import ROWS
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.draft import Blob, Draft, Layer, Node, differing, numbers_run
from minicaffe.interop.onnx.patterns import CLOSE, Pattern, emit, one_number, recognises
from minicaffe.interop.onnx.table import RefusedError, lowers, read_as, reads, says, writes
from minicaffe.interop.onnx.writer.model import Graph, Written

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
    return draft.linear(largest(draft, draft.linear(largest(draft, x, low), -1.0), -high), -1.0)


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
def elementwise(graph: Graph, step: Written, x: str) -> str:
    """The formula, with the numbers that the layer's keys give."""
    name, numbers = step.layer.call
    return FORMULAS[name](graph.op, x, *numbers)


writes("Threshold", jumps=True)(elementwise)


@writes("Dropout")
def dropout(graph: Graph, step: Written, x: str) -> str:
    """Nothing: in the phase TEST its top is its bottom, but for the share that scale_train leaves to it."""
    if step.layer.drops:
        raise SpecError("sample_weights_test drops entries at random, which ONNX's runtimes do not")
    return x if step.layer.scale_train else graph.op("Mul", x, float(1 - step.layer.dropout_ratio))


@reads("Add", "Sub")
def read_add(draft: Draft, node: Node) -> Blob:
    """Power, Bias, or Eltwise SUM, by what is added; a bias of the layer before where it has none."""
    a, b = node.known
    sign = -1.0 if node.kind == "Sub" else 1.0
    if b.data is not None:
        x = draft.spread(draft.blob(a), node.shape)
        return draft.plus(x, sign * np.asarray(b.data, np.float32))
    if a.data is not None:
        x = draft.spread(draft.blob(b), node.shape)
        return draft.plus(draft.linear(x, sign), np.asarray(a.data, np.float32))
    left, right = draft.blob(a), draft.blob(b)
    if left.shape == right.shape:
        return weighted(draft, [left, right], [1.0, sign])
    return draft.combined("Bias", left, draft.linear(right, sign), node.shape)


def weighted(draft: Draft, blobs: Sequence[Blob], factors: Sequence[float]) -> Blob:
    """An Eltwise SUM of blobs times factors, those of a Power before it among them."""
    bottoms, coeff = list(blobs), list(factors)
    for i, blob in enumerate(blobs):
        before = blob.layer
        if before is not None and before.type == "Power" and before.keys.keys() == {"scale"}:
            bottoms[i], coeff[i] = before.bottoms[0], factors[i] * before.keys["scale"]
    return draft.layer("Eltwise", *bottoms, **differing(coeff=(coeff, [1.0] * len(coeff))))


@reads("Mul")
def read_mul(draft: Draft, node: Node) -> Blob:
    """Power, Scale, or Eltwise PROD, by what is multiplied."""
    a, b = sorted(node.known, key=lambda one: one.data is not None)  # numbers last
    if b.data is not None:
        return draft.times(draft.spread(draft.blob(a), node.shape), b.data)
    if a is b:
        return draft.raised(draft.blob(a), 2.0)
    return draft.combined("Scale", draft.blob(a), draft.blob(b), node.shape)


@reads("Div")
def read_div(draft: Draft, node: Node) -> Blob:
    """Power or Scale by a number's reciprocal; by a blob, its Power of -1 and a product."""
    a, b = node.known
    if b.data is not None:
        with np.errstate(divide="ignore"):
            factor = 1 / np.asarray(b.data, np.float64)
        if not np.isfinite(factor).all():
            raise RefusedError("it divides by 0")
        return draft.times(draft.spread(draft.blob(a), node.shape), factor)
    below = draft.blob(b)
    before, scale, shift = draft.before_power(below, 0.5)
    root = before is not below  # 1 / sqrt(x), one layer
    share = draft.power(before, -0.5, scale, shift) if root else draft.raised(below, -1.0)
    if a.data is not None:
        return draft.times(draft.spread(share, node.shape), a.data)
    return draft.combined("Scale", draft.blob(a), share, node.shape)


@reads("Pow")
def read_pow(draft: Draft, node: Node, x: Blob) -> Blob:
    """Power."""
    exponent = one_number(node.needs_const(1, "exponent"))
    if exponent is None:
        raise RefusedError("its exponents are several")
    return draft.raised(draft.spread(x, node.shape), exponent)


read_as("Sqrt", "Power of 1/2.", lambda draft, node, x: draft.raised(x, 0.5))
read_as("Reciprocal", "Power of -1.", lambda draft, node, x: draft.raised(x, -1.0))
read_as("Neg", "Power with a scale of -1.", lambda draft, node, x: draft.linear(x, -1.0))
read_as("Not", "1 - x, of what is 0 or 1.", lambda draft, node, x: draft.linear(x, -1.0, 1.0))


@reads("Sum", "Mean")
def read_sum(draft: Draft, node: Node) -> Blob:
    """Eltwise SUM; numbers by Power and Bias, what is broadcast by Bias."""
    blobs = [draft.blob(one) for one in node.inputs]
    if len({blob.shape for blob in blobs}) == 1 and len(blobs) > 1:
        total = weighted(draft, blobs, [1.0] * len(blobs))
    else:
        total = blobs[0]
        for blob in blobs[1:]:
            shape = np.broadcast_shapes(total.shape, blob.shape)
            total = draft.combined("Bias", total, blob, shape)
    return draft.linear(total, 1 / len(blobs)) if node.kind == "Mean" else total


@reads("Max", "Min")
def read_max(draft: Draft, node: Node) -> Blob:
    """Eltwise MAX, ReLU against 0; a number is a Power; a minimum is the maximum with the signs turned."""
    sign = 1.0 if node.kind == "Max" else -1.0
    numbers = [one_number(one.data) for one in node.known]
    blobs = [one for one in node.known if one_number(one.data) is None]
    known = [sign * number for number in numbers if number is not None]
    parts = [draft.linear(draft.spread(draft.blob(one), node.shape), sign) for one in blobs]
    y = parts[0] if len(parts) == 1 else draft.layer("Eltwise", *parts, operation="MAX")
    if known:
        y = largest(draft, y, max(known))
    return draft.linear(y, sign)


@reads("Greater", "Less")
def read_greater(draft: Draft, node: Node) -> Blob:
    """Threshold; against a blob, of the difference."""
    a, b = node.known if node.kind == "Greater" else reversed(node.known)
    level, below = one_number(b.data), one_number(a.data)
    if level is not None:
        return draft.layer("Threshold", draft.spread(draft.blob(a), node.shape), threshold=level)
    if below is not None:  # c > x where -x > -c
        turned = draft.linear(draft.spread(draft.blob(b), node.shape), -1.0)
        return draft.layer("Threshold", turned, threshold=-below)
    apart = draft.combined("Bias", draft.blob(a), draft.linear(draft.blob(b), -1.0), node.shape)
    return draft.layer("Threshold", apart, threshold=0.0)


@recognises(("Mul", "x", "#factor"))
def find_factor_behind(draft: Draft, node: Node, x: Blob, factor: float) -> Blob | None:
    """A key of the Reduction, Exp or Log before it: a factor."""
    before = x.layer
    alone = all(one.readers == 1 for one in node.known if one.blob is x)
    if before is None or not alone or before.tops[0].shape != node.shape:
        return None
    keys = dict(before.keys)
    if before.type == "Reduction":
        keys["coeff"] = keys.get("coeff", 1.0) * factor
    elif before.type == "Exp" and factor > 0 and "base" not in keys:
        keys["shift"] = keys.get("shift", 0.0) + math.log(factor)
    elif before.type == "Log" and "base" not in keys and (base := base_of(factor)) is not None:
        keys["base"] = base
    else:
        return None
    return draft.layer(before.type, *before.bottoms, shape=node.shape, **keys)


def base_of(factor: float) -> float | None:
    """The base b of factor log(x) = log_b(x); None where float32, as Caffe has it, holds none."""
    if not 1 / 80 < factor < math.inf:
        return None
    base = math.exp(1 / factor)
    return base if abs(factor * math.log(np.float32(base)) - 1) < CLOSE else None


@writes("Eltwise")
def write_eltwise(graph: Graph, step: Written, *xs: str) -> str:
    """Sum, product or maximum."""
    if step.layer.operation == "MAX":
        return graph.op("Max", *xs)
    if step.layer.operation == "SUM":
        pairs = zip(xs, step.layer.factors, strict=True)
        scaled = [x if factor == 1 else graph.op("Mul", x, factor) for x, factor in pairs]
        return graph.op("Add" if len(xs) == 2 else "Sum", *scaled)
    y, *others = xs
    for x in others:
        y = graph.op("Mul", y, x)
    return y


says("MaskPooling", "Mul")  # which repeats the mask for each channel


def own_numbers(graph: Graph, step: Written, bottoms: tuple[str, ...], index: int) -> str:
    """Bottom 1, or parameter `index`, with as many axes of 1 behind as bottom 0 has behind it."""
    shape = step.bottoms[1].shape if bottoms else step.layer.params[index].shape
    axis, shape = own_axes(step.bottoms[0].shape, shape, step.layer.axis, step.layer.num_axes)
    behind = (len(step.bottoms[0].shape) - axis - len(shape)) if shape else 0
    if not bottoms:
        return graph.param(step, index, (*shape, *(1,) * behind))
    axes = list(range(len(shape), len(shape) + behind))
    return graph.op("Unsqueeze", bottoms[0], axes) if axes else bottoms[0]


@writes("Scale")
def write_scale(graph: Graph, step: Written, x: str, *factors: str) -> str:
    """Multiply, then add; a bias is the last parameter."""
    y = graph.op("Mul", x, own_numbers(graph, step, factors, 0))
    if step.layer.bias is None:
        return y
    return graph.op("Add", y, own_numbers(graph, step, (), len(step.layer.params) - 1))


writes("Bias")(lambda graph, step, x, *rest: graph.op("Add", x, own_numbers(graph, step, rest, 0)))


@writes("PReLU")
def write_prelu(graph: Graph, step: Written, x: str) -> str:
    """A slope a channel, or one."""
    slope, axes = step.layer.params[0], len(step.bottoms[0].shape)
    shape = (*slope.shape, *(1,) * (axes - 2)) if slope.shape else (1,) * (axes - 1)
    return graph.op("PRelu", x, graph.param(step, 0, shape))


@writes("Axpy")
def write_axpy(graph: Graph, step: Written, a: str, x: str, z: str) -> str:
    """A number for each channel of each sample."""
    had, axes = len(step.bottoms[0].shape), len(step.bottoms[1].shape)
    if had < axes:
        a = graph.op("Unsqueeze", a, list(range(had, axes)))
    return graph.op("Add", graph.op("Mul", x, a), z)
