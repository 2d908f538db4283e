"""Sums, products and powers of blobs and numbers, and the functions that are written by their parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.bridges.draft import Blob, Draft, Node, Tensor
from minicaffe.bridges.readers.activation import largest
from minicaffe.bridges.table import RefusedError, reads

Pattern = Callable[[Draft, Node], "Blob | None"]


def one_number(array: np.ndarray | None) -> float | None:
    """The number that an array holds, if it is one."""
    return float(array.ravel()[0]) if array is not None and array.size == 1 else None


def sides(node: Node) -> list[tuple[Tensor, Tensor]]:
    """The two inputs in both orders."""
    a, b = node.inputs[0], node.inputs[1]
    if a is None or b is None:
        raise RefusedError("an input is missing")
    return [(a, b), (b, a)]


def maker(tensor: Tensor | None, *kinds: str) -> Node | None:
    """The node that computes a tensor, if it is of one of these kinds."""
    node = tensor.node if tensor is not None else None
    return node if node is not None and node.kind in kinds else None


def _number_and_blob(node: Node | None) -> tuple[float, Tensor] | None:
    """The number and the other input of a node of two inputs."""
    if node is None or len(node.inputs) != 2:
        return None
    for one, other in sides(node):
        number = one_number(one.data)
        if number is not None and other.data is None:
            return number, other
    return None


def swish(draft: Draft, node: Node) -> Blob | None:
    """x sigmoid(beta x)."""
    for x, factor in sides(node):
        gate = maker(factor, "Sigmoid")
        if gate is None or x.blob is None:
            continue
        inner = gate.inputs[0]
        if inner is x:
            return draft.layer("Swish", x.blob)
        scaled = _number_and_blob(maker(inner, "Mul"))
        if scaled is not None and scaled[1] is x:
            return draft.layer("Swish", x.blob, beta=scaled[0])
    return None


def hard_swish(draft: Draft, node: Node) -> Blob | None:
    """x clip(x + 3, 0, 6) / 6, in whichever order it is divided; x HardSigmoid(x) by 1/6 and 1/2."""
    for x, factor in sides(node):
        if x.blob is None:
            continue
        gate = maker(factor, "HardSigmoid")
        if gate is not None and gate.inputs[0] is x and gate.get("beta", 0.5) == 0.5:
            sixth = abs(gate.get("alpha", 0.2) - 1 / 6) < 1e-6
            return draft.layer("HardSwish", x.blob) if sixth else None
        divided = maker(factor, "Div")
        if divided is not None and one_number(divided.const(1)) == 6 and _six(divided.inputs[0], x):
            return draft.layer("HardSwish", x.blob)
    return None


def hard_swish_divided(draft: Draft, node: Node) -> Blob | None:
    """(x clip(x + 3, 0, 6)) / 6."""
    product = maker(node.inputs[0], "Mul")
    if product is None or one_number(node.const(1)) != 6:
        return None
    for x, factor in sides(product):
        if x.blob is not None and _six(factor, x):
            return draft.layer("HardSwish", x.blob)
    return None


def _six(tensor: Tensor | None, x: Tensor) -> bool:
    """Whether a tensor is clip(x + 3, 0, 6)."""
    blob = tensor.blob if tensor is not None else None
    made = blob.layer if blob is not None else None
    if made is None or made.type != "ReLU6":
        return False
    inner = made.bottoms[0].layer
    if inner is None or inner.type != "Power" or inner.bottoms[0] is not x.blob:
        return False
    return inner.keys == {"shift": 3.0}


def gelu(draft: Draft, node: Node) -> Blob | None:
    """x / 2 (1 + erf(x / sqrt(2))), whichever way the product is put."""
    factors = _factors(node)
    number, blobs = 1.0, []
    for factor in factors:
        one = one_number(factor.data)
        if one is not None:
            number *= one
        else:
            blobs.append(factor)
    if len(blobs) != 2 or abs(number - 0.5) > 1e-6:
        return None
    for x, share in (blobs, blobs[::-1]):
        added = _number_and_blob(maker(share, "Add"))
        erf = maker(added[1], "Erf") if added is not None and added[0] == 1 else None
        if erf is None or x.blob is None:
            continue
        inner = erf.inputs[0]
        root = math.sqrt(2)
        scaled = _number_and_blob(maker(inner, "Mul"))
        if scaled is not None and scaled[1] is x and abs(scaled[0] * root - 1) < 1e-5:
            return draft.layer("GELU", x.blob)
        divided = maker(inner, "Div")
        if divided is None or divided.inputs[0] is not x:
            continue
        if abs((one_number(divided.const(1)) or 0.0) / root - 1) < 1e-5:
            return draft.layer("GELU", x.blob)
    return None


def _factors(node: Node) -> list[Tensor]:
    """What a product of products is of."""
    factors: list[Tensor] = []
    for tensor in node.inputs:
        inner = maker(tensor, "Mul")
        if tensor is None:
            continue
        if inner is not None and tensor.readers == 1:
            factors += _factors(inner)
        else:
            factors.append(tensor)
    return factors


PRODUCTS: list[Pattern] = [swish, hard_swish, gelu]


@reads("Erf")
def erf(draft: Draft, node: Node) -> Any:
    """Only within GELU, whose layer it becomes."""
    if node.outputs[0].readers == 1:
        reason = "no layer computes it, but for that of a GELU"
        return Blob(node.shape, refused=f"node {node.name!r} (Erf): {reason}")
    raise RefusedError("no layer computes it, but for that of a GELU")


@reads("Add", "Sub")
def add(draft: Draft, node: Node) -> Blob:
    """Power, Bias, or Eltwise SUM, by what is added; a bias of the layer before where it has none."""
    a, b = node.inputs[0], node.inputs[1]
    sign = -1.0 if node.kind == "Sub" else 1.0
    if a is None or b is None:
        raise RefusedError("an input is missing")
    if b.data is not None:
        x = _grown(draft, draft.blob(a), node)
        return draft.plus(x, sign * np.asarray(b.data, np.float32))
    if a.data is not None:
        x = _grown(draft, draft.blob(b), node)
        return draft.plus(draft.linear(x, sign), np.asarray(a.data, np.float32))
    left, right = draft.blob(a), draft.blob(b)
    if left.shape == right.shape:
        how: dict[str, Any] = {} if sign == 1 else {"coeff": [1.0, -1.0]}
        return draft.layer("Eltwise", left, right, **how)
    return draft.combined("Bias", left, draft.linear(right, sign), node.shape)


@reads("Mul")
def mul(draft: Draft, node: Node) -> Blob:
    """Power, Scale, or Eltwise PROD, by what is multiplied; Swish, HardSwish and GELU where they are meant."""
    for pattern in PRODUCTS:
        blob = pattern(draft, node)
        if blob is not None:
            return blob
    a, b = sides(node)[0]
    if b.data is not None:
        return draft.times(_grown(draft, draft.blob(a), node), b.data)
    if a.data is not None:
        return draft.times(_grown(draft, draft.blob(b), node), a.data)
    if a is b:
        return raised(draft, draft.blob(a), 2.0)
    return draft.combined("Scale", draft.blob(a), draft.blob(b), node.shape)


def raised(draft: Draft, x: Blob, power: float) -> Blob:
    """x^power; with a Power before it that only scales and shifts, one layer."""
    made = x.layer
    if made is not None and made.type == "Power" and made.keys.get("power", 1.0) == 1.0:
        scale, shift = made.keys.get("scale", 1.0), made.keys.get("shift", 0.0)
        return draft.power(made.bottoms[0], power, scale, shift)
    return draft.power(x, power)


@reads("Div")
def div(draft: Draft, node: Node) -> Blob:
    """Power or Scale by a number's reciprocal; by a blob, its Power of -1 and a product."""
    blob = hard_swish_divided(draft, node)
    if blob is not None:
        return blob
    a, b = sides(node)[0]
    if b.data is not None:
        with np.errstate(divide="ignore"):
            factor = 1 / np.asarray(b.data, np.float64)
        if not np.isfinite(factor).all():
            raise RefusedError("it divides by 0")
        return draft.times(_grown(draft, draft.blob(a), node), factor)
    below = draft.blob(b)
    inner = below.layer
    root = inner is not None and inner.type == "Power" and inner.keys.get("power", 1.0) == 0.5
    if root and inner is not None:  # 1 / sqrt(x), one layer
        keys = inner.keys
        share = draft.power(inner.bottoms[0], -0.5, keys.get("scale", 1.0), keys.get("shift", 0.0))
    else:
        share = raised(draft, below, -1.0)
    if a.data is not None:
        return draft.times(_grown(draft, share, node), a.data)
    return draft.combined("Scale", draft.blob(a), share, node.shape)


