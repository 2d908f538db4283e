"""Functions with a number for each channel: over rows of p places, row r being of channel r % f."""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled, compiled_sums


@compiled
def scale(x: Any, a: Any, b: Any, y: Any, f: int, p: int, first: int, last: int) -> None:
    """y = a[k] x + b[k]."""
    for r in range(first, last):
        factor = a[at(r % f)]
        for i in range(r * p, (r + 1) * p):
            y[at(i)] = x[at(i)] * factor
        if b is not None:
            term = b[at(r % f)]
            for i in range(r * p, (r + 1) * p):
                y[at(i)] += term


@compiled
def prelu(dy: Any, x: Any, a: Any, dx: Any, f: int, p: int, first: int, last: int) -> None:
    """dx = dy where x > 0, a[k] dy elsewhere."""
    for r in range(first, last):
        factor = a[at(r % f)]
        for i in range(r * p, (r + 1) * p):
            dx[at(i)] = dy[at(i)] if x[at(i)] > 0 else dy[at(i)] * factor


@compiled_sums
def add_products(
    dy: Any, x: Any, below: bool, f: int, p: int, n: int, out: Any, first: int, last: int
) -> None:
    """out[k] += the sum of dy x, or of dy min(x, 0), for channels first..last."""
    for k in range(first, last):
        total = out[at(k)]
        for s in range(n):
            for i in range((s * f + k) * p, (s * f + k + 1) * p):
                value = x[at(i)]
                total += dy[at(i)] * (value * 0 if below and value > 0 else value)
        out[at(k)] = total
