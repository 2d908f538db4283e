"""Depthwise convolution with stride 1, each plane by a kernel of its own. Needs Numba.

    y[r, q] = bias + sum over i, j of weight[i, j] x[r + i dh - ph, q + j dw - pw]
    dweight[i, j] += sum over r, q of dy[r, q] x[r + i dh - ph, q + j dw - pw]

dx is the first of dy, by the weight back to front. A plane is copied into the thread's work, where there are
zeros beside it. A tile is ROWS rows of neighbours; where fewer are left, the last are computed again, or, in
sums, have zeros behind them. Those zeros meet weights and pixels: what is infinite there becomes NaN.
"""

from __future__ import annotations

from minicaffe.backends.cpu import at, compiled_sums, helper
from minicaffe.backends.cpu.kernels import depthwise_tiles as tiles
from minicaffe.backends.cpu.kernels.depthwise_tiles import WIDEST, move_of, plane_of, sums_of, zero
from minicaffe.backends.cpu.kernels.epilogue import finish
from minicaffe.backends.cpu.vector_ir import lanes_of

_plane, _plane_by_3 = (
    plane_of(tiles.weighed, WIDEST, 8, 4, 1),
    plane_of(tiles.weighed_3x3, WIDEST, 8, 4),
)
_sums_of_1, _sums_of_3 = sums_of(1), sums_of(3)
_move_16, _move_4, _move_1 = map(move_of, (WIDEST, 4, 1))


@helper
def _pad(x, start, image, pad, size, work):
    """The plane at x[start] into (rows, columns) of `size`, so far from its corner, cut where that ends."""
    (h, w), (ph, pw), (rows, columns) = image, pad, size
    low, high = max(pw, 0), min(columns, w + pw)
    for r in range(max(ph, 0), min(rows, h + ph)):
        here, there, wide = start + (r - ph) * w + low - pw, r * columns + low, high - low
        if wide >= WIDEST:
            for q in range(0, wide, WIDEST):
                q = min(q, wide - WIDEST)
                _move_16(x, here + q, work, there + q)
        elif wide >= 4:
            for q in range(0, wide, 4):
                q = min(q, wide - 4)
                _move_4(x, here + q, work, there + q)
        else:
            for q in range(wide):
                _move_1(x, here + q, work, there + q)


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
