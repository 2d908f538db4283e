"""The kernels of depthwise convolution: tiles of outputs, and sums, that stay in registers. Needs Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import cgutils

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.vector_ir import LONG, emitted, lanes_of

ROWS = 4  # of a tile
WIDEST = 16  # neighbours of a tile's row


def plane_of(tile_of: Callable[[int, int], Any], count: int, *fewer: int) -> Any:
    """All tiles of a plane, of ROWS rows or of 1, of `count` neighbours, or of `fewer`, as rows allow."""
    many, one = tile_of(ROWS, count), tile_of(1, count)

    @helper
    def tiles(here, pitch, to, out, tile_args):
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

    if not fewer:
        return tiles
    narrower = plane_of(tile_of, *fewer)

    @helper
    def plane(here, pitch, to, out, tile_args):
        # the widest find no registers where vectors are short
        if out[1] >= count and (count < WIDEST or 2 * lanes_of(tile_args[0]) >= WIDEST):
            tiles(here, pitch, to, out, tile_args)
        else:
            narrower(here, pitch, to, out, tile_args)

    return plane


def weighed(rows: int, count: int) -> Any:
    """The kernel for tiles of y, of x padded, rows `pitch` apart."""

    @emitted("y", count)
    def tile(on, here, to, x, pitch, weight, element, turn, kernel, steps, start, y, apart):
        """y[to..] = start + the sums; weights lie `turn` apart, and what they meet in x `steps`."""
        builder, add, mul = on.builder, on.builder.add, on.builder.mul
        (kh, kw), (down, right), first = kernel, steps, on.at(weight, element)
        sums = [cgutils.alloca_once_value(builder, on.repeated(start)) for _ in range(rows)]
        with cgutils.for_range(builder, kh) as i, cgutils.for_range(builder, kw) as j:
            value = on.spread(on.at(first, mul(turn, add(mul(i.index, kw), j.index))))
            shift = add(mul(i.index, down), mul(j.index, right))
            for r, one in enumerate(sums):
                on.multiply_add(value, on.load(on.at(x, here, mul(pitch, LONG(r)), shift)), one)
        on.store_rows([builder.load(one) for one in sums], on.at(y, to), apart)

    return tile


def weighed_3x3(rows: int, count: int) -> Any:
    """The same for weights of 3 x 3 alone, not dilated: what is loaded for one row serves the others."""

    @emitted("y", count)
    def tile(on, here, to, x, pitch, weight, element, turn, kernel, steps, start, y, apart):
        mul, first, sums = on.builder.mul, on.at(weight, element), [on.repeated(start)] * rows
        weights = [on.spread(on.at(first, mul(turn, LONG(k)))) for k in range(9)]
        for r, j in np.ndindex(rows + 2, 3):
            pixels = on.load(on.at(x, here, mul(pitch, LONG(r)), LONG(j)))
            for i in range(max(0, r - rows + 1), min(3, r + 1)):
                sums[r - i] = on.fused(weights[3 * i + j], pixels, sums[r - i])
        on.store_rows(sums, on.at(y, to), apart)

    return tile


def halved(rows: int, count: int) -> Any:
    """The kernel for tiles of y, of weights of 3 x 3 with strides of 2, of x in planes by its columns' halves.

    What is loaded for one row of the tile serves the next.
    """

    @emitted("y", count)
    def tile(on, here, to, x, pitch, further, weight, element, start, y, apart):
        """y[to..] = start + the sums; rows of x are `pitch` apart, and its planes `further`."""
        mul, first, pixel = on.builder.mul, on.at(weight, element), on.at(x, here)
        weights = [on.spread(on.at(first, LONG(k))) for k in range(9)]
        planes, sums = [pixel, on.at(pixel, further)], [on.repeated(start)] * rows
        for line, j in np.ndindex(2 * rows + 1, 3):
            pixels = on.load(on.at(planes[j % 2], mul(pitch, LONG(line)), LONG(j // 2)))
            for i in range(line % 2, 3, 2):
                if 0 <= line - i < 2 * rows:
                    r = (line - i) // 2
                    sums[r] = on.fused(weights[3 * i + j], pixels, sums[r])
        on.store_rows(sums, on.at(y, to), apart)

    return tile


def tapped(rows: int, count: int) -> Any:
    """The kernel for tiles of y, of x whose rows `pitch` apart they read, by a table of taps."""

    @emitted("y", count)
    def tile(on, here, to, x, pitch, weight, element, taps, first, last, start, y, apart):
        """y[to..] = start + the sums; taps[t] = (which weight from `element` on, how much further in x)."""
        builder, mul = on.builder, on.builder.mul
        sums = [cgutils.alloca_once_value(builder, on.repeated(start)) for _ in range(rows)]
        with cgutils.for_range(builder, last, first) as loop:
            value = on.spread(on.at(weight, element, on.entry(taps, loop.index, 0)))
            shift = on.entry(taps, loop.index, 1)
            for r, one in enumerate(sums):
                on.multiply_add(value, on.load(on.at(x, here, shift, mul(pitch, LONG(r)))), one)
        on.store_rows([builder.load(one) for one in sums], on.at(y, to), apart)

    return tile


def sums_of(side: int) -> Any:
    """The kernel that adds to side x side weights at a time, of rows of `across` vectors of dy."""

    @emitted("dy")
    def sums(on, dy, size, x, here, pitch, steps, dweight, element, apart):
        """dweight[element..] += the sums, of x from `here` on; rows of weights are `apart`."""
        builder, add, mul = on.builder, on.builder.add, on.builder.mul
        (rows, across), (down, right), elements = size, steps, [*np.ndindex(side, side)]
        totals = [cgutils.alloca_once_value(builder, on.zero()) for _ in elements]
        met = [on.at(x, here, mul(down, LONG(i)), mul(right, LONG(j))) for i, j in elements]
        with cgutils.for_range(builder, rows) as r, cgutils.for_range(builder, across) as q:
            there = mul(LONG(on.count), add(mul(r.index, across), q.index))
            gradient = on.load(on.at(dy, there))
            shift = add(mul(r.index, pitch), mul(q.index, LONG(on.count)))
            for pixel, total in zip(met, totals, strict=True):
                on.multiply_add(gradient, on.load(on.at(pixel, shift)), total)
        for (i, j), total in zip(elements, totals, strict=True):
            to = on.at(dweight, element, mul(apart, LONG(i)), LONG(j))
            builder.store(on.total(builder.load(total), builder.load(to)), to)

    return sums


@helper
def zero(work, size):
    """The first numbers of the work become 0."""
    for q in range(size):
        work[at(q)] = 0


def halves_of(count: int) -> Any:
    """The kernel that puts 2 count neighbours apart: of even places to b[b0..], of odd ones to b[b1..]."""

    @emitted("a", count)
    def halves(on, a, a0, b, b0, b1):
        low, high = on.load(on.at(a, a0)), on.load(on.at(a, a0, LONG(count)))
        for start, to in enumerate((b0, b1)):
            on.store(on.pick(low, range(start, 2 * count, 2), high), on.at(b, to))

    return halves


def move_of(count: int) -> Any:
    """The kernel b[b0..] = a[a0..], of so many neighbours."""

    @emitted("a", count)
    def move(on, a, a0, b, b0):
        on.store(on.load(on.at(a, a0)), on.at(b, b0))

    return move
