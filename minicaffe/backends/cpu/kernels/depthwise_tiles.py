"""The kernels of depthwise convolution: tiles of outputs, and sums, that stay in registers. Needs Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils, types

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.vector_ir import LONG, Emitter, made

ROWS = 4  # of a tile
WIDEST = 16  # neighbours of a tile's row


def tile_of(rows: int, count: int, side: int) -> Any:
    """The kernel for tiles of y, of x padded, rows `pitch` apart; if `side`, for weights of side x side alone.

    Those are not dilated, and what is loaded for one row of the tile serves the others.
    """

    @made
    def tile(typing, here, to, x, pitch, weight, element, turn, kernel, steps, start, y, apart):
        """y[to..] = start + the sums; weights lie `turn` apart, and what they meet in x `steps`."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            here, to, x_, pitch, weight_, element, turn, kernel_, steps_, start, y_, apart = args
            on, add, mul = Emitter(context, builder, y, count), builder.add, builder.mul
            first = on.at(on.data(weight, weight_), element)

            def line(r: int) -> Any:
                return on.at(on.data(x, x_), add(here, mul(pitch, LONG(r))))

            sums = [on.repeated(start)] * rows
            if side:
                weights = [on.spread(on.at(first, mul(turn, LONG(k)))) for k in range(side * side)]
                for r, j in np.ndindex(rows + side - 1, side):
                    pixels = on.load(on.at(line(r), LONG(j)))
                    for i in range(max(0, r - rows + 1), min(side, r + 1)):
                        sums[r - i] = on.fused(weights[i * side + j], pixels, sums[r - i])
            else:
                kept = [cgutils.alloca_once_value(builder, one) for one in sums]
                kh, kw, down, right = (
                    number
                    for two in (kernel_, steps_)
                    for number in cgutils.unpack_tuple(builder, two)
                )
                with cgutils.for_range(builder, kh) as i, cgutils.for_range(builder, kw) as j:
                    value = on.spread(on.at(first, mul(turn, add(mul(i.index, kw), j.index))))
                    shift = add(mul(i.index, down), mul(j.index, right))
                    for r, one in enumerate(kept):
                        on.multiply_add(value, on.load(on.at(line(r), shift)), one)
                sums = [builder.load(one) for one in kept]
            for r, one in enumerate(sums):
                on.store(one, on.at(on.data(y, y_), add(to, mul(apart, LONG(r)))))
            return context.get_dummy_value()

        long, two = types.int64, types.UniTuple(types.int64, 2)
        given = long, long, x, long, weight, long, long, two, two, start, y, long
        return types.void(*given), generate

    return tile


def plane_of(many: Any, one: Any, count: int) -> Any:
    """Tiles of a plane whose rows have no fewer than `count` outputs: `many` of ROWS rows, `one` of 1."""

    @helper
    def plane(here, pitch, to, out, tile_args):
        oh, ow = out
        for left in range(0, ow, count):
            q = min(left, ow - count)
            if oh < ROWS:
                for r in range(oh):
                    one(here + r * pitch + q, to + r * ow + q, *tile_args)
            else:
                for top in range(0, oh, ROWS):
                    r = min(top, oh - ROWS)
                    many(here + r * pitch + q, to + r * ow + q, *tile_args)

    return plane


