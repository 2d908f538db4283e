"""Element-wise functions, one body for both devices."""

from __future__ import annotations

from typing import Any


def relu(xp: Any, x: Any, slope: float, out: Any) -> Any:
    """y = x where x > 0, slope x elsewhere. `out` may be x itself if slope is 0.

    >>> import numpy as np
    >>> relu(np, np.array([-2.0, 3.0]), 0.5, np.empty(2))
    array([-1.,  3.])
    """
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
    xp.multiply(x, kept, out=out)
    return xp.multiply(out, scale, out=out)
