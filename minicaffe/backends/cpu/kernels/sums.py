"""Sums of all entries, each of some of them taken in float64."""

from __future__ import annotations

import numpy as np

from minicaffe.backends.cpu import at, compiled, compiled_sums

SQUARES, MAGNITUDES = 1, 2  # core/ops/sums.py's OF; 0 are the values


@compiled_sums
def some(x, of, first, last):
    """The sum of entries first..last, of their squares, or of their magnitudes."""
    total = 0.0
    if of == SQUARES:
        for i in range(first, last):
            value = np.float64(x[at(i)])
            total += value * value
    elif of == MAGNITUDES:
        for i in range(first, last):
            total += np.float64(abs(x[at(i)]))
    else:
        for i in range(first, last):
            total += np.float64(x[at(i)])
    return total


@compiled
def part(x, of, sums, first, last):
    """sums[0] = the sum of a slice."""
    sums[0] = some(x, of, first, last)


@compiled
def together(sums, each, slices, scale, add, out, first, last):
    """out = scale times the sum of what `part` has left, each at the beginning of a piece."""
    total = 0.0
    for t in range(slices):
        total += sums[at(each * t)]
    out[0] = scale * total + (out[0] if add else 0.0)


@compiled
def total(x, of, scale, add, out, first, last):
    """out = scale times the sum of all of x; one unit of work."""
    out[0] = scale * some(x, of, 0, x.size) + (out[0] if add else 0.0)


@compiled
def rows(x, k, of, scale, out, first, last):
    """out[i] = scale times the sum of row i, of k entries."""
    for i in range(first, last):
        out[at(i)] = scale * some(x, of, i * k, (i + 1) * k)