def _grown(draft: Draft, x: Blob, node: Node) -> Blob:
    """x repeated where numbers are of a larger shape."""
    return x if x.shape == node.shape else draft.spread(x, node.shape)


@reads("Pow")
def pow_(draft: Draft, node: Node) -> Blob:
    """Power."""
    exponent = one_number(node.needs_const(1, "exponent"))
    if exponent is None:
        raise RefusedError("its exponents are several")
    return raised(draft, draft.blob(node.inputs[0]), exponent)


@reads("Sqrt", "Reciprocal")
def root(draft: Draft, node: Node) -> Blob:
    """Power of 1/2 or -1."""
    return raised(draft, draft.blob(node.inputs[0]), 0.5 if node.kind == "Sqrt" else -1.0)


@reads("Neg")
def neg(draft: Draft, node: Node) -> Blob:
    """Power with a scale of -1."""
    return draft.linear(draft.blob(node.inputs[0]), -1.0)


@reads("Sum", "Mean")
def sum_(draft: Draft, node: Node) -> Blob:
    """Eltwise SUM; numbers by Power and Bias, what is broadcast by Bias."""
    total: Blob | None = None
    blobs = [draft.blob(one) for one in node.inputs]
    if len({blob.shape for blob in blobs}) == 1 and len(blobs) > 1:
        total = draft.layer("Eltwise", *blobs)
    else:
        for blob in blobs:
            if total is None:
                total = blob
                continue
            shape = np.broadcast_shapes(total.shape, blob.shape)
            total = draft.combined("Bias", total, blob, shape)
    if total is None:
        raise RefusedError("it has no input")
    return draft.linear(total, 1 / len(blobs)) if node.kind == "Mean" else total


