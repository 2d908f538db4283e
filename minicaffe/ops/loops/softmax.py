"""Softmax and its negative log-likelihood over scores (n, c, s), a place (n, s) at a time."""

from __future__ import annotations

import math
from typing import Any

from minicaffe.ops.loops import at, compiled


@compiled
def softmax(x: Any, c: int, s: int, y: Any, first: int, last: int) -> None:
    """y = exp(x - max) / sum, for samples first..last."""
    for place in range(first * s, last * s):
        start = place // s * c * s + place % s
        largest = x[at(start)]
        for k in range(1, c):
            value = x[at(start + k * s)]
            largest = value if value > largest or value != value else largest
        total = x[at(start)] * 0
        for k in range(c):
            y[at(start + k * s)] = math.exp(x[at(start + k * s)] - largest)
            total += y[at(start + k * s)]
        for k in range(c):
            y[at(start + k * s)] /= total


@compiled
def nll(
    prob: Any,
    labels: Any,
    c: int,
    s: int,
    has_ignore: int,
    ignore: int,
    tiny: Any,
    losses: Any,
    valid: Any,
) -> bool:
    """losses = -log max(prob[label], tiny), 0 where ignored; gives False at a label that is no class."""
    for place in range(len(labels)):
        label = labels[place]
        valid[place] = 0 if has_ignore and label == ignore else 1
        losses[place] = 0
        if valid[place] == 0:
            continue
        if not (label > -1 and label < c):
            return False
        p = prob[at(place // s * c * s + int(label) * s + place % s)]
        losses[place] = -math.log(p if p > tiny or p != p else tiny)
    return True


@compiled
def nll_gradient(prob: Any, labels: Any, c: int, s: int, valid: Any, scale: Any, dx: Any) -> None:
    """dx = scale (prob - onehot(label)) where valid, else 0."""
    for place in range(min(len(labels), len(dx) // c)):
        start, label = place // s * c * s + place % s, labels[place]
        for k in range(c):
            dx[at(start + k * s)] = prob[at(start + k * s)] * scale if valid[place] != 0 else 0
        if valid[place] != 0 and label > -1 and label < c:  # they may have changed since the loss
            own = at(start + int(label) * s)
            dx[own] = (prob[own] - 1) * scale
