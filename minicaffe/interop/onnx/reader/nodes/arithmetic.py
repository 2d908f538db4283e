"""Sums, products and powers of blobs and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.interop.onnx.reader.draft import Blob, Draft, Node, Tensor
from minicaffe.interop.onnx.reader.nodes.activation import largest
from minicaffe.interop.onnx.reader.patterns import one_number
from minicaffe.interop.onnx.reader.table import RefusedError, reads


def sides(node: Node) -> list[tuple[Tensor, Tensor]]:
    """The two inputs in both orders."""
    a, b = node.known
    return [(a, b), (b, a)]


@reads("Erf")
def erf(draft: Draft, node: Node) -> Blob:
    """Only within GELU, whose layer it becomes."""
    raise RefusedError("no layer computes it, but for that of a GELU")


@reads("Add", "Sub")
def add(draft: Draft, node: Node) -> Blob:
    """Power, Bias, or Eltwise SUM, by what is added; a bias of the layer before where it has none."""
    a, b = node.known
    sign = -1.0 if node.kind == "Sub" else 1.0
    if b.data is not None:
        x = _grown(draft, draft.blob(a), node)
        return draft.plus(x, sign * np.asarray(b.data, np.float32))
    if a.data is not None:
        x = _grown(draft, draft.blob(b), node)
        return draft.plus(draft.linear(x, sign), np.asarray(a.data, np.float32))
    left, right = draft.blob(a), draft.blob(b)
    if left.shape == right.shape:
        return weighted(draft, [left, right], [1.0, sign])
    return draft.combined("Bias", left, draft.linear(right, sign), node.shape)


def weighted(draft: Draft, blobs: Sequence[Blob], factors: Sequence[float]) -> Blob:
    """An Eltwise SUM of blobs times factors, those of a Power before it among them."""
    bottoms, coeff = list(blobs), list(factors)
    for i, blob in enumerate(blobs):
        made = blob.layer
        if made is not None and made.type == "Power" and made.keys.keys() == {"scale"}:
            bottoms[i], coeff[i] = made.bottoms[0], factors[i] * made.keys["scale"]
    how: dict[str, Any] = {} if coeff == [1.0] * len(coeff) else {"coeff": coeff}
    return draft.layer("Eltwise", *bottoms, **how)


@reads("Mul")
def mul(draft: Draft, node: Node) -> Blob:
    """Power, Scale, or Eltwise PROD, by what is multiplied."""
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
    return raised(draft, _grown(draft, draft.blob(node.inputs[0]), node), exponent)


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
def max_(draft: Draft, node: Node) -> Blob:
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
def greater(draft: Draft, node: Node) -> Blob:
    """Threshold; against a blob, of the difference."""
    a, b = sides(node)[0] if node.kind == "Greater" else sides(node)[1]
    level, below = one_number(b.data), one_number(a.data)
    if level is not None:
        return draft.layer("Threshold", _grown(draft, draft.blob(a), node), threshold=level)
    if below is not None:  # c > x where -x > -c
        turned = draft.linear(_grown(draft, draft.blob(b), node), -1.0)
        return draft.layer("Threshold", turned, threshold=-below)
    apart = draft.combined("Bias", draft.blob(a), draft.linear(draft.blob(b), -1.0), node.shape)
    return draft.layer("Threshold", apart, threshold=0.0)


@reads("Not")
def not_(draft: Draft, node: Node) -> Blob:
    """1 - x, of what is 0 or 1."""
    return draft.linear(draft.blob(node.inputs[0]), -1.0, 1.0)
