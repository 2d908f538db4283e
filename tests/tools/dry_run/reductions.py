"""Sums and maxima: most of them CuPy hands to CUB, which makes the result apart, in work of its own."""

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from cupy._core import _routines_math, _routines_statistics
from loaded_stand_in import load_stand_in

from dry_run.elementwise import is_here
from dry_run.record import record

KERNELS = {
    "sum": _routines_math.sum_auto_dtype,
    "prod": _routines_math.prod_auto_dtype,
    "max": _routines_statistics.amax,
    "min": _routines_statistics.amin,
}
load_stand_in()
from stand_in._functions import cub_takes  # noqa: E402  (one rule for both)


def reduction(name: str, kernel: Any) -> Callable[..., Any]:
    """A method of ndarray."""

    def reduce(
        self: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        is_here(self)
        op = kernel._ops.guess_routine(name, {}, [self], dtype, kernel._ops)
        shape = np.sum(np.empty(self.shape, bool), axis=axis, keepdims=keepdims).shape
        taken = cub_takes(self, axis, dtype, name)
        if taken and out is not None:
            record.note("allocation", f"CUB's result of {name}", self)
        if taken:
            record.note("allocation", f"CUB's work for {name}", self)
        if out is None:
            out = cupy.empty(shape, op.out_types[0])
        assert out.shape == shape, f"{name}: out of shape {out.shape} for {shape}"
        record.note("kernel", name, self, out)
        if taken:
            record.note("kernel", f"copy of CUB's {name}", out)
        return out

    return reduce


def install() -> None:
    """Take the place of ndarray's reductions; cupy.sum and its kin call them."""
    for name, kernel in KERNELS.items():
        setattr(cupy.ndarray, name, reduction(name, kernel))
    for name in ("max", "min"):  # their methods know no dtype
        method = getattr(cupy.ndarray, name)
        setattr(
            cupy.ndarray,
            name,
            lambda self, axis=None, out=None, keepdims=False, m=method: m(
                self, axis, None, out, keepdims
            ),
        )
