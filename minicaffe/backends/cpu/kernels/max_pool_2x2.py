"""Max pooling of 2 x 2 windows side by side, of planes (h, w): a vector of neighbouring windows at a time.

Where fewer windows are left in a row than a vector holds, its last are computed again. Needs Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types

from minicaffe.backends.cpu import compiled
from minicaffe.backends.cpu.vector_ir import INT, Emitter, ir, made

MANY, SOME = 8, 4  # windows of a vector


def _best(count: int) -> Any:
    """The kernel for `count` windows: the largest pixel of each and, with `keep`, which of 0..3 it is."""

    @made
    def best(typing, x, here, w, y, which, to, keep):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x_, here, w, y_, which_, to, keep = args
            on = Emitter(context, builder, x, count)
            pixels = []
            for start in (here, builder.add(here, w)):
                pointer = on.at(on.data(x, x_), start)
                two = on.load(pointer), on.load(on.at(pointer, INT(count)))
                pixels += [on.pick(two[0], range(i, 2 * count, 2), two[1]) for i in (0, 1)]
            least = best = ir.Constant(on.vector, [-np.inf] * count)
            for pixel in pixels:
                best = builder.select(builder.fcmp_ordered(">", pixel, best), pixel, best)
            on.store(best, on.at(on.data(y, y_), to))
            with builder.if_then(keep):
                number = on.integers(3)
                for k in (2, 1, 0):
                    same = builder.fcmp_ordered("==", pixels[k], best)
                    number = builder.select(same, on.integers(k), number)
                there = builder.fcmp_ordered(">", best, least)
                number = builder.select(there, number, on.integers(-1))
                on.store(number, on.at(on.data(which, which_), to))
            return context.get_dummy_value()

        return types.void(x, types.int64, types.int64, y, which, types.int64, keep), generate

    return best


def _spread(count: int) -> Any:
    """The kernel for `count` windows: the gradient of each goes to the pixel that won, 0 to the others."""

    @made
    def spread(typing, dy, which, at, dx, here, w):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            dy_, which_, at, dx_, here, w = args
            on = Emitter(context, builder, dy, count)
            value = on.load(on.at(on.data(dy, dy_), at))
            winner = on.load(on.at(on.data(which, which_), at), on.integers(0).type)
            pixels = [
                builder.select(builder.icmp_signed("==", winner, on.integers(k)), value, on.zero())
                for k in range(4)
            ]
            mixed = [j // 2 + j % 2 * count for j in range(2 * count)]
            for start, left, right in ((here, *pixels[:2]), (builder.add(here, w), *pixels[2:])):
                pointer = on.at(on.data(dx, dx_), start)
                on.store(on.pick(left, mixed[:count], right), pointer)
                on.store(on.pick(left, mixed[count:], right), on.at(pointer, INT(count)))
            return context.get_dummy_value()

        return types.void(dy, which, types.int64, dx, types.int64, types.int64), generate

    return spread


_best_of_many, _best_of_some, _best_of_one = map(_best, (MANY, SOME, 1))
_spread_many, _spread_some, _spread_one = map(_spread, (MANY, SOME, 1))


@compiled
def max_halve(x, image, out, keep, y, which, first, last):
    """`pool.max_pool` of such windows: all is known but the pixels."""
    (_, w), (oh, ow) = image, out
    for row in range(first * oh, last * oh):
        here, to = 2 * row * w, row * ow
        if ow >= MANY:
            for i in range(0, ow, MANY):
                q = min(i, ow - MANY)
                _best_of_many(x, here + 2 * q, w, y, which, to + q, keep)
        elif ow >= SOME:
            for i in range(0, ow, SOME):
                q = min(i, ow - SOME)
                _best_of_some(x, here + 2 * q, w, y, which, to + q, keep)
        else:
            for q in range(ow):
                _best_of_one(x, here + 2 * q, w, y, which, to + q, keep)


@compiled
def max_halve_gradient(dy, which, image, out, dx, first, last):
    """`pool.max_pool_gradient` of such windows, all of whose pixels are written."""
    (_, w), (oh, ow) = image, out
    for row in range(first * oh, last * oh):
        here, at = 2 * row * w, row * ow
        if ow >= MANY:
            for i in range(0, ow, MANY):
                q = min(i, ow - MANY)
                _spread_many(dy, which, at + q, dx, here + 2 * q, w)
        elif ow >= SOME:
            for i in range(0, ow, SOME):
                q = min(i, ow - SOME)
                _spread_some(dy, which, at + q, dx, here + 2 * q, w)
        else:
            for q in range(ow):
                _spread_one(dy, which, at + q, dx, here + 2 * q, w)
