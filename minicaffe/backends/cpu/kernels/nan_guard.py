"""How large a gradient is, and whether the update by it is taken."""

from __future__ import annotations

import math

import numpy as np

from minicaffe.backends.cpu import at, compiled
from minicaffe.backends.cpu.kernels.sums import SQUARES, some

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
def together(parts, each, slices, add, bad, out, first, last):
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
