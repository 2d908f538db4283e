"""Element-wise functions, one body for both devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.errors import ShapeError
from minicaffe.ops.loops import loops
from minicaffe.ops.threads import in_slices

LONG = 2**15  # elements from which threads pay


def relu(xp: Any, x: Any, slope: float, out: Any) -> Any:
    """y = x where x > 0, slope x elsewhere. `out` may be x itself if slope is 0.

    >>> import numpy as np
    >>> relu(np, np.array([-2.0, 3.0]), 0.5, np.empty(2))
    array([-1.,  3.])
    """
    fast = loops("elementwise", x.dtype) if xp is np else None
    if fast is not None:
        run_loop(fast.relu, out, x, x.dtype.type(slope))
        return out
    if slope == 0:
        return xp.maximum(x, 0, out=out)
    xp.multiply(x, slope, out=out)
    return xp.maximum(x, out, out=out) if slope < 1 else xp.minimum(x, out, out=out)


def relu_gradient(xp: Any, dy: Any, x: Any, slope: float, out: Any, positive: Any) -> Any:
    """dx = dy where x > 0, slope dy elsewhere; `positive` is boolean scratch.

    >>> import numpy as np
    >>> relu_gradient(np, np.ones(2), np.array([-2.0, 3.0]), 0.5, np.empty(2), np.empty(2, bool))
    array([0.5, 1. ])
    """
    fast = loops("elementwise", x.dtype) if xp is np else None
    if fast is not None:
        run_loop(fast.relu_gradient, out, dy, x, x.dtype.type(slope))
        return out
    xp.greater(x, 0, out=positive)
    if slope == 0:
        return xp.multiply(dy, positive, out=out)
    xp.multiply(dy, slope, out=out)
    xp.copyto(out, dy, where=positive)
    return out


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
    if out.size < LONG:
        loop(*flat, 0, out.size)
    else:
        in_slices(lambda first, last, _: loop(*flat, first, last), out.size)
