"""Max and average pooling of planes (h, w), a row of windows at a time; planes first..last of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.ops.loops import at, compiled
from minicaffe.ops.loops.im2col import span


@compiled
def max_pool(
    x: Any, image: Any, window: Any, out: Any, y: Any, which: Any, first: int, last: int
) -> None:
    """Each window's largest pixel, and the number of the kernel element that saw it."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    for row in range(first * oh, last * oh):
        top = row % oh * sh - ph
        for q in range(ow):
            past = top >= h or q * sw - pw >= w
            y[at(row * ow + q)] = 0 if past else -np.inf
            which[at(row * ow + q)] = -1
        for i in range(max(0, -top), min(kh, h - top)):
            for j in range(max(0, pw - (ow - 1) * sw), min(kw, w + pw)):
                x0, x1 = span(w, ow, j - pw, sw)
                here = (row // oh * h + top + i) * w + j - pw
                if sw == 2:  # said apart: a step known beforehand becomes vector loads
                    for q in range(x0, x1):
                        value, best = x[at(here + q * 2)], y[at(row * ow + q)]
                        y[at(row * ow + q)] = value if value > best else best
                        which[at(row * ow + q)] = (
                            i * kw + j if value > best else which[at(row * ow + q)]
                        )
                else:
                    for q in range(x0, x1):
                        value, best = x[at(here + q * sw)], y[at(row * ow + q)]
                        y[at(row * ow + q)] = value if value > best else best
                        which[at(row * ow + q)] = (
                            i * kw + j if value > best else which[at(row * ow + q)]
                        )


@compiled
def max_pool_gradient(
    dy: Any, which: Any, image: Any, window: Any, out: Any, dx: Any, first: int, last: int
) -> None:
    """Each window's gradient to the pixel that won it."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    offset = np.empty(kh * kw, np.int64)  # of each kernel element from a window's corner
    for k in range(kh * kw):
        offset[k] = k // kw * w + k % kw
    for i in range(first * h * w, last * h * w):
        dx[at(i)] = 0
    for row in range(first * oh, last * oh):
        corner = (row // oh * h + row % oh * sh - ph) * w - pw
        for q in range(ow):
            winner = which[at(row * ow + q)]
            if winner >= 0:
                dx[at(corner + q * sw + offset[at(winner)])] += dy[at(row * ow + q)]


@compiled
def ave_pool(
    x: Any,
    image: Any,
    window: Any,
    out: Any,
    rows: Any,
    columns: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """Each window's sum, divided by its rows and columns."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    for row in range(first * oh, last * oh):
        top = row % oh * sh - ph
        for q in range(ow):
            y[at(row * ow + q)] = 0
        for i in range(max(0, -top), min(kh, h - top)):
            for j in range(max(0, pw - (ow - 1) * sw), min(kw, w + pw)):
                x0, x1 = span(w, ow, j - pw, sw)
                here = (row // oh * h + top + i) * w + j - pw
                for q in range(x0, x1):
                    y[at(row * ow + q)] += x[at(here + q * sw)]
        for q in range(ow):
            y[at(row * ow + q)] = y[at(row * ow + q)] / rows[row % oh] / columns[q]


@compiled
def ave_pool_gradient(
    dy: Any,
    image: Any,
    window: Any,
    out: Any,
    rows: Any,
    columns: Any,
    dx: Any,
    first: int,
    last: int,
) -> None:
    """Each window's gradient, divided by its rows and columns, to all its pixels."""
    (h, w), (oh, ow) = image, out
    (kh, kw), (sh, sw), (ph, pw) = window
    for i in range(first * h * w, last * h * w):
        dx[at(i)] = 0
    for row in range(first * oh, last * oh):
        top = row % oh * sh - ph
        for i in range(max(0, -top), min(kh, h - top)):
            for j in range(max(0, pw - (ow - 1) * sw), min(kw, w + pw)):
                x0, x1 = span(w, ow, j - pw, sw)
                here = (row // oh * h + top + i) * w + j - pw
                for q in range(x0, x1):
                    dx[at(here + q * sw)] += dy[at(row * ow + q)] / rows[row % oh] / columns[q]


@compiled
def max_halve(x: Any, image: Any, out: Any, y: Any, which: Any, first: int, last: int) -> None:
    """`max_pool` of 2 x 2 windows side by side, eight times as fast: all is known but the pixels."""
    (_, w), (oh, ow) = image, out
    for row in range(first * oh, last * oh):
        for q in range(ow):
            here = 2 * row * w + 2 * q
            best, winner = -np.inf, -1
            for k in range(4):
                value = x[at(here + k // 2 * w + k % 2)]
                winner = k if value > best else winner
                best = value if value > best else best
            y[at(row * ow + q)] = best
            which[at(row * ow + q)] = winner