@reads("Max", "Min")
def max_(draft: Draft, node: Node) -> Blob:
    """Eltwise MAX; against a number ReLU and Power; a minimum as the maximum with the signs turned."""
    sign = 1.0 if node.kind == "Max" else -1.0
    numbers = [one_number(one.data) for one in node.inputs if one is not None]
    blobs = [one for one in node.inputs if one is not None and one_number(one.data) is None]
    known = [sign * number for number in numbers if number is not None]
    if not blobs:
        raise RefusedError("it has no input")
    parts = [draft.linear(draft.spread(draft.blob(one), node.shape), sign) for one in blobs]
    y = parts[0] if len(parts) == 1 else draft.layer("Eltwise", *parts, operation="MAX")
    if known:
        y = largest(draft, y, max(known))
    return draft.linear(y, sign)


@reads("Greater", "Less")
def greater(draft: Draft, node: Node) -> Blob:
    """Threshold; against a blob, of the difference."""
    a, b = sides(node)[0] if node.kind == "Greater" else sides(node)[1]
    level = one_number(b.data)
    if level is not None:
        return draft.layer("Threshold", draft.blob(a), threshold=level)
    apart = draft.combined("Bias", draft.blob(a), draft.linear(draft.blob(b), -1.0), node.shape)
    return draft.layer("Threshold", apart, threshold=0.0)


@reads("Not")
def not_(draft: Draft, node: Node) -> Blob:
    """1 - x, of what is 0 or 1."""
    return draft.linear(draft.blob(node.inputs[0]), -1.0, 1.0)
