"""The solver's update of one parameter."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from minicaffe.backend import launch, on_cuda
from minicaffe.ops.activation import LONG, run_loop
from minicaffe.ops.loops import loops
from minicaffe.ops.threads import in_slices


def sgd(
    weight: Any,
    diff: Any,
    history: Any,
    rate: float,
    momentum: float,
    decay: float,
    penalty: Literal["L1", "L2"],
    scale: float,
    scratch: Any,
) -> None:
    """history = momentum history + rate (scale diff + decay weight); diff = history; weight -= diff.

    With the penalty L1, decay sign(weight). All in place; `scratch`, of the weight's shape, is NumPy's.
    Source: Caffe's SGDSolver.

    >>> weight, diff, history = np.array([1.0]), np.array([2.0]), np.array([10.0])
    >>> sgd(weight, diff, history, 0.1, 0.5, 0.0, "L2", 1.0, np.empty(1))
    >>> weight, history
    (array([-4.2]), array([5.2]))
    """
    kind, l1 = weight.dtype.type, penalty == "L1"
    if on_cuda(weight):
        kind = np.float64 if weight.dtype == np.float64 else np.float32
        numbers = *map(kind, (rate, momentum, decay)), int(l1), kind(scale)
        launch("update.cu", "sgd", weight.size, weight, weight, diff, history, *numbers)
        return
    fast = loops("elementwise", weight.dtype)
    if fast is not None:
        numbers = *map(kind, (rate, momentum, decay)), l1, kind(scale)
        run_loop(fast.sgd, weight, diff, history, *numbers)
        return

    def part(first: int, last: int, _: Any) -> None:
        w, d, h, s = (array.reshape(-1)[first:last] for array in (weight, diff, history, scratch))
        if scale != 1:
            np.multiply(d, scale, out=d)
        if decay:
            source = w if penalty == "L2" else np.sign(w, out=s)
            np.multiply(source, decay, out=s)
            np.add(d, s, out=d)
        np.multiply(d, rate, out=d)
        np.multiply(h, momentum, out=h)
        np.add(h, d, out=h)
        np.copyto(d, h)
        np.subtract(w, d, out=w)

    if weight.size >= LONG:
        in_slices(part, weight.size)
    else:
        part(0, weight.size, None)


def unscale(diff: Any, scale: float, gradient: Any, add: bool, bad: Any) -> None:
    """gradient = diff / scale, plus what it was with `add`; diff = 0; bad = True if a diff is not finite.

    gradient is of diff's type, or float32 for one of 16 bits; bad is one bool.

    >>> diff, gradient, bad = np.array([8.0, np.inf]), np.ones(2), np.array(False)
    >>> unscale(diff, 4.0, gradient, True, bad)
    >>> gradient, diff, bad
    (array([ 3., inf]), array([0., 0.]), array(True))
    """
    if on_cuda(diff):
        sizes = gradient.dtype.type(scale), int(add), gradient, bad
        launch("update.cu", "unscale", diff.size, diff, diff, *sizes)
        return
    np.logical_or(bad, not np.isfinite(diff).all(), out=bad)
    np.add(diff / gradient.dtype.type(scale), gradient if add else 0, out=gradient)
    diff.fill(0)
