"""Local response normalisation of images first..last of x (m, h, w) along h, a row at a time; beta = 3/4.

With that beta, and so without a power, a loop beats NumPy's calls; else it does not.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.ops.loops import at, compiled


@compiled
def lrn(
    x: Any, h: int, w: int, up: int, base: Any, alpha: Any, s: Any, y: Any, first: int, last: int
) -> None:
    """s = base + alpha (sum of x^2 over `up` rows up and down), y = x s^-beta."""
    for row in range(first * h, last * h):
        here, image = row * w, row // h * h
        for q in range(here, here + w):
            s[at(q)] = 0
        for near in range(max(image, row - up), min(image + h, row + up + 1)):
            for q in range(w):
                value = x[at(near * w + q)]
                s[at(here + q)] += value * value
        for q in range(here, here + w):
            s[at(q)] = base + alpha * s[at(q)]
            root = math.sqrt(s[at(q)])
            y[at(q)] = x[at(q)] / (root * math.sqrt(root))


@compiled
def lrn_gradient(
    x: Any,
    dy: Any,
    h: int,
    w: int,
    up: int,
    factor: Any,
    s: Any,
    ratio: Any,
    total: Any,
    dx: Any,
    first: int,
    last: int,
) -> None:
    """dx = dy s^-beta - factor x (sum of dy y / s over the rows around); `ratio` and `total` are scratch."""
    for i in range(first * h * w, last * h * w):
        root = math.sqrt(s[at(i)])
        dx[at(i)] = dy[at(i)] / (root * math.sqrt(root))
        ratio[at(i)] = dx[at(i)] * x[at(i)] / s[at(i)]
    for row in range(first * h, last * h):
        here, image = row * w, row // h * h
        for q in range(here, here + w):
            total[at(q)] = 0
        for near in range(max(image, row - up), min(image + h, row + up + 1)):
            for q in range(w):
                total[at(here + q)] += ratio[at(near * w + q)]
        for q in range(here, here + w):
            dx[at(q)] -= factor * x[at(q)] * total[at(q)]
