"""What is done entry by entry beside the ops, on either device: fill, copy, add, subtract, multiply, scale.

Arrays may be views, of other types, and are stretched as NumPy does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op


def fill(x: Any, value: float) -> Any:
    """x = value, everywhere.

    >>> fill(np.empty((2, 2)), 3)[0]
    array([3., 3.])
    """
    return apply("copy", x, value, x)


def copy(x: Any, out: Any) -> Any:
    """out = x.

    >>> copy(np.array([1.0, 2.0])[:, None], np.empty((2, 3)))
    array([[1., 1., 1.],
           [2., 2., 2.]])
    """
    return apply("copy", out, x, out)


def add(x: Any, out: Any) -> Any:
    """out += x.

    >>> add(np.array([1.0, 2.0]), np.ones(2))
    array([2., 3.])
    """
    return apply("add", out, x, out)


def plus(a: Any, b: Any, out: Any) -> Any:
    """out = a + b.

    >>> plus(np.array([1.0, 2.0]), np.array(3.0), np.empty(2))
    array([4., 5.])
    """
    return apply("add", a, b, out)


def minus(a: Any, b: Any, out: Any) -> Any:
    """out = a - b.

    >>> minus(np.array([1.0, 2.0]), np.array(3.0), np.empty(2))
    array([-2., -1.])
    """
    return apply("subtract", a, b, out)


def multiply(x: Any, factor: Any, out: Any) -> Any:
    """out = x factor, both of them arrays.

    >>> multiply(np.array([1.0, 2.0]), np.array(3.0), np.empty(2))
    array([3., 6.])
    """
    return apply("multiply", x, factor, out)


def divide(x: Any, by: Any, out: Any) -> Any:
    """out = x / by, both of them arrays.

    >>> divide(np.array([1.0, 2.0]), np.array(2.0), np.empty(2))
    array([0.5, 1. ])
    """
    return apply("divide", x, by, out)


def at_least(x: Any, value: float) -> Any:
    """x = max(x, value); NaN stays.

    >>> at_least(np.array([0.5, 2.0]), 1)
    array([1., 2.])
    """
    return apply("maximum", x, value, x)


def scale(x: Any, factor: float, out: Any) -> Any:
    """out = factor x, with a number that is the same in every step.

    >>> scale(np.array([1.0, 2.0]), 2, np.empty(2))
    array([2., 4.])
    """
    if factor == 1 and x is not out:
        return copy(x, out)
    return apply("multiply", x, factor, out)


@op(entries="out a b", by_calls=True)
def apply(name: str, a: Any, b: Any, out: Any) -> Any:
    """out = f(a, b), f being NumPy's function `name`; or out = b, for `copy`. b may be a number."""
    if name == "copy":
        np.copyto(out, b, casting="same_kind")
    else:
        getattr(np, name)(a, b, out=out)
