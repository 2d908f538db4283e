"""Depthwise convolution with stride 1, each plane by a kernel of its own. Needs Numba.

    y[r, q] = bias + sum over i, j of weight[i, j] x[r + i dh - ph, q + j dw - pw]
    dweight[i, j] += sum over r, q of dy[r, q] x[r + i dh - ph, q + j dw - pw]

dx is the first of dy, by the weight back to front. A plane is copied into the thread's work, where there are
zeros beside it. Tiles of outputs, and sums, stay in registers. A tile is ROWS rows of neighbours; where fewer
are left, the last are computed again, or, in sums, have zeros behind them. Those zeros meet weights and
pixels: what is infinite there becomes NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import cgutils

from minicaffe.backends.cpu import at, compiled_sums, helper
from minicaffe.backends.cpu.kernels.filters import finish
from minicaffe.backends.cpu.vector_ir import LONG, emitted, lanes_of, mover

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
            place = mul(LONG(on.count), add(mul(r.index, across), q.index))
            gradient = on.load(on.at(dy, place))
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


_plane, _plane_by_3 = plane_of(weighed, WIDEST, 8, 4, 1), plane_of(weighed_3x3, WIDEST, 8, 4)
_sums_of_1, _sums_of_3 = sums_of(1), sums_of(3)
_move_16, _move_4, _move_1 = (mover(1, count) for count in (WIDEST, 4, 1))


@helper
def _pad(x, start, image, pad, size, work):
    """The plane at x[start] into (rows, columns) of `size`, so far from its corner, cut where that ends."""
    (h, w), (ph, pw), (rows, columns) = image, pad, size
    low, high = max(pw, 0), min(columns, w + pw)
    for r in range(max(ph, 0), min(rows, h + ph)):
        here, to, wide = start + (r - ph) * w + low - pw, r * columns + low, high - low
        if wide >= WIDEST:
            for q in range(0, wide, WIDEST):
                q = min(q, wide - WIDEST)
                _move_16(x, here + q, work, to + q)
        elif wide >= 4:
            for q in range(0, wide, 4):
                q = min(q, wide - 4)
                _move_4(x, here + q, work, to + q)
        else:
            for q in range(wide):
                _move_1(x, here + q, work, to + q)


@compiled_sums
def forward(epilogue, y, x, weight, bias, numbers, work, first, last):
    """y of planes first..last; if `turned` by the weight back to front. `numbers`: channels, sizes, that."""
    c, image, kernel, pad, dilation, out, turned = numbers
    (kh, kw), (dh, dw), (oh, ow) = kernel, dilation, out
    size = oh + (kh - 1) * dh, ow + (kw - 1) * dw
    steps, by_3 = (dh * size[1], dw), kh == kw == 3 and dh == dw == 1
    zero(work, size[0] * size[1])
    for plane in range(first, last):
        k = plane % c
        _pad(x, plane * image[0] * image[1], image, pad, size, work)
        element, turn = (k + 1) * kh * kw - 1 if turned else k * kh * kw, -1 if turned else 1
        start = bias[at(k)] if bias.size else y.dtype.type(0)
        to = plane * oh * ow
        tile_args = work, size[1], weight, element, turn, kernel, steps, start, y, ow
        plane_args = 0, size[1], to, out, tile_args
        if by_3 and ow >= 4:
            _plane_by_3(*plane_args)
        else:
            _plane(*plane_args)
        finish(y, to, oh * ow, epilogue)


@compiled_sums
def weight_gradient(x, dy, n, dweight, numbers, work, first, last):
    """dweight += the sums over all n samples, for channels first..last."""
    c, image, kernel, pad, dilation, out, _ = numbers
    (kh, kw), (dh, dw), (oh, ow) = kernel, dilation, out
    across = -(-ow // lanes_of(dy))
    columns = across * lanes_of(dy)
    size = oh + (kh - 1) * dh, columns + (kw - 1) * dw
    steps, room = (dh * size[1], dw), work[at(oh * columns) :]
    zero(work, oh * columns + size[0] * size[1])
    for k in range(first, last):
        for s in range(n):
            plane, element = s * c + k, k * kh * kw
            _pad(dy, plane * oh * ow, out, (0, 0), (oh, columns), work)
            _pad(x, plane * image[0] * image[1], image, pad, size, room)
            if kh == kw == 3:
                _sums_of_3(work, (oh, across), room, 0, size[1], steps, dweight, element, kw)
            else:
                for i in range(kh):
                    for j in range(kw):
                        here, to = i * steps[0] + j * dw, element + i * kw + j
                        _sums_of_1(work, (oh, across), room, here, size[1], steps, dweight, to, kw)
