"""Sums of all entries, each of some of them taken in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.ops.loops import at, compiled, compiled_sums


@compiled_sums
def some(x: Any, squares: bool, first: int, last: int) -> float:
    """The sum of entries first..last, or of their squares."""
    total = 0.0
    if squares:
        for i in range(first, last):
            value = np.float64(x[at(i)])
            total += value * value
    else:
        for i in range(first, last):
            total += np.float64(x[at(i)])
    return total


@compiled
def part(x: Any, squares: bool, sums: Any, first: int, last: int) -> None:
    """sums[0] = the sum of a slice."""
    sums[0] = some(x, squares, first, last)


@compiled
def together(
    sums: Any, each: int, slices: int, scale: float, add: bool, out: Any, first: int, last: int
) -> None:
    """out = scale times the sum of what `part` has left, each at the beginning of a piece."""
    total = 0.0
    for t in range(slices):
        total += sums[at(each * t)]
    out[0] = scale * total + (out[0] if add else 0.0)


@compiled
def total(x: Any, squares: bool, scale: float, add: bool, out: Any, first: int, last: int) -> None:
    """out = scale times the sum of all of x; one unit of work."""
    out[0] = scale * some(x, squares, 0, x.size) + (out[0] if add else 0.0)
