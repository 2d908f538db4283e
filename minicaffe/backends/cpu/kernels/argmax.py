"""The largest numbers of columns x[n, :, s] and where they stand, a place (n, s) at a time."""

from __future__ import annotations

import numpy as np

from minicaffe.backends.cpu import at, compiled


@compiled
def largest(x, c, s, k, place, number, first, last):
    """The k largest of columns first..last, largest first, the last of equal ones before the others."""
    for column in range(first, last):
        start, out = column // s * c * s + column % s, column // s * k * s + column % s
        before, bound = c, np.inf
        for i in range(k):
            best, where = -np.inf, -1
            for j in range(c):
                value = x[at(start + j * s)]
                if value >= best and (i == 0 or value < bound or (value == bound and j < before)):
                    best, where = value, j
            place[at(out + i * s)] = where
            number[at(out + i * s)] = best if where >= 0 else np.nan
            before, bound = where, number[at(out + i * s)]
