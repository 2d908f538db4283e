"""Sums, products and powers of blobs and numbers; layers with numbers of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.core.layers.channels import own_axes
from minicaffe.core.net.step import Step
from minicaffe.interop.onnx.draft import Blob, Draft, Node, differing
from minicaffe.interop.onnx.operators.activation import largest
from minicaffe.interop.onnx.patterns import CLOSE, one_number, recognises
from minicaffe.interop.onnx.table import RefusedError, read_as, reads, says, writes
from minicaffe.interop.onnx.writer.graph import Graph


@reads("Add", "Sub")
def read_add(draft: Draft, node: Node) -> Blob:
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
    return draft.layer("Eltwise", *bottoms, **differing(coeff=(coeff, [1.0] * len(coeff))))


@reads("Mul")
def read_mul(draft: Draft, node: Node) -> Blob:
    """Power, Scale, or Eltwise PROD, by what is multiplied."""
    a, b = node.known
    if b.data is not None:
        return draft.times(_grown(draft, draft.blob(a), node), b.data)
    if a.data is not None:
        return draft.times(_grown(draft, draft.blob(b), node), a.data)
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
        return draft.times(_grown(draft, draft.blob(a), node), factor)
    below = draft.blob(b)
    before, scale, shift = draft.before_power(below, 0.5)
    root = before is not below  # 1 / sqrt(x), one layer
    share = draft.power(before, -0.5, scale, shift) if root else draft.raised(below, -1.0)
    if a.data is not None:
        return draft.times(_grown(draft, share, node), a.data)
    return draft.combined("Scale", draft.blob(a), share, node.shape)


def _grown(draft: Draft, x: Blob, node: Node) -> Blob:
    """x repeated where numbers are of a larger shape."""
    return x if x.shape == node.shape else draft.spread(x, node.shape)


@reads("Pow")
def read_pow(draft: Draft, node: Node, x: Blob) -> Blob:
    """Power."""
    exponent = one_number(node.needs_const(1, "exponent"))
    if exponent is None:
        raise RefusedError("its exponents are several")
    return draft.raised(_grown(draft, x, node), exponent)


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
        return draft.layer("Threshold", _grown(draft, draft.blob(a), node), threshold=level)
    if below is not None:  # c > x where -x > -c
        turned = draft.linear(_grown(draft, draft.blob(b), node), -1.0)
        return draft.layer("Threshold", turned, threshold=-below)
    apart = draft.combined("Bias", draft.blob(a), draft.linear(draft.blob(b), -1.0), node.shape)
    return draft.layer("Threshold", apart, threshold=0.0)


@recognises(("Mul", "x", "#factor"))
def find_factor_behind(draft: Draft, node: Node, x: Blob, factor: float) -> Blob | None:
    """A key of the Reduction, Exp or Log before it: a factor."""
    made = x.layer
    alone = all(one.readers == 1 for one in node.known if one.blob is x)
    if made is None or not alone or made.tops[0].shape != node.shape:
        return None
    keys = dict(made.keys)
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


@writes("Eltwise")
def write_eltwise(graph: Graph, step: Step, *xs: str) -> str:
    """Sum, product or maximum."""
    layer: Any = step.layer
    if layer.operation == "MAX":
        return graph.op("Max", *xs)
    if layer.operation == "SUM":
        pairs = zip(xs, layer.factors, strict=True)
        scaled = [x if factor == 1 else graph.op("Mul", x, factor) for x, factor in pairs]
        return graph.op("Add" if len(xs) == 2 else "Sum", *scaled)
    y, *others = xs
    for x in others:
        y = graph.op("Mul", y, x)
    return y


says("MaskPooling", "Mul")  # which repeats the mask for each channel


def own_numbers(graph: Graph, step: Step, given: tuple[str, ...], index: int) -> str:
    """Bottom 1, or parameter `index`, with as many axes of 1 behind as bottom 0 has behind it."""
    layer: Any = step.layer
    shape = step.bottoms[1].shape if given else layer.params[index].shape
    axis, shape = own_axes(step.bottoms[0].shape, shape, layer.axis, layer.num_axes)
    behind = (len(step.bottoms[0].shape) - axis - len(shape)) if shape else 0
    if not given:
        return graph.param(step, index, (*shape, *(1,) * behind))
    axes = list(range(len(shape), len(shape) + behind))
    return graph.op("Unsqueeze", given[0], axes) if axes else given[0]


@writes("Scale")
def write_scale(graph: Graph, step: Step, x: str, *given: str) -> str:
    """Multiply, then add; a bias is the last parameter."""
    layer: Any = step.layer
    y = graph.op("Mul", x, own_numbers(graph, step, given, 0))
    if layer.bias is None:
        return y
    return graph.op("Add", y, own_numbers(graph, step, (), len(layer.params) - 1))


@writes("Bias")
def write_bias(graph: Graph, step: Step, x: str, *given: str) -> str:
    """Add."""
    return graph.op("Add", x, own_numbers(graph, step, given, 0))


@writes("PReLU")
def write_prelu(graph: Graph, step: Step, x: str) -> str:
    """A slope a channel, or one."""
    slope, axes = step.layer.params[0], len(step.bottoms[0].shape)
    shape = (*slope.shape, *(1,) * (axes - 2)) if slope.shape else (1,) * (axes - 1)
    return graph.op("PRelu", x, graph.param(step, 0, shape))


@writes("Axpy")
def write_axpy(graph: Graph, step: Step, a: str, x: str, z: str) -> str:
    """A number for each channel of each sample."""
    had, axes = len(step.bottoms[0].shape), len(step.bottoms[1].shape)
    if had < axes:
        a = graph.op("Unsqueeze", a, list(range(had, axes)))
    return graph.op("Add", graph.op("Mul", x, a), z)
