"""Depthwise convolution with strides, each plane by tiles that stay in registers. Needs Numba.

    y[r, q] = bias + sum over i, j of weight[i, j] x[r sh + i dh - ph, q sw + j dw - pw]

A plane is copied into the thread's work with the zeros beside it, its columns apart by their remainder when
divided by sw: what neighbouring outputs read are then neighbours. `taps` are rows (element of the kernel,
where it reads), and dx has a job of them for each remainder of a pixel by the strides. A tile is ROWS rows of
neighbours; where fewer are left, the last are computed again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils

from minicaffe.backends.cpu import at, compiled_sums, helper
from minicaffe.backends.cpu.kernels.depthwise import WIDEST, plane_of, sums_of, zero
from minicaffe.backends.cpu.kernels.filters import finish
from minicaffe.backends.cpu.vector_ir import LONG, emitted, lanes_of


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


def halves_of(count: int) -> Any:
    """The kernel that puts 2 count neighbours apart: of even places to b[b0..], of odd ones to b[b1..]."""

    @emitted("a", count)
    def halves(on, a, a0, b, b0, b1):
        low, high = on.load(on.at(a, a0)), on.load(on.at(a, a0, LONG(count)))
        for start, to in enumerate((b0, b1)):
            on.store(on.pick(low, range(start, 2 * count, 2), high), on.at(b, to))

    return halves


_plane, _halved = plane_of(tapped, WIDEST, 4, 1), plane_of(halved, WIDEST, 8, 4)
_sums_of_1 = sums_of(1)
_halves_16, _halves_8, _halves_4 = (halves_of(count) for count in (WIDEST, 8, 4))


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
                for q in range(high - low):
                    work[at(to + q)] = x[at(here + q)]
            elif step == 2:
                for q in range(high - low):
                    work[at(to + q)] = x[at(here + 2 * q)]
            else:
                for q in range(high - low):
                    work[at(to + q)] = x[at(here + step * q)]


@compiled_sums
def forward(epilogue, y, x, weight, bias, numbers, size, taps, work, first, last):
    """y of planes first..last. `numbers`: channels, image, elements, strides, pads and outputs."""
    c, image, elements, (sh, sw), pad, (oh, ow) = numbers
    further = size[0] * size[1]
    # Of 3 x 3, with strides of 2, and not dilated, as the taps tell.
    halved = sh == sw == 2 and elements == 9 and ow >= 4
    halved = halved and (taps[1, 1], taps[2, 1], taps[3, 1]) == (further, 1, size[1])
    zero(work, sw * size[0] * size[1])
    for plane in range(first, last):
        k, to = plane % c, plane * oh * ow
        _apart(x, plane * image[0] * image[1], image, pad, sw, size, work)
        start, pitch = bias[at(k)] if bias.size else y.dtype.type(0), sh * size[1]
        if halved:
            tile_args = work, size[1], further, weight, k * elements, start, y, ow
            _halved(0, pitch, to, (oh, ow), tile_args)
        else:
            tap_args = work, pitch, weight, k * elements, taps, 0, len(taps), start, y, ow
            _plane(0, pitch, to, (oh, ow), tap_args)
        finish(y, to, oh * ow, epilogue)


@compiled_sums
def input_gradient(dy, weight, dx, numbers, size, corner, jobs, taps, work, first, last):
    """dx of planes first..last; `jobs` are rows (first pixel, pixels, taps) of a remainder along both axes."""
    c, (h, w), elements, (sh, sw), _, out = numbers
    room, none = size[0] * size[1], dx.dtype.type(0)
    zero(work, room)
    for plane in range(first, last):
        _apart(dy, plane * out[0] * out[1], out, corner, 1, size, work)
        for j in range(len(jobs)):
            row, rows, column, columns = jobs[j, 0], jobs[j, 1], jobs[j, 2], jobs[j, 3]
            here, begin, end = jobs[j, 4], jobs[j, 5], jobs[j, 6]
            element = plane % c * elements
            tile_args = work, size[1], weight, element, taps, begin, end, none, work, columns
            _plane(here, size[1], room, (rows, columns), tile_args)
            for r in range(rows):
                to = (plane * h + row + r * sh) * w + column
                for q in range(columns):
                    dx[at(to + q * sw)] = work[at(room + r * columns + q)]


@compiled_sums
def weight_gradient(x, dy, n, dweight, numbers, size, taps, work, first, last):
    """dweight += the sums over all n samples, for channels first..last."""
    c, image, elements, (sh, sw), pad, (oh, ow) = numbers
    across = -(-ow // lanes_of(dy))
    columns = across * lanes_of(dy)
    room = work[at(oh * columns) :]
    zero(work, oh * columns + sw * size[0] * size[1])
    for k in range(first, last):
        for s in range(n):
            plane = s * c + k
            _apart(dy, plane * oh * ow, (oh, ow), (0, 0), 1, (oh, columns), work)
            _apart(x, plane * image[0] * image[1], image, pad, sw, size, room)
            for t in range(len(taps)):
                to, here, pitch = k * elements + taps[t, 0], taps[t, 1], sh * size[1]
                _sums_of_1(work, (oh, across), room, here, pitch, (0, 0), dweight, to, 1)
