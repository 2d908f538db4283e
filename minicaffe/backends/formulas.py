"""Element-wise functions and update rules: each is a formula, written once.

NumPy evaluates the functions on blocks of entries. Numba compiles functions and rules for one entry
(cpu/kernels), and backends/cuda/emit.py writes them in C++: only the words in them (`where`, `maximum`, `exp`)
mean something else each time, so that they have no branches and no loops. Floats in them become of the
entries' own type, as the numbers that follow x are; a condition is 1 or 0.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy import exp, expm1, log, log1p, maximum, minimum, power, sign, sqrt, tanh, where

Function = Callable[..., Any]


@dataclass(frozen=True)
class Formula:
    """y(x, *numbers) and slope(x, y, *numbers), which reads x, y, both or neither; None: no gradient."""

    y: Function
    slope: Function | None
    reads: str
    in_place: Callable[..., bool] = lambda *numbers: False  # whether slope may read y in x's place
    # y in one call of NumPy's, into `out`; the slope is then true or false
    whole: Function | None = None


def always(*numbers: float) -> bool:
    """In place whatever the numbers."""
    return True


def erfc(x: Any) -> Any:
    """1 - erf(x), which NumPy has not."""
    return np.fromiter(map(math.erfc, x.tolist()), x.dtype, x.size)


def relu(x: Any, out: Any) -> Any:
    """max(x, 0), in one call."""
    return maximum(x, 0, out=out)


def gelu_tanh(x: Any) -> Any:
    """0.5 x (1 + tanh(u / 2)), which is x / (1 + exp(-u)); u = 2 sqrt(2 / pi) (x + 0.044715 x^3)."""
    return x / (1.0 + exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))


def gelu_tanh_slope(x: Any, y: Any) -> Any:
    """With s = 1 / (1 + exp(-u)), and so y = x s, it is s + y (1 - s) u'."""
    s = 1.0 / (1.0 + exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))
    return s + y * (1.0 - s) * (1.5957691216057308 * (1.0 + 0.134145 * x * x))


def swish_slope(x: Any, y: Any, beta: Any) -> Any:
    """The same for u = beta x."""
    s = 1.0 / (1.0 + exp(-beta * x))
    return s + y * (1.0 - s) * beta


FORMULAS = {
    "AbsVal": Formula(lambda x: abs(x), lambda x, y: sign(x), "x"),
    "BNLL": Formula(
        lambda x: maximum(x, 0.0) + log1p(exp(-abs(x))), lambda x, y: 1.0 / (1.0 + exp(-x)), "x"
    ),
    "Clip": Formula(
        lambda x, low, high: minimum(maximum(x, low), high),
        lambda x, y, low, high: (x >= low) & (x <= high),
        "x",
    ),
    "Constant": Formula(lambda x, value: value, lambda x, y, value: 0.0, "", always),
    "ELU": Formula(
        lambda x, alpha: where(x > 0.0, x, alpha * expm1(x)),
        lambda x, y, alpha: where(x > 0.0, 1.0, alpha + y),
        "xy",
        lambda alpha: alpha >= 0,
    ),
    "Exp": Formula(
        lambda x, inner, outer: outer * exp(inner * x),
        lambda x, y, inner, outer: inner * y,
        "y",
        always,
    ),
    "GELU": Formula(
        lambda x: 0.5 * x * erfc(-0.7071067811865476 * x),
        lambda x, y: (
            0.5 * erfc(-0.7071067811865476 * x) + 0.3989422804014327 * x * exp(-0.5 * x * x)
        ),
        "x",
    ),
    "GELUTanh": Formula(gelu_tanh, gelu_tanh_slope, "xy"),
    "HardSwish": Formula(
        lambda x: x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0,
        lambda x, y: where(x > -3.0, where(x < 3.0, x / 3.0 + 0.5, 1.0), 0.0),
        "x",
    ),
    "LeakyReLU": Formula(
        lambda x, low: where(x > 0.0, x, low * x),
        lambda x, y, low: where(x > 0.0, 1.0, low),
        "x",
        lambda low: low >= 0,
    ),
    "Linear": Formula(
        lambda x, scale, shift: shift + scale * x, lambda x, y, scale, shift: scale, "", always
    ),
    "Log": Formula(
        lambda x, scale, shift, factor: factor * log(shift + scale * x),
        lambda x, y, scale, shift, factor: factor * scale / (shift + scale * x),
        "x",
    ),
    "Power": Formula(
        lambda x, scale, shift, p: power(shift + scale * x, p),
        lambda x, y, scale, shift, p: p * scale * power(shift + scale * x, p - 1.0),
        "x",
    ),
    "ReLU": Formula(lambda x: maximum(x, 0.0), lambda x, y: x > 0.0, "x", always, relu),
    "ReLU6": Formula(
        lambda x: minimum(maximum(x, 0.0), 6.0), lambda x, y: (x > 0.0) & (x < 6.0), "x", always
    ),
    "Sigmoid": Formula(lambda x: 1.0 / (1.0 + exp(-x)), lambda x, y: y * (1.0 - y), "y", always),
    "Square": Formula(
        lambda x, scale, shift: (shift + scale * x) * (shift + scale * x),
        lambda x, y, scale, shift: 2.0 * scale * (shift + scale * x),
        "x",
    ),
    "Swish": Formula(lambda x, beta: x / (1.0 + exp(-beta * x)), swish_slope, "xy"),
    "TanH": Formula(lambda x: tanh(x), lambda x, y: 1.0 - y * y, "y", always),
    "Threshold": Formula(lambda x, threshold: x > threshold, None, ""),
}


