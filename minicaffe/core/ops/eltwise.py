"""Sums, products and the largest of several arrays of one shape, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops import arrays


def total(xs: Sequence[Any], factors: Sequence[float], out: Any, scratch: Any) -> Any:
    """out = the sum of factors[i] xs[i]; `scratch` is of their shape.

    >>> total([np.ones(2), np.ones(2)], [2, 3], np.empty(2), np.empty(2))
    array([5., 5.])
    """
    if set(factors) == {1.0}:
        arrays.plus(xs[0], xs[1], out)
        for x in xs[2:]:
            arrays.add(x, out)
        return out
    arrays.scale(xs[0], factors[0], out)
    for x, factor in zip(xs[1:], factors[1:], strict=True):
        arrays.add(arrays.scale(x, factor, scratch), out)
    return out


def product(xs: Sequence[Any], out: Any, without: int | None = None) -> Any:
    """out *= all xs, `without` one.

    >>> product([np.array([2.0]), np.array([3.0])], np.ones(1), without=0)
    array([3.])
    """
    for i, x in enumerate(xs):
        if i != without:
            arrays.multiply(out, x, out)
    return out


def largest(xs: Sequence[Any], out: Any, which: Any, won: Any) -> Any:
    """out = the largest of xs, `which` (int32, or None) its number; of equal ones it is the last.

    `won` is boolean scratch.

    >>> which = np.empty(2, np.int32)
    >>> largest([np.array([1.0, 5.0]), np.array([1.0, 2.0])], np.empty(2), which, np.empty(2, bool)), which
    (array([1., 5.]), array([1, 0], dtype=int32))
    """
    arrays.copy(xs[0], out)
    if which is not None:
        arrays.fill(which, 0)
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
