"""Rows first..last of x (batch, outer, f, inner), normalised and back; sums in float64.

Each comes in two forms: along rows, and across them, where a row's entries lie apart (inner 1) and so LANES
rows are taken side by side. Of channels' statistics there are running sums, which are read as averages.
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
    outer, f, inner = seen
    for row in range(first, last):
        start, middle, squares = (row // f * outer * f + row % f) * inner, 0.0, 0.0
        if kind != LENGTH:
            for o in range(outer):
                for i in range(start + o * f * inner, start + o * f * inner + inner):
                    middle += x[at(i)]
            middle /= outer * inner
        for o in range(outer):
            for i in range(start + o * f * inner, start + o * f * inner + inner):
                apart = x[at(i)] - middle
                squares += apart * apart
        mean[row] = middle
        spread[row] = squares if kind == LENGTH else squares / (outer * inner)
        rate[row] = rate_of(spread[row], kind, eps)


@compiled_sums
def statistics_across(x, seen, kind, eps, mean, spread, rate, first, last):
    """The same of rows whose entries lie apart."""
    outer, f, _ = seen
    middle, squares = np.zeros(LANES, np.float64), np.empty(LANES, np.float64)
    row = first
    while row < last:
        start, count = row // f * outer * f + row % f, min(LANES, last - row)
        count = min(count, f - row % f)
        for k in range(count):
            middle[at(k)] = 0
            squares[at(k)] = 0
        if kind != LENGTH:
            for o in range(outer):
                for k in range(count):
                    middle[at(k)] += x[at(start + o * f + k)]
            for k in range(count):
                middle[at(k)] /= outer
        for o in range(outer):
            for k in range(count):
                apart = x[at(start + o * f + k)] - middle[at(k)]
                squares[at(k)] += apart * apart
        for k in range(count):
            mean[row + k] = middle[k]
            spread[row + k] = squares[k] if kind == LENGTH else squares[k] / outer
            rate[row + k] = rate_of(spread[row + k], kind, eps)
        row += count


@compiled
def normalise(x, seen, mean, rate, y, first, last):
    """y = (x - mean) rate."""
    outer, f, inner = seen
    in_place = x.ctypes.data == y.ctypes.data
    for row in range(first, last):
        start = (row // f * outer * f + row % f) * inner
        middle, factor = mean[row], rate[row]
        for o in range(outer):
            here = start + o * f * inner
            if in_place:  # as one array: of two that overlap no vectors are made
                for i in range(here, here + inner):
                    y[at(i)] = (y[at(i)] - middle) * factor
            else:
                for i in range(here, here + inner):
                    y[at(i)] = (x[at(i)] - middle) * factor


@compiled
def normalise_across(x, seen, mean, rate, y, first, last):
    """The same of rows whose entries lie apart."""
    outer, f, _ = seen
    row = first
    while row < last:
        start, count = row // f * outer * f + row % f, min(LANES, last - row)
        count = min(count, f - row % f)
        for o in range(outer):
            here = start + o * f
            for k in range(count):
                y[at(here + k)] = (x[at(here + k)] - mean[at(row + k)]) * rate[at(row + k)]
        row += count


@compiled_sums
def gradient(x, g, seen, kind, eps, mean, rate, dx, first, last):
    """dx = rate (g - mean of g - part y (sum of g y)), y = (x - mean) rate; of a length g's mean stays."""
    outer, f, inner = seen
    in_place = g.ctypes.data == dx.ctypes.data
    for row in range(first, last):
        start = (row // f * outer * f + row % f) * inner
        middle, factor, total, products = mean[row], rate[row], 0.0, 0.0
        for o in range(outer):
            for i in range(start + o * f * inner, start + o * f * inner + inner):
                total += g[at(i)]
                products += g[at(i)] * ((x[at(i)] - middle) * factor)
        ones = dx.dtype.type(0.0 if kind == LENGTH else total / (outer * inner))
        slope = dx.dtype.type(products * part_of_y(factor, kind, eps, outer * inner))
        for o in range(outer):
            here = start + o * f * inner
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
    outer, f, _ = seen
    ones, slope = np.empty(LANES, np.float64), np.empty(LANES, np.float64)
    row = first
    while row < last:
        start, count = row // f * outer * f + row % f, min(LANES, last - row)
        count = min(count, f - row % f)
        for k in range(count):
            ones[at(k)] = 0
            slope[at(k)] = 0
        for o in range(outer):
            here = start + o * f
            for k in range(count):
                y = (x[at(here + k)] - mean[at(row + k)]) * rate[at(row + k)]
                ones[at(k)] += g[at(here + k)]
                slope[at(k)] += g[at(here + k)] * y
        for k in range(count):
            ones[k] = 0 if kind == LENGTH else ones[k] / outer
            slope[k] *= part_of_y(rate[row + k], kind, eps, outer)
        for o in range(outer):
            here = start + o * f
            for k in range(count):
                factor = rate[at(row + k)]
                y = (x[at(here + k)] - mean[at(row + k)]) * factor
                dx[at(here + k)] = factor * (g[at(here + k)] - ones[at(k)] - slope[at(k)] * y)
        row += count


@compiled
def remember(batch_mean, spread, fraction, correction, mean, variance, batches, first, last):
    """sum = fraction sum + what a batch has, of means, of corrected variances, and of batches."""
    for k in range(first, last):
        mean[k] = mean[k] * fraction + batch_mean[k]
        variance[k] = variance[k] * fraction + spread[k] * correction
    if first == 0:
        batches[0] = batches[0] * fraction + 1


@helper
def recalled(k, mean, variance, batches, eps, mean_out, spread, rate):
    """`recall` of channel k."""
    share = 1 / batches[0] if batches[0] != 0 else batches[0]
    mean_out[k] = mean[k] * share
    spread[k] = variance[k] * share
    rate[k] = rate_of(spread[k], 0, eps)


@compiled
def recall(mean, variance, batches, eps, mean_out, spread, rate, first, last):
    """The averages of running sums, 0 where nothing is remembered."""
    for k in range(first, last):
        recalled(k, mean, variance, batches, eps, mean_out, spread, rate)


@compiled
def chain(mean, variance, batches, eps, mean_out, spread, rate, seen, affine, y, first, last):
    """`recall`, then y = (y - mean) rate, factor y + term if it `scales`, 0 where less if it is `rectified`.

    In place; of channels first..last, each of which has a factor and a term, if there are any. `affine` is
    (scales, factors, terms, rectified).
    """
    (outer, f, inner), (scales, factors, terms, rectified) = seen, affine
    kind = y.dtype.type
    one, zero = kind(1), kind(0)
    for row in range(first, last):
        recalled(row, mean, variance, batches, eps, mean_out, spread, rate)
        middle, many = mean_out[row], rate[row]
        factor = factors[row] if len(factors) else one
        term = terms[row] if len(terms) else zero
        for o in range(outer):
            here = (o * f + row) * inner
            if not scales:
                for i in range(here, here + inner):
                    y[at(i)] = (y[at(i)] - middle) * many
            elif not rectified:
                for i in range(here, here + inner):
                    y[at(i)] = kind((y[at(i)] - middle) * many) * factor + term
            else:
                for i in range(here, here + inner):
                    value = kind((y[at(i)] - middle) * many) * factor + term
                    y[at(i)] = zero if value <= zero else value
