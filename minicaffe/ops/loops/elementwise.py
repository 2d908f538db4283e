"""Element-wise functions and sums: one pass over memory, from entry first to last."""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled, compiled_sums


@compiled
def relu(x: Any, slope: Any, y: Any, first: int, last: int) -> None:
    """y = x where x > 0, slope x elsewhere; a NaN stays one."""
    for i in range(first, last):
        value = x[at(i)]
        low = value * slope if slope != 0 else slope
        y[at(i)] = low if value <= 0 else value


@compiled
def relu_gradient(dy: Any, x: Any, slope: Any, dx: Any, first: int, last: int) -> None:
    """dx = dy where x > 0, slope dy elsewhere."""
    for i in range(first, last):
        dx[at(i)] = dy[at(i)] if x[at(i)] > 0 else dy[at(i)] * slope


@compiled
def dropout(x: Any, kept: Any, scale: Any, y: Any, first: int, last: int) -> None:
    """y = x kept scale."""
    for i in range(first, last):
        y[at(i)] = x[at(i)] * kept[at(i)] * scale


@compiled
def gather(
    images: Any,
    entry: Any,
    top: Any,
    left: Any,
    mirror: Any,
    mean: Any,
    scale: Any,
    sizes: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """Samples first..last of a batch: entry, crop, mirror, mean, scale."""
    c, h, w, oh, ow = sizes
    for b in range(first, last):
        for k in range(c):
            for r in range(oh):
                here = (k * h + r + top[b]) * w + left[b]
                there, image = ((b * c + k) * oh + r) * ow, entry[b] * c * h * w + here
                for q in range(ow):
                    column = ow - 1 - q if mirror[b] else q
                    y[at(there + q)] = images[at(image + column)]  # in y's type from here on
                    y[at(there + q)] = (y[at(there + q)] - mean[at(here + column)]) * scale


@compiled_sums
def sums_of_rows(x: Any, f: int, p: int, y: Any, first: int, last: int) -> None:
    """y[i] = sum of row i, of p entries, of the matrices first..last, of f rows each."""
    for i in range(f):
        y[at(i)] = 0
    for s in range(first, last):
        for i in range(f):
            total = y[at(i)]
            for q in range((s * f + i) * p, (s * f + i + 1) * p):
                total += x[at(q)]
            y[at(i)] = total
