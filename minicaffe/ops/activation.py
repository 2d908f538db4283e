"""Dropout, one body for both devices, and how a compiled loop runs over all entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.errors import ShapeError
from minicaffe.ops.arrays import GRAIN
from minicaffe.ops.loops import loops
from minicaffe.ops.threads import run

LONG = 2**17  # elements from which threads pay NumPy


def dropout(xp: Any, x: Any, kept: Any, scale: float, out: Any) -> Any:
    """y = x scale where `kept`, 0 elsewhere; the same function takes dy to dx.

    >>> import numpy as np
    >>> dropout(np, np.array([1.0, 2.0]), np.array([True, False]), 2.0, np.empty(2))
    array([2., 0.])
    """
    fast = loops("elementwise", x.dtype) if xp is np else None
    if fast is not None:
        run_loop(fast.dropout, out, x, kept, x.dtype.type(scale))
        return out
    xp.multiply(x, kept, out=out)
    return xp.multiply(out, scale, out=out)


def run_loop(loop: Any, out: Any, *args: Any) -> None:
    """Run a compiled element-wise loop over all of `out`: arrays go flat, numbers as they are."""
    sizes = {arg.size for arg in args if isinstance(arg, np.ndarray)}
    if sizes != {out.size}:  # a loop does not look where an array ends
        raise ShapeError(f"arrays of {sorted(sizes | {out.size})} elements do not go together")
    flat = [arg.reshape(-1) if isinstance(arg, np.ndarray) else arg for arg in (*args, out)]
    run(loop, out.size, *flat, grain=GRAIN)
