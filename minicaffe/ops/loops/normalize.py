"""Rows first..last of x (batch, outer, kept, inner), normalised and back; sums in float64."""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled, compiled_sums


@compiled_sums
def statistics(
    x: Any,
    outer: int,
    kept: int,
    inner: int,
    centred: bool,
    mean: Any,
    spread: Any,
    first: int,
    last: int,
) -> None:
    """mean = the mean of a row, spread = its variance; if not centred, 0 and the sum of squares."""
    for row in range(first, last):
        start, middle, squares = (row // kept * outer * kept + row % kept) * inner, 0.0, 0.0
        if centred:
            for o in range(outer):
                for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                    middle += x[at(i)]
            middle /= outer * inner
        for o in range(outer):
            for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                apart = x[at(i)] - middle
                squares += apart * apart
        mean[row] = middle
        spread[row] = squares / (outer * inner) if centred else squares


@compiled
def normalise(
    x: Any,
    outer: int,
    kept: int,
    inner: int,
    mean: Any,
    rate: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """y = (x - mean) rate."""
    for row in range(first, last):
        start, middle, factor = (
            (row // kept * outer * kept + row % kept) * inner,
            mean[row],
            rate[row],
        )
        for o in range(outer):
            for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                y[at(i)] = (x[at(i)] - middle) * factor


@compiled_sums
def normalise_gradient(
    x: Any,
    g: Any,
    outer: int,
    kept: int,
    inner: int,
    of_ones: float,
    of_y: Any,
    mean: Any,
    rate: Any,
    dx: Any,
    first: int,
    last: int,
) -> None:
    """dx = rate (g - of_ones (sum of g) - of_y[row] y (sum of g y)), y = (x - mean) rate; g may be dx."""
    for row in range(first, last):
        start, middle, factor = (
            (row // kept * outer * kept + row % kept) * inner,
            mean[row],
            rate[row],
        )
        total, products = 0.0, 0.0
        for o in range(outer):
            for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                total += g[at(i)]
                products += g[at(i)] * ((x[at(i)] - middle) * factor)
        ones = middle * 0 + total * of_ones
        slope = middle * 0 + products * of_y[row]
        for o in range(outer):
            for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                dx[at(i)] = factor * (g[at(i)] - ones - slope * ((x[at(i)] - middle) * factor))
