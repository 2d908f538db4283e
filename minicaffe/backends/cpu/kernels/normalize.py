"""Rows first..last of x (batch, outer, kept, inner), normalised and back; sums in float64.

Each comes in two forms: along rows, and across them, where a row's entries lie apart (inner 1) and so LANES
rows are taken side by side.
"""

from __future__ import annotations

import math

import numpy as np

from minicaffe.backends.cpu import at, compiled, compiled_sums, helper

DEVIATION, MEAN, LENGTH = 1, 2, 3  # core/ops/rows.py's KINDS; 0 is the variance
LEAST = 1e-7  # the share of a deviation in itself and eps, at the least
LANES = 64


@helper
def rate_of(spread, kind, eps):
    """What a row is multiplied by."""
    if kind == MEAN:
        return 1.0
    if kind == DEVIATION:
        return 1.0 / (math.sqrt(spread) + eps)
    return 1.0 / math.sqrt(spread + eps)


@helper
def part_of_y(rate, kind, eps, length):
    """What of (sum of g y) y a row's gradient loses, y being normalised x."""
    if kind == DEVIATION:  # its share of deviation + eps
        share = 1 - rate * eps
        return 1 / length / (share if share > LEAST else LEAST)
    return 0.0 if kind == MEAN else (1.0 if kind == LENGTH else 1 / length)


@compiled_sums
def statistics(x, seen, kind, eps, mean, spread, rate, first, last):
    """mean = the mean of a row, spread = its variance, or 0 and the sum of squares; and the rate."""
    outer, kept, inner = seen
    for row in range(first, last):
        start, middle, squares = (row // kept * outer * kept + row % kept) * inner, 0.0, 0.0
        if kind != LENGTH:
            for o in range(outer):
                for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                    middle += x[at(i)]
            middle /= outer * inner
        for o in range(outer):
            for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                apart = x[at(i)] - middle
                squares += apart * apart
        mean[row] = middle
        spread[row] = squares if kind == LENGTH else squares / (outer * inner)
        rate[row] = rate_of(spread[row], kind, eps)


@compiled_sums
def statistics_across(x, seen, kind, eps, mean, spread, rate, first, last):
    """The same of rows whose entries lie apart."""
    outer, kept, _ = seen
    middle, squares = np.zeros(LANES, np.float64), np.empty(LANES, np.float64)
    row = first
    while row < last:
        start, count = row // kept * outer * kept + row % kept, min(LANES, last - row)
        count = min(count, kept - row % kept)
        for k in range(count):
            middle[at(k)] = 0
            squares[at(k)] = 0
        if kind != LENGTH:
            for o in range(outer):
                for k in range(count):
                    middle[at(k)] += x[at(start + o * kept + k)]
            for k in range(count):
                middle[at(k)] /= outer
        for o in range(outer):
            for k in range(count):
                apart = x[at(start + o * kept + k)] - middle[at(k)]
                squares[at(k)] += apart * apart
        for k in range(count):
            mean[row + k] = middle[k]
            spread[row + k] = squares[k] if kind == LENGTH else squares[k] / outer
            rate[row + k] = rate_of(spread[row + k], kind, eps)
        row += count


@compiled
def normalise(x, seen, mean, rate, y, first, last):
    """y = (x - mean) rate."""
    outer, kept, inner = seen
    in_place = x.ctypes.data == y.ctypes.data
    for row in range(first, last):
        start = (row // kept * outer * kept + row % kept) * inner
        middle, factor = mean[row], rate[row]
        for o in range(outer):
            here = start + o * kept * inner
            if in_place:  # as one array: of two that overlap no vectors are made
                for i in range(here, here + inner):
                    y[at(i)] = (y[at(i)] - middle) * factor
            else:
                for i in range(here, here + inner):
                    y[at(i)] = (x[at(i)] - middle) * factor


@compiled
def normalise_across(x, seen, mean, rate, y, first, last):
    """The same of rows whose entries lie apart."""
    outer, kept, _ = seen
    row = first
    while row < last:
        start, count = row // kept * outer * kept + row % kept, min(LANES, last - row)
        count = min(count, kept - row % kept)
        for o in range(outer):
            here = start + o * kept
            for k in range(count):
                y[at(here + k)] = (x[at(here + k)] - mean[at(row + k)]) * rate[at(row + k)]
        row += count


@compiled_sums
def gradient(x, g, seen, kind, eps, mean, rate, dx, first, last):
    """dx = rate (g - mean of g - part y (sum of g y)), y = (x - mean) rate; of a length g's mean stays."""
    outer, kept, inner = seen
    in_place = g.ctypes.data == dx.ctypes.data
    for row in range(first, last):
        start = (row // kept * outer * kept + row % kept) * inner
        middle, factor, total, products = mean[row], rate[row], 0.0, 0.0
        for o in range(outer):
            for i in range(start + o * kept * inner, start + o * kept * inner + inner):
                total += g[at(i)]
                products += g[at(i)] * ((x[at(i)] - middle) * factor)
        ones = dx.dtype.type(0.0 if kind == LENGTH else total / (outer * inner))
        slope = dx.dtype.type(products * part_of_y(factor, kind, eps, outer * inner))
        for o in range(outer):
            here = start + o * kept * inner
            if in_place:
                for i in range(here, here + inner):
                    y = (x[at(i)] - middle) * factor
                    dx[at(i)] = factor * (dx[at(i)] - ones - slope * y)
            else:
                for i in range(here, here + inner):
                    y = (x[at(i)] - middle) * factor
                    dx[at(i)] = factor * (g[at(i)] - ones - slope * y)


@compiled_sums
def gradient_across(x, g, seen, kind, eps, mean, rate, dx, first, last):
    """The same of rows whose entries lie apart."""
    outer, kept, _ = seen
    ones, slope = np.empty(LANES, np.float64), np.empty(LANES, np.float64)
    row = first
    while row < last:
        start, count = row // kept * outer * kept + row % kept, min(LANES, last - row)
        count = min(count, kept - row % kept)
        for k in range(count):
            ones[at(k)] = 0
            slope[at(k)] = 0
        for o in range(outer):
            here = start + o * kept
            for k in range(count):
                y = (x[at(here + k)] - mean[at(row + k)]) * rate[at(row + k)]
                ones[at(k)] += g[at(here + k)]
                slope[at(k)] += g[at(here + k)] * y
        for k in range(count):
            ones[k] = 0 if kind == LENGTH else ones[k] / outer
            slope[k] *= part_of_y(rate[row + k], kind, eps, outer)
        for o in range(outer):
            here = start + o * kept
            for k in range(count):
                factor = rate[at(row + k)]
                y = (x[at(here + k)] - mean[at(row + k)]) * factor
                dx[at(here + k)] = factor * (g[at(here + k)] - ones[at(k)] - slope[at(k)] * y)
        row += count
