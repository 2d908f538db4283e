"""Sums of all entries, each of some of them taken in float64; and whether an update by a gradient is taken."""

import math

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


LARGEST = np.finfo(np.float64).max  # stands for a sum of squares of finite numbers that is none


@compiled
def squares(x, part, first, last):
    """part[0] = sum of x^2, which is finite if x is."""
    total = some(x, SQUARES, first, last)
    if not math.isfinite(total):
        finite = True
        for i in range(first, last):
            finite &= math.isfinite(x[at(i)])
        if finite:
            total = LARGEST
    part[0] = total


@compiled
def checked_total(parts, each, slices, add, bad, out, first, last):
    """out = the sum of what `squares` has left where each piece begins; bad = 1 if one is no number."""
    total = out[0] if add else 0.0
    for t in range(slices):
        if not math.isfinite(parts[each * t]):
            bad[0] = 1
        total += parts[each * t]
    out[0] = total


@compiled
def judge(loss, square, limit, pass_over, flags, going, factor, refused, first, last):
    """What ops.nan_guard.judge says; the flags in its order: bad, skip, stop, done, passed."""
    bad, norm, none = flags[0], math.sqrt(square[0]), False
    for i in range(len(refused)):
        none |= refused[at(i)] != 0
    if not none and (not math.isfinite(loss[0]) or (bad and not pass_over)):
        flags[2] = 1
    stop = flags[2]
    flags[1] = 1 if stop or bad or none else 0
    if not stop and not none:
        flags[3] += 1
        flags[4] += 1 if bad else 0
    flags[0], going[0] = 0, not stop
    factor[0] = limit / norm if 0 <= limit < norm else 1
