"""Element-wise layers: a formula of formulas.py each, in ONNX's words; and Dropout, which is nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from minicaffe.core.layers.elementwise import ROWS
from minicaffe.core.net.step import Step
from minicaffe.errors import SpecError
from minicaffe.interop.onnx.writer.graph import Graph
from minicaffe.interop.onnx.writer.table import writes

Write = Callable[..., str]  # of the graph's `op`, x, and the formula's numbers


def shifted(op: Any, x: str, scale: float, shift: float) -> str:
    """shift + scale x."""
    x = x if scale == 1 else op("Mul", x, scale)
    return x if shift == 0 else op("Add", x, shift)


def square(op: Any, x: str, scale: float, shift: float) -> str:
    """(shift + scale x)^2."""
    x = shifted(op, x, scale, shift)
    return op("Mul", x, x)


def gelu(op: Any, x: str) -> str:
    """x / 2 (1 + erf(x / sqrt(2)))."""
    share = op("Add", op("Erf", op("Mul", x, math.sqrt(0.5))), 1.0)
    return op("Mul", op("Mul", x, 0.5), share)


def gelu_tanh(op: Any, x: str) -> str:
    """x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3))."""
    cube = op("Mul", op("Mul", op("Mul", x, x), x), 0.044715)
    inner = op("Mul", op("Add", x, cube), 2 * math.sqrt(2 / math.pi))
    return op("Mul", x, op("Sigmoid", inner))


def constant(op: Any, x: str, value: float) -> str:
    """The value, in x's shape, whatever x holds."""
    return op("Expand", value, op("Shape", x))


FORMULAS: dict[str, Write] = {
    "AbsVal": lambda op, x: op("Abs", x),
    "BNLL": lambda op, x: op("Softplus", x),
    "Clip": lambda op, x, low, high: op("Clip", x, low, high),
    "Constant": constant,
    "ELU": lambda op, x, alpha: op("Elu", x, alpha=alpha),
    "Exp": lambda op, x, inner, outer: shifted(
        op, op("Exp", shifted(op, x, inner, 0.0)), outer, 0.0
    ),
    "GELU": gelu,
    "GELUTanh": gelu_tanh,
    "HardSwish": lambda op, x: op("HardSwish", x),
    "LeakyReLU": lambda op, x, low: op("LeakyRelu", x, alpha=low),
    "Linear": lambda op, x, scale, shift: shifted(op, x, scale, shift),
    "Log": lambda op, x, scale, shift, factor: shifted(
        op, op("Log", shifted(op, x, scale, shift)), factor, 0.0
    ),
    "Power": lambda op, x, scale, shift, p: op("Pow", shifted(op, x, scale, shift), p),
    "ReLU": lambda op, x: op("Relu", x),
    "ReLU6": lambda op, x: op("Clip", x, 0.0, 6.0),
    "Sigmoid": lambda op, x: op("Sigmoid", x),
    "Square": square,
    "Swish": lambda op, x, beta: op("Mul", x, op("Sigmoid", shifted(op, x, beta, 0.0))),
    "TanH": lambda op, x: op("Tanh", x),
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