def halved_of(rows: int, count: int) -> Any:
    """The kernel for tiles of y, of weights of 3 x 3 with strides of 2, of x in planes by its columns' halves.

    What is loaded for one row of the tile serves the next.
    """

    @made
    def tile(typing, here, to, x, pitch, further, weight, element, start, y, apart):
        """y[to..] = start + the sums; rows of x are `pitch` apart, and its planes `further`."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            here, to, x_, pitch, further, weight_, element, start, y_, apart = args
            on, mul, add = Emitter(context, builder, y, count), builder.mul, builder.add
            first, pixel = on.at(on.data(weight, weight_), element), on.at(on.data(x, x_), here)
            weights = [on.spread(on.at(first, LONG(k))) for k in range(9)]
            planes = [pixel, on.at(pixel, further)]
            sums = [on.repeated(start)] * rows
            for line, j in np.ndindex(2 * rows + 1, 3):
                place = add(mul(pitch, LONG(line)), LONG(j // 2))
                pixels = on.load(on.at(planes[j % 2], place))
                for i in range(line % 2, 3, 2):
                    if 0 <= line - i < 2 * rows:
                        r = (line - i) // 2
                        sums[r] = on.fused(weights[3 * i + j], pixels, sums[r])
            for r, one in enumerate(sums):
                on.store(one, on.at(on.data(y, y_), add(to, mul(apart, LONG(r)))))
            return context.get_dummy_value()

        long = types.int64
        return types.void(long, long, x, long, long, weight, long, start, y, long), generate

    return tile


@helper
def zero(work, size):
    """The first numbers of the work become 0."""
    for q in range(size):
        work[at(q)] = 0


def tapped_of(rows: int, count: int) -> Any:
    """The kernel for tiles of y, of x whose rows `pitch` apart they read, by a table of taps."""

    @made
    def tile(typing, here, to, x, pitch, weight, element, taps, first, last, start, y, apart):
        """y[to..] = start + the sums; taps[t] = (which weight from `element` on, how much further in x)."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            here, to, x_, pitch, weight_, element, taps_, first, last, start, y_, apart = args
            on, add, mul = Emitter(context, builder, y, count), builder.add, builder.mul
            pixels, table = on.at(on.data(x, x_), here), on.data(taps, taps_)
            sums = [cgutils.alloca_once_value(builder, on.repeated(start)) for _ in range(rows)]
            with cgutils.for_range(builder, last, first) as loop:
                weights = on.at(on.data(weight, weight_), element, on.entry(table, loop.index, 0))
                value, shift = on.spread(weights), on.entry(table, loop.index, 1)
                for r, one in enumerate(sums):
                    line = on.at(pixels, shift, mul(pitch, LONG(r)))
                    on.multiply_add(value, on.load(line), one)
            for r, one in enumerate(sums):
                end = on.at(on.data(y, y_), add(to, mul(apart, LONG(r))))
                on.store(builder.load(one), end)
            return context.get_dummy_value()

        long = types.int64
        kinds = long, long, x, long, weight, long, taps, long, long, start, y, long
        return types.void(*kinds), generate

    return tile


def sums_of(side: int) -> Any:
    """The kernel that adds to side x side weights at a time, of rows of `across` vectors of dy."""

    @made
    def sums(typing, dy, size, x, here, pitch, steps, dweight, element, apart):
        """dweight[element..] += the sums, of x from `here` on; rows of weights are `apart`."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            dy_, size_, x_, here, pitch, steps_, dweight_, element, apart = args
            on, add, mul = Emitter(context, builder, dy), builder.add, builder.mul
            (rows, across), (down, right) = (
                cgutils.unpack_tuple(builder, two) for two in (size_, steps_)
            )
            elements = [*np.ndindex(side, side)]
            totals = [cgutils.alloca_once_value(builder, on.zero()) for _ in elements]
            pixels = on.at(on.data(x, x_), here)
            met = [on.at(pixels, mul(down, LONG(i)), mul(right, LONG(j))) for i, j in elements]
            with cgutils.for_range(builder, rows) as r, cgutils.for_range(builder, across) as q:
                there = mul(LONG(on.count), add(mul(r.index, across), q.index))
                gradient = on.load(on.at(on.data(dy, dy_), there))
                shift = add(mul(r.index, pitch), mul(q.index, LONG(on.count)))
                for pixel, total in zip(met, totals, strict=True):
                    on.multiply_add(gradient, on.load(on.at(pixel, shift)), total)
            for (i, j), total in zip(elements, totals, strict=True):
                to = on.at(on.data(dweight, dweight_), element, mul(apart, LONG(i)), LONG(j))
                builder.store(on.total(builder.load(total), builder.load(to)), to)
            return context.get_dummy_value()

        long, two = types.int64, types.UniTuple(types.int64, 2)
        return types.void(dy, two, x, long, long, two, dweight, long, long), generate

    return sums


def halves_of(count: int) -> Any:
    """The kernel that puts 2 count neighbours apart: of even places to b[b0..], of odd ones to b[b1..]."""

    @made
    def halves(typing, a, a0, b, b0, b1):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a_, a0, b_, b0, b1 = args
            on = Emitter(context, builder, a, count)
            pointer = on.at(on.data(a, a_), a0)
            low, high = on.load(pointer), on.load(on.at(pointer, LONG(count)))
            for start, to in enumerate((b0, b1)):
                one = on.pick(low, range(start, 2 * count, 2), high)
                on.store(one, on.at(on.data(b, b_), to))
            return context.get_dummy_value()

        long = types.int64
        return types.void(a, long, b, long, long), generate

    return halves


def move_of(count: int) -> Any:
    """The kernel b[b0..] = a[a0..], of so many neighbours."""

    @made
    def move(typing, a, a0, b, b0):
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a_, a0, b_, b0 = args
            on = Emitter(context, builder, a, count)
            on.store(on.load(on.at(on.data(a, a_), a0)), on.at(on.data(b, b_), b0))
            return context.get_dummy_value()

        return types.void(a, types.int64, b, types.int64), generate

    return move
