"""Bilinear interpolation of planes first..last, along rows into `half` and from there along columns; and back.

An axis is its tables (low, high, share), one entry an output.
"""

import math
from typing import Any

from minicaffe.backends.cpu import at, compiled
from minicaffe.backends.cpu.ops import call, row


@compiled
def interp(x, rows, columns, sizes, half, y, first, last):
    """y = (1 - share) x[low] + share x[high]."""
    (low, high, share), (left, right, part), (h, w, oh, ow) = rows, columns, sizes
    for line in range(first * oh, last * oh):
        plane, o = line // oh * h, line % oh
        upper, lower, beyond = (plane + low[o]) * w, (plane + high[o]) * w, share[o]
        for q in range(w):
            value = x[at(upper + q)]
            half[at(line * w + q)] = value + (x[at(lower + q)] - value) * beyond
        for q in range(ow):
            value = half[at(line * w + left[at(q)])]
            y[at(line * ow + q)] = value + (half[at(line * w + right[at(q)])] - value) * part[at(q)]


@compiled
def interp_gradient(dy, rows, columns, sizes, half, dx, first, last):
    """Each output gives (1 - share) of its gradient to low, share to high."""
    (low, high, share), (left, right, part), (h, w, oh, ow) = rows, columns, sizes
    for p in range(first * h * w, last * h * w):
        dx[at(p)] = 0
    for line in range(first * oh, last * oh):
        plane, o = line // oh * h, line % oh
        for q in range(line * w, (line + 1) * w):
            half[at(q)] = 0
        for q in range(ow):
            value = dy[at(line * ow + q)]
            half[at(line * w + left[at(q)])] += value * (1 - part[at(q)])
            half[at(line * w + right[at(q)])] += value * part[at(q)]
        upper, lower, beyond = (plane + low[o]) * w, (plane + high[o]) * w, share[o]
        for q in range(w):
            dx[at(upper + q)] += half[at(line * w + q)] * (1 - beyond)
        for q in range(w):
            dx[at(lower + q)] += half[at(line * w + q)] * beyond


def _run(loop: Any, source: Any, axes: Any, sizes: Any, work: Any, out: Any) -> None:
    """Run a loop over planes; `sizes` are those of the pixels, and of what is interpolated."""
    tables = [(axis.low, axis.high, axis.share) for axis in axes]
    planes = math.prod(source.shape[:2])
    call(loop, planes, source, *tables, sizes, work[: planes * sizes[2] * sizes[1]], out)


@row("interp.interp")
def _interp(_, x, rows, columns, out, work):
    _run(interp, x, (rows, columns), (*x.shape[2:], *out.shape[2:]), work, out)


@row("interp.interp_gradient")
def _interp_gradient(_, dy, rows, columns, out, work):
    _run(interp_gradient, dy, (rows, columns), (*out.shape[2:], *dy.shape[2:]), work, out)
