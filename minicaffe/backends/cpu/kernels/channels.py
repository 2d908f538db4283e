"""Functions with a number for each channel: over rows of p places, row r being of channel r % f."""

from __future__ import annotations

import numpy as np

from minicaffe.backends.cpu import at, compiled, compiled_sums

LANES = 64  # channels whose sums are taken side by side where their entries are neighbours


@compiled
def scale(x, a, b, whole, y, f, p, first, last):
    """y = a[k] x + b[k], of rows first..last; b as large as x with `whole`; a or b of no entries is none."""
    in_place = x.ctypes.data == y.ctypes.data
    for r in range(first, last):
        factor = a[at(r % f)] if len(a) else y.dtype.type(1)
        if whole:
            for i in range(r * p, (r + 1) * p):
                y[at(i)] = x[at(i)] * factor + b[at(i)]
            continue
        term = b[at(r % f)] if len(b) else y.dtype.type(0)
        if in_place:  # as one array: of two that overlap no vectors are made
            for i in range(r * p, (r + 1) * p):
                y[at(i)] = y[at(i)] * factor + term
        else:
            for i in range(r * p, (r + 1) * p):
                y[at(i)] = x[at(i)] * factor + term


@compiled
def prelu(dy, x, a, dx, f, p, first, last):
    """dx = dy where x > 0, a[k] dy elsewhere."""
    for r in range(first, last):
        factor = a[at(r % f)]
        if dy.ctypes.data == dx.ctypes.data:
            for i in range(r * p, (r + 1) * p):
                dx[at(i)] = dx[at(i)] if x[at(i)] > 0 else dx[at(i)] * factor
        else:
            for i in range(r * p, (r + 1) * p):
                dx[at(i)] = dy[at(i)] if x[at(i)] > 0 else dy[at(i)] * factor


@compiled_sums
def add_sums(dy, x, way, f, p, n, out, first, last):
    """out[k] += the sum of dy (way 0), of dy x (1) or of dy min(x, 0) (2), for channels first..last."""
    if p == 1:
        sums = np.empty(LANES, np.float64)
        for start in range(first, last, LANES):
            count = min(LANES, last - start)
            for k in range(count):
                sums[at(k)] = 0
            for s in range(n):
                here = s * f + start
                if way == 0:
                    for k in range(count):
                        sums[at(k)] += dy[at(here + k)]
                else:
                    for k in range(count):
                        value = x[at(here + k)]
                        value = value * 0 if way == 2 and value > 0 else value
                        sums[at(k)] += dy[at(here + k)] * value
            for k in range(count):
                out[at(start + k)] += sums[at(k)]
        return
    for k in range(first, last):
        total = 0.0
        for s in range(n):
            here, part = (s * f + k) * p, out.dtype.type(0)
            if way == 0:
                for i in range(here, here + p):
                    part += dy[at(i)]
            elif way == 1:
                for i in range(here, here + p):
                    part += dy[at(i)] * x[at(i)]
            else:
                for i in range(here, here + p):
                    value = x[at(i)]
                    part += dy[at(i)] * (value * 0 if value > 0 else value)
            total += part
        out[at(k)] += total
