"""Max pooling of 2 x 2 windows side by side, of planes (h, w): a vector of neighbouring windows at a time.

Where fewer windows are left in a row than a vector holds, its last are computed again. Needs Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backends.cpu import compiled, helper
from minicaffe.backends.cpu.vector_ir import INT, emitted, ir

MANY, SOME = 8, 4  # windows of a vector


def _best(count: int) -> Any:
    """The kernel for `count` windows: the largest pixel of each and, with `keep`, which of 0..3 it is."""

    @emitted("x", count)
    def best(on, x, here, w, y, which, to, keep):
        builder, pixels = on.builder, []
        for start in (here, builder.add(here, w)):
            two = on.load(on.at(x, start)), on.load(on.at(x, start, INT(count)))
            pixels += [on.pick(two[0], range(i, 2 * count, 2), two[1]) for i in (0, 1)]
        least = best = ir.Constant(on.vector, [-np.inf] * count)
        for pixel in pixels:
            best = builder.select(builder.fcmp_ordered(">", pixel, best), pixel, best)
        on.store(best, on.at(y, to))
        with builder.if_then(keep):
            number = on.integers(3)
            for k in (2, 1, 0):
                same = builder.fcmp_ordered("==", pixels[k], best)
                number = builder.select(same, on.integers(k), number)
            there = builder.fcmp_ordered(">", best, least)
            number = builder.select(there, number, on.integers(-1))
            on.store(number, on.at(which, to))

    return best


def _spread(count: int) -> Any:
    """The kernel for `count` windows: the gradient of each goes to the pixel that won, 0 to the others."""

    @emitted("dy", count)
    def spread(on, dx, here, w, dy, which, to, keep):
        builder, value = on.builder, on.load(on.at(dy, to))
        winner = on.load(on.at(which, to), on.integers(0).type)
        pixels = [
            builder.select(builder.icmp_signed("==", winner, on.integers(k)), value, on.zero())
            for k in range(4)
        ]
        mixed = [j // 2 + j % 2 * count for j in range(2 * count)]
        for start, left, right in ((here, *pixels[:2]), (builder.add(here, w), *pixels[2:])):
            on.store(on.pick(left, mixed[:count], right), on.at(dx, start))
            on.store(on.pick(left, mixed[count:], right), on.at(dx, start, INT(count)))

    return spread


def _rows(kernel_of: Callable[[int], Any]) -> Any:
    """All rows of windows of planes first..last, by kernels as wide as a row allows."""
    many, some, one = map(kernel_of, (MANY, SOME, 1))

    @helper
    def rows(x, w, y, which, out, keep, first, last):
        oh, ow = out
        for row in range(first * oh, last * oh):
            here, to = 2 * row * w, row * ow
            if ow >= MANY:
                for i in range(0, ow, MANY):
                    q = min(i, ow - MANY)
                    many(x, here + 2 * q, w, y, which, to + q, keep)
            elif ow >= SOME:
                for i in range(0, ow, SOME):
                    q = min(i, ow - SOME)
                    some(x, here + 2 * q, w, y, which, to + q, keep)
            else:
                for q in range(ow):
                    one(x, here + 2 * q, w, y, which, to + q, keep)

    return rows


_best_of_rows, _spread_rows = _rows(_best), _rows(_spread)


@compiled
def max_halve(x, image, out, keep, y, which, first, last):
    """`pool.max_pool` of such windows: all is known but the pixels."""
    _best_of_rows(x, image[1], y, which, out, keep, first, last)


@compiled
def max_halve_gradient(dy, which, image, out, dx, first, last):
    """`pool.max_pool_gradient` of such windows, all of whose pixels are written."""
    _spread_rows(dx, image[1], dy, which, out, True, first, last)
