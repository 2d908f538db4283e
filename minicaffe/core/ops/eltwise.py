"""Sums, products and the largest of several arrays of one shape, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.device import on_cuda
from minicaffe.backends.launch_listener import ask
from minicaffe.backends.replay import trace
from minicaffe.core.ops import arrays
from minicaffe.core.ops.activation import run_loop


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
    fast = None if on_cuda(out) else loops("elementwise", out.dtype)
    if fast is None and not on_cuda(out):
        trace.host("a maximum by NumPy")
    for i, x in enumerate(xs[1:], 1):
        if fast is not None and which is None:
            run_loop(fast.larger, out, x)
        elif fast is not None:
            run_loop(fast.larger_of, out, x, i, which)
        else:
            ask("largest", "", (), (x, out, which, i, won), lambda given: _larger(*given))
    return out


def _larger(x: Any, out: Any, which: Any, i: int, won: Any) -> None:
    """Take an entry of x where it is at least that of out, and note so."""
    np.greater_equal(x, out, out=won)
    np.copyto(out, x, where=won)
    if which is not None:
        np.copyto(which, np.int32(i), where=won)


def largest_gradient(dy: Any, which: Any, i: int, out: Any, won: Any) -> Any:
    """dx = dy where `which` is i, else 0.

    >>> which = np.array([1, 0], np.int32)
    >>> largest_gradient(np.ones(2), which, 0, np.empty(2), np.empty(2, bool))
    array([0., 1.])
    """
    fast = None if on_cuda(out) else loops("elementwise", out.dtype)
    if fast is not None:
        run_loop(fast.where_it_is, out, dy, which, i)
        return out
    if not on_cuda(out):
        trace.host("a maximum by NumPy")
    ask("equal", "", (), (which, i, won), lambda given: np.equal(given[0], given[1], out=given[2]))
    return arrays.multiply(dy, won, out)
