"""What is done entry by entry beside the ops, on either device: fill, copy, add, subtract, multiply, scale.

Arrays may be views, of other types, stretched as NumPy does; those of `total` and its kin have one shape.
"""

import functools
from collections.abc import Sequence
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
    return copy(x, out) if factor == 1 and x is not out else apply("multiply", x, factor, out)


@op(entries="out a b", by_calls=True)
def apply(name: str, a: Any, b: Any, out: Any) -> Any:
    """out = f(a, b), f being NumPy's function `name`; or out = b, for `copy`. b may be a number."""
    if name == "copy":
        np.copyto(out, b, casting="same_kind")
    else:
        getattr(np, name)(a, b, out=out)


# Of two arrays into a third: out = a + b, a - b, a b, a / b
plus = functools.partial(apply, "add")
minus = functools.partial(apply, "subtract")
multiply = functools.partial(apply, "multiply")
divide = functools.partial(apply, "divide")


def total(xs: Sequence[Any], factors: Sequence[float], out: Any, scratch: Any) -> Any:
    """out = the sum of factors[i] xs[i]; `scratch` is of their shape.

    >>> total([np.ones(2), np.ones(2)], [2, 3], np.empty(2), np.empty(2))
    array([5., 5.])
    """
    if set(factors) == {1.0}:
        plus(xs[0], xs[1], out)
        for x in xs[2:]:
            add(x, out)
        return out
    scale(xs[0], factors[0], out)
    for x, factor in zip(xs[1:], factors[1:], strict=True):
        add(scale(x, factor, scratch), out)
    return out


def product(xs: Sequence[Any], out: Any, without: int | None = None) -> Any:
    """out *= all xs, `without` one.

    >>> product([np.array([2.0]), np.array([3.0])], np.ones(1), without=0)
    array([3.])
    """
    for i, x in enumerate(xs):
        if i != without:
            multiply(out, x, out)
    return out


def largest(xs: Sequence[Any], out: Any, which: Any, won: Any) -> Any:
    """out = the largest of xs, `which` (int32, or None) its number, the last of equals; `won` is bool scratch.

    >>> which = np.empty(2, np.int32)
    >>> largest([np.array([1.0, 5.0]), np.array([1.0, 2.0])], np.empty(2), which, np.empty(2, bool)), which
    (array([1., 5.]), array([1, 0], dtype=int32))
    """
    copy(xs[0], out)
    if which is not None:
        fill(which, 0)
    for i, x in enumerate(xs[1:], 1):
        larger(x, out, which, i, won)
    return out


@op("out which won", replays=False)
def larger(x: Any, out: Any, which: Any, i: int, won: Any) -> Any:
    """Take an entry of x where it is at least that of out, and note so."""
    np.greater_equal(x, out, out=won)
    np.copyto(out, x, where=won)
    if which is not None:
        np.copyto(which, np.int32(i), where=won)


@op("out won", replays=False)
def largest_gradient(dy: Any, which: Any, i: int, out: Any, won: Any) -> Any:
    """dx = dy where `which` is i, else 0.

    >>> which = np.array([1, 0], np.int32)
    >>> largest_gradient(np.ones(2), which, 0, np.empty(2), np.empty(2, bool))
    array([0., 1.])
    """
    np.equal(which, i, out=won)
    np.multiply(dy, won, out=out)