class StepFormula(NamedTuple):
    """step(w, g, *history, *numbers) returns what is taken from w, and the new history: `memory` values."""

    step: Function
    memory: int


def sgd(w: Any, g: Any, h: Any, rate: Any, momentum: Any) -> Any:
    """Gradient descent with momentum."""
    h = momentum * h + rate * g
    return h, h


def nesterov(w: Any, g: Any, before: Any, rate: Any, momentum: Any) -> Any:
    """Nesterov's: the step is (1 + momentum) h - momentum before."""
    h = momentum * before + rate * g
    return h + momentum * (h - before), h


def scaled(w: Any, g: Any, h: Any, rate: Any, keep: Any, take: Any, delta: Any) -> Any:
    """AdaGrad, where h is the sum of all g^2, and RMSProp, where it is their running mean."""
    h = keep * h + take * (g * g)
    return rate * (g / (sqrt(h) + delta)), h


def adadelta(w: Any, g: Any, a: Any, b: Any, rate: Any, momentum: Any, delta: Any) -> Any:
    """a and b are running means of g^2 and u^2."""
    a = momentum * a + (1 - momentum) * (g * g)
    u = g * sqrt((b + delta) / (a + delta))
    return rate * u, a, momentum * b + (1 - momentum) * (u * u)


def adam(
    w: Any,
    g: Any,
    m: Any,
    v: Any,
    rate: Any,
    momentum: Any,
    momentum2: Any,
    delta: Any,
    shrink: Any,
) -> Any:
    """m and v are running means of g and g^2; `shrink` is AdamW's."""
    m = momentum * m + (1 - momentum) * g
    v = momentum2 * v + (1 - momentum2) * (g * g)
    return rate * m / (sqrt(v) + delta) + shrink * w, m, v


RULES = {
    "sgd": StepFormula(sgd, 1),
    "nesterov": StepFormula(nesterov, 1),
    "scaled": StepFormula(scaled, 1),
    "adadelta": StepFormula(adadelta, 2),
    "adam": StepFormula(adam, 2),
}


def typed(function: Function, dtype: np.dtype, meaning: Mapping[str, Any]) -> Function:
    """A formula with its numbers in a type, and its words (`exp`, `where`) as `meaning` has them."""
    code = function.__code__
    numbers = tuple(dtype.type(c) if type(c) is float else c for c in code.co_consts)
    return FunctionType(code.replace(co_consts=numbers), dict(meaning))


@functools.cache
def rule_on_blocks(name: str, dtype: np.dtype) -> Function:
    """The step of an update rule, for NumPy."""
    return typed(RULES[name].step, dtype, globals())


@functools.cache
def on_blocks(name: str, part: str, dtype: np.dtype) -> Function:
    """The `y` or the `slope` of a formula, for NumPy."""
    return typed(getattr(FORMULAS[name], part), dtype, globals())
