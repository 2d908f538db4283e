"""A net that infers as data for a page's script: its steps, one behind the other, and its parameters."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.core.net.step import Step, Value
from minicaffe.tools.report.ends import LeftOutError

Arrays = Sequence[np.ndarray]
Said = tuple[str, dict[str, Any], Arrays]  # the script's layer, its keys, its arrays
SAME = ("Dropout", "Flatten", "Reshape", "Split")
FORMULAS = {  # of layers of one function of each number
    *(
        "AbsVal",
        "BNLL",
        "Clip",
        "Constant",
        "ELU",
        "Exp",
        "GELUTanh",
        "HardSwish",
        "LeakyReLU",
        "Linear",
    ),
    *("Log", "Power", "ReLU", "ReLU6", "Sigmoid", "Square", "Swish", "TanH", "Threshold"),
}


@dataclass
class Program:
    """What hand.net of try_net.js takes: values by number, steps, and float32 arrays as base64."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)
    numbers: dict[Value, int] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Write a step. Raises LeftOutError for a layer that the script does not have."""
        op, keys, arrays = said(step)
        if not all(np.isfinite(array).all() for array in arrays):
            raise LeftOutError(f"{step.spec}: its parameters are not all finite numbers")
        values = [[self.number(value) for value in side] for side in (step.bottoms, step.tops)]
        first = len(self.arrays)
        self.arrays += [encoded(array.astype("<f4")) for array in arrays]
        places = list(range(first, len(self.arrays)))
        self.steps.append({"op": op, "in": values[0], "out": values[1], "arrays": places, **keys})

    def number(self, value: Value) -> int:
        """The number of a value."""
        return self.numbers.setdefault(value, len(self.numbers))


def program(steps: Sequence[Step], output: str) -> dict[str, Any]:
    """The steps of a net of one sample, its Input the first, its answer the blob `output`.

    Raises LeftOutError for a layer that the script does not have.
    """
    found = Program()
    for step in steps[1:]:
        found.add(step)
    answer = next(v for step in reversed(steps) for v in step.tops if v.name == output)
    numbers = {"input": found.number(steps[0].tops[0]), "output": found.number(answer)}
    return {**numbers, "steps": found.steps, "arrays": found.arrays}


def said(step: Step) -> Said:
    """How the script is told of a layer. Raises LeftOutError for one that it does not have."""
    layer: Any = step.layer
    kind = step.spec.type
    arrays = [param.owner.to_host().astype(np.float64) for param in layer.params]
    write = WRITERS.get(kind)
    if kind in SAME and getattr(layer, "scale_train", True):
        return "Same", {}, []
    if write is None and getattr(layer, "name_of_formula", None) in FORMULAS:
        keys = {"formula": layer.name_of_formula, "numbers": list(map(float, layer.numbers))}
        return "Elementwise", keys, []
    told = write(step, layer, arrays) if write is not None else None
    if told is None:
        raise LeftOutError(f"{step.spec}: this page's script does not have it")
    return told


def encoded(array: np.ndarray) -> str:
    """An array's bytes as base64."""
    return base64.b64encode(array.tobytes()).decode()


def _convolution(step: Step, layer: Any, arrays: Arrays) -> Said | None:
    x, y = step.bottoms[0].shape, step.tops[0].shape
    if len(x) != 4 or x[0] != 1 or layer.axis % 4 != 1 or len(step.bottoms) != 1:
        return None
    window = layer.geometry.window
    keys = {key: list(getattr(window, key)) for key in ("kernel", "stride", "pad", "dilation")}
    return "Convolution", {"x": x[1:], "y": y[1:], "group": layer.group, **keys}, arrays


def _pooling(step: Step, layer: Any, arrays: Arrays) -> Said | None:
    x, y = step.bottoms[0].shape, step.tops[0].shape
    if layer.pool == "STOCHASTIC" or len(step.tops) > 1 or len(x) != 4:
        return None
    keys = {key: list(getattr(layer.window, key)) for key in ("kernel", "stride", "pad")}
    keys |= {"x": [x[0] * x[1], *x[2:]], "y": [y[0] * y[1], *y[2:]]}
    return "Pooling", {**keys, "max": layer.pool == "MAX"}, []


def _product(step: Step, layer: Any, arrays: Arrays) -> Said:
    sizes = {"m": layer.m, "k": layer.k, "n": layer.num_output}
    return "InnerProduct", {**sizes, "transpose": layer.transpose}, arrays


def _softmax(step: Step, layer: Any, arrays: Arrays) -> Said:
    return "Softmax", {"ncs": list(layer.ncs)}, []


def _lrn(step: Step, layer: Any, arrays: Arrays) -> Said:
    r = layer.response
    keys = {key: getattr(r, key) for key in ("up", "side", "base", "alpha", "beta")}
    return "LRN", {"image": list(r.image), **keys}, []


def _prelu(step: Step, layer: Any, arrays: Arrays) -> Said:
    return "PReLU", {"nfp": list(layer.nfp)}, [arrays[0].ravel()]


def _scale(step: Step, layer: Any, arrays: Arrays) -> Said | None:
    if len(step.bottoms) > 1:
        return None
    scale = arrays[0].ravel()
    bias = arrays[1].ravel() if len(arrays) > 1 else np.zeros_like(scale)
    return "Channels", {"nfp": list(layer.nfp)}, [scale, bias]


def _bias(step: Step, layer: Any, arrays: Arrays) -> Said | None:
    if len(step.bottoms) > 1:
        return None
    bias = arrays[0].ravel()
    return "Channels", {"nfp": list(layer.nfp)}, [np.ones_like(bias), bias]


def _batch_norm(step: Step, layer: Any, arrays: Arrays) -> Said | None:
    if not layer.by_past:
        return None
    mean, variance, count = arrays[:3]
    share = 1 / count[0] if count[0] else 0.0
    rate = 1 / np.sqrt(variance * share + layer.eps)
    scale, bias = arrays[3:] if len(arrays) > 3 else (np.ones_like(mean), np.zeros_like(mean))
    x = step.bottoms[0].shape
    nfp = [x[0], x[1], math.prod(x[2:])]
    return "Channels", {"nfp": nfp}, [rate * scale, bias - mean * share * rate * scale]


def _eltwise(step: Step, layer: Any, arrays: Arrays) -> Said:
    return "Eltwise", {"operation": layer.operation, "factors": list(layer.factors)}, []


def _concat(step: Step, layer: Any, arrays: Arrays) -> Said:
    axis = len(layer.parts[0]) - 1
    return "Concat", {"rows": math.prod(step.tops[0].shape[:axis])}, []


WRITERS: dict[str, Callable[[Step, Any, Arrays], Said | None]] = {
    "Convolution": _convolution,
    "Pooling": _pooling,
    "InnerProduct": _product,
    "Softmax": _softmax,
    "LRN": _lrn,
    "PReLU": _prelu,
    "Scale": _scale,
    "Bias": _bias,
    "BatchNorm": _batch_norm,
    "Eltwise": _eltwise,
    "Concat": _concat,
}
