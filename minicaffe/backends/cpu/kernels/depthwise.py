"""Depthwise convolution, each plane by tiles that stay in registers. Needs Numba.

    y[r, q] = bias + sum over i, j of weight[i, j] x[r sh + i dh - ph, q sw + j dw - pw]
    dweight[i, j] += sum over r, q of dy[r, q] x[r sh + i dh - ph, q sw + j dw - pw]

A plane is copied into the thread's work with the zeros beside it, its columns apart by their remainder when
divided by sw: what neighbouring outputs read are then neighbours. `numbers` are channels, the sizes of image,
kernel, strides, pads, dilation and outputs, and whether the weight is back to front; `taps` are rows (element
of the kernel, where it reads). Without strides dx is y of dy by the weight back to front, else it has a job of
taps for each remainder of a pixel by the strides. A tile is ROWS rows of neighbours; where fewer are left, the
last are computed again, or, in sums, have zeros behind them. Those zeros meet weights and pixels: what is
infinite there becomes NaN.
"""

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


def by_3x3(stride: int) -> Callable[[int, int], Any]:
    """Kernels for tiles of y, of 3 x 3 weights and x in 1 or 2 planes; a loaded row serves a whole tile."""

    def kernel_of(rows: int, count: int) -> Any:
        @emitted("y", count)
        def tile(on, here, to, x, pitch, further, weight, element, turn, start, y, apart):
            """y[to..] = start + the sums; rows of x are `pitch` apart, planes `further`, weights `turn`."""
            mul, first, pixel = on.builder.mul, on.at(weight, element), on.at(x, here)
            weights = [on.spread(on.at(first, mul(turn, LONG(k)))) for k in range(9)]
            planes, sums = [pixel, on.at(pixel, further)], [on.repeated(start)] * rows
            for line, j in np.ndindex(stride * (rows - 1) + 3, 3):
                plane, shift = planes[j % stride], LONG(j // stride)
                pixels = on.load(on.at(plane, mul(pitch, LONG(line)), shift))
                for i in range(3):
                    r, rest = divmod(line - i, stride)
                    if rest == 0 and 0 <= r < rows:
                        sums[r] = on.fused(weights[3 * i + j], pixels, sums[r])
            on.store_rows(sums, on.at(y, to), apart)

        return tile

    return kernel_of


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
            gradient = on.load(on.at(dy, mul(LONG(on.count), add(mul(r.index, across), q.index))))
            shift = add(mul(r.index, pitch), mul(q.index, LONG(on.count)))
            for pixel, total in zip(met, totals, strict=True):
                on.multiply_add(gradient, on.load(on.at(pixel, shift)), total)
        for (i, j), total in zip(elements, totals, strict=True):
            to = on.at(dweight, element, mul(apart, LONG(i)), LONG(j))
            builder.store(on.total(builder.load(total), builder.load(to)), to)

    return sums


def halves_of(count: int) -> Any:
    """The kernel that puts 2 count neighbours apart: of even places to b[b0..], of odd ones to b[b1..]."""

    @emitted("a", count)
    def halves(on, a, a0, b, b0, b1):
        low, high = on.load(on.at(a, a0)), on.load(on.at(a, a0, LONG(count)))
        for start, to in enumerate((b0, b1)):
            on.store(on.pick(low, range(start, 2 * count, 2), high), on.at(b, to))

    return halves


@helper
def zero(work, size):
    """The first numbers of the work become 0."""
    for q in range(size):
        work[at(q)] = 0


_plane = plane_of(tapped, WIDEST, 8, 4, 1)
_plane_by_3, _halved = (plane_of(by_3x3(stride), WIDEST, 8, 4) for stride in (1, 2))
_sums_of_1, _sums_of_3 = sums_of(1), sums_of(3)
_move_16, _move_4 = mover(WIDEST), mover(4)
_halves_16, _halves_8, _halves_4 = (halves_of(count) for count in (WIDEST, 8, 4))


@helper
def _move(x, start, work, to, wide):
    """A row of pixels to work[to..]."""
    if wide >= WIDEST:
        for q in range(0, wide, WIDEST):
            q = min(q, wide - WIDEST)
            _move_16(x, start + q, work, to + q)
    elif wide >= 4:
        for q in range(0, wide, 4):
            q = min(q, wide - 4)
            _move_4(x, start + q, work, to + q)
    else:
        for q in range(wide):
            work[at(to + q)] = x[at(start + q)]


@helper
def _halves(x, start, w, work, even, odd):
    """A row of w pixels, no fewer than 8: those of even places to work[even..], the others to work[odd..]."""
    half = w // 2
    wide = WIDEST if half >= WIDEST else (8 if half >= 8 else 4)
    for q in range(0, half, wide):
        q = min(q, half - wide)
        pixels = x, start + 2 * q, work, even + q, odd + q
        if wide == WIDEST:
            _halves_16(*pixels)
        elif wide == 8:
            _halves_8(*pixels)
        else:
            _halves_4(*pixels)
    if w % 2:
        work[at(even + half)] = x[at(start + w - 1)]


@helper
def _apart(x, start, image, corner, step, size, work):
    """The plane at x[start], so far from the corner, as `step` planes of (rows, columns) by its columns."""
    (h, w), (down, right), (rows, columns) = image, corner, size
    if step == 2 and right >= 0 and w >= 8 and (w + right) // 2 < columns:
        for r in range(max(down, 0), min(rows, h + down)):
            row = r * columns
            even = right % 2 * rows * columns + row + right // 2
            odd = (right + 1) % 2 * rows * columns + row + (right + 1) // 2
            _halves(x, start + (r - down) * w, w, work, even, odd)
        return
    for b in range(step):
        low = max(0, -((b - right) // step))
        high = min(columns, (w - 1 + right - b) // step + 1)
        for r in range(max(down, 0), min(rows, h + down)):
            here = start + (r - down) * w + low * step + b - right
            to = (b * rows + r) * columns + low
            if step == 1:
                _move(x, here, work, to, high - low)
            elif step == 2:
                for q in range(high - low):
                    work[at(to + q)] = x[at(here + 2 * q)]
            else:
                for q in range(high - low):
                    work[at(to + q)] = x[at(here + step * q)]


@compiled_sums
def forward(epilogue, y, x, weight, bias, numbers, size, taps, work, first, last):
    """y of planes first..last."""
    c, image, (kh, kw), (sh, sw), pad, (dh, dw), (oh, ow), turned = numbers
    elements, further, pitch = kh * kw, size[0] * size[1], sh * size[1]
    by_3 = kh == kw == 3 and dh == dw == 1 and ow >= 4
    zero(work, sw * further)
    for plane in range(first, last):
        k, to = plane % c, plane * oh * ow
        element, start = k * elements, bias[at(k)] if bias.size else y.dtype.type(0)
        _apart(x, plane * image[0] * image[1], image, pad, sw, size, work)
        if by_3 and sh == sw <= 2:
            own, turn = (element + elements - 1, -1) if turned else (element, 1)
            tile_args = work, size[1], further, weight, own, turn, start, y, ow
            if sh == 1:
                _plane_by_3(0, pitch, to, (oh, ow), tile_args)
            else:
                _halved(0, pitch, to, (oh, ow), tile_args)
        else:
            tap_args = work, pitch, weight, element, taps, 0, len(taps), start, y, ow
            _plane(0, pitch, to, (oh, ow), tap_args)
        finish(y, to, oh * ow, epilogue)


@compiled_sums
def input_gradient(dy, weight, dx, numbers, size, corner, jobs, taps, work, first, last):
    """dx of planes first..last; `jobs` are rows (first pixel, pixels, taps) of a remainder along both axes."""
    c, (h, w), (kh, kw), (sh, sw), _, _, out, _ = numbers
    room, none = size[0] * size[1], dx.dtype.type(0)
    zero(work, room)
    for plane in range(first, last):
        _apart(dy, plane * out[0] * out[1], out, corner, 1, size, work)
        for j in range(len(jobs)):
            row, rows, column, columns = jobs[j, 0], jobs[j, 1], jobs[j, 2], jobs[j, 3]
            here, begin, end = jobs[j, 4], jobs[j, 5], jobs[j, 6]
            element = plane % c * kh * kw
            tile_args = work, size[1], weight, element, taps, begin, end, none, work, columns
            _plane(here, size[1], room, (rows, columns), tile_args)
            for r in range(rows):
                to = (plane * h + row + r * sh) * w + column
                for q in range(columns):
                    dx[at(to + q * sw)] = work[at(room + r * columns + q)]


@compiled_sums
def weight_gradient(x, dy, n, dweight, numbers, size, taps, work, first, last):
    """dweight += the sums over all n samples, for channels first..last."""
    c, image, (kh, kw), (sh, sw), pad, _, (oh, ow), _ = numbers
    across = -(-ow // lanes_of(dy))
    columns, pitch = across * lanes_of(dy), sh * size[1]
    room = work[at(oh * columns) :]
    own = work, (oh, across), room
    zero(work, oh * columns + sw * size[0] * size[1])
    for k in range(first, last):
        for s in range(n):
            plane, element = s * c + k, k * kh * kw
            _apart(dy, plane * oh * ow, (oh, ow), (0, 0), 1, (oh, columns), work)
            _apart(x, plane * image[0] * image[1], image, pad, sw, size, room)
            if kh == kw == 3 and sh == sw == 1:
                steps = taps[3, 1], taps[1, 1]
                _sums_of_3(*own, 0, pitch, steps, dweight, element, kw)
            else:
                for t in range(kh * kw):
                    _sums_of_1(*own, taps[t, 1], pitch, (0, 0), dweight, element + t, 1)
