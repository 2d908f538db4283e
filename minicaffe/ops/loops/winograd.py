"""Winograd's convolution of a thread's samples: transforms of tiles, and the products between them.

Tiles are transformed `LANES` side by side. (a0, a1) pixels become P tile Q', (b0, b1) points, first along one
axis and then along the other: b0 a1 (a0 + b1) multiplications instead of the a0 a1 b0 b1 of the Kronecker
product. Points lie in memory as (b0 b1, channels, tiles): a matrix each. The letters are `conv.winograd`'s.

What the two loops share: `sizes` are n, c, h, w, f, oh, ow and groups; `chunk` how many samples, and rows of
their tiles, are taken at a time; `matrices` A', G and B' of the first axis, then of the second.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from minicaffe.ops.loops import at, compiled_sums
from minicaffe.ops.loops.blas import gemm

LANES = 128
options: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract"},
}


@numba.njit(**options)
def _sum(p: Any, row: int, a: Any, start: int, apart: int, out: Any, to: int, count: int) -> None:
    """out[to + q] = sum over k of p[row, k] a[start + k apart + q] for q < count, four terms at a time."""
    y, terms = out[to : to + count], p.shape[1]
    for k in range(0, terms - 3, 4):
        w = start + k * apart
        a0, a1 = a[w : w + count], a[w + apart : w + apart + count]
        w += 2 * apart
        a2, a3 = a[w : w + count], a[w + apart : w + apart + count]
        p0, p1, p2, p3 = p[row, k], p[row, k + 1], p[row, k + 2], p[row, k + 3]
        if k == 0:
            for q in range(count):
                y[at(q)] = p0 * a0[at(q)] + p1 * a1[at(q)] + p2 * a2[at(q)] + p3 * a3[at(q)]
        else:
            for q in range(count):
                y[at(q)] += p0 * a0[at(q)] + p1 * a1[at(q)] + p2 * a2[at(q)] + p3 * a3[at(q)]
    for k in range(terms // 4 * 4, terms):
        a0, p0 = a[start + k * apart : start + k * apart + count], p[row, k]
        if k == 0:
            for q in range(count):
                y[at(q)] = p0 * a0[at(q)]
        else:
            for q in range(count):
                y[at(q)] += p0 * a0[at(q)]


@numba.njit(**options)
def _next(column: int, row: int, sample: int, channel: int, ends: Any) -> tuple[int, int, int, int]:
    """The tile after this: by channel, sample, row and column."""
    column += 1
    if column == ends[2]:
        column, row = 0, row + 1
    if row == ends[1]:
        row, sample = 0, sample + 1
    if sample == ends[0]:
        sample, channel = 0, channel + 1
    return column, row, sample, channel


@numba.njit(**options)
def read(
    x: Any, start: int, sizes: Any, ends: Any, pad: Any, step: Any, p: Any, q: Any, points: Any
) -> None:
    """points[i b1 + j] = (P tile Q')[i, j] for all tiles of the images from `start` on.

    sizes are the images' c, h, w; ends the number of samples, of rows and of columns of tiles.
    """
    (c, h, w), (a0, a1) = sizes, (p.shape[1], q.shape[1])
    count = c * ends[0] * ends[1] * ends[2]
    tiles, half = np.empty(a0 * a1 * LANES, x.dtype), np.empty(a1 * LANES, x.dtype)
    column, row, sample, channel = 0, 0, 0, 0
    for done in range(0, count, LANES):
        lanes = min(LANES, count - done)
        for lane in range(lanes):
            top, left = row * step[0] - pad[0], column * step[1] - pad[1]
            plane = start + (sample * c + channel) * h * w
            j0, j1 = max(0, -left), max(0, min(a1, w - left))
            for i in range(a0):
                here, there = plane + (top + i) * w + left, i * a1 * LANES + lane
                inside = 0 <= top + i < h
                if not inside or j1 - j0 < a1:
                    for j in range(a1):
                        tiles[at(there + j * LANES)] = 0
                if inside:
                    for j in range(j0, j1):
                        tiles[at(there + j * LANES)] = x[at(here + j)]
            column, row, sample, channel = _next(column, row, sample, channel, ends)
        for i in range(len(p)):
            _sum(p, i, tiles, 0, a1 * LANES, half, 0, a1 * LANES)
            for j in range(len(q)):
                _sum(q, j, half, 0, LANES, points, (i * len(q) + j) * count + done, lanes)


@numba.njit(**options)
def write(
    points: Any,
    p: Any,
    q: Any,
    bias: Any,
    y: Any,
    start: int,
    sizes: Any,
    ends: Any,
    pad: Any,
    step: Any,
    add: bool,
) -> None:
    """Tiles (P points Q') back to images: added, or with the bias in place of what is there."""
    (c, h, w), (b0, b1), (a0, a1) = sizes, (len(p), len(q)), (p.shape[1], q.shape[1])
    count = c * ends[0] * ends[1] * ends[2]
    tiles, half = np.empty(a0 * a1 * LANES, y.dtype), np.empty(a1 * LANES, y.dtype)
    out = np.empty(b0 * b1 * LANES, y.dtype)
    column, row, sample, channel = 0, 0, 0, 0
    for done in range(0, count, LANES):
        lanes = min(LANES, count - done)
        for k in range(a0 * a1):
            for lane in range(lanes):
                tiles[at(k * LANES + lane)] = points[at(k * count + done + lane)]
        for i in range(b0):
            _sum(p, i, tiles, 0, a1 * LANES, half, 0, a1 * LANES)
            for j in range(b1):
                _sum(q, j, half, 0, LANES, out, (i * b1 + j) * LANES, LANES)
        for lane in range(lanes):
            top, left = row * step[0] - pad[0], column * step[1] - pad[1]
            plane = start + (sample * c + channel) * h * w
            j0, j1 = max(0, -left), max(0, min(b1, w - left))
            more = bias[at(channel)] if bias.size else bias.dtype.type(0)
            for i in range(max(0, -top), min(b0, h - top)):
                here, there = plane + (top + i) * w + left, i * b1 * LANES + lane
                if add:
                    for j in range(j0, j1):
                        y[at(here + j)] += out[at(there + j * LANES)]
                else:
                    for j in range(j0, j1):
                        y[at(here + j)] = out[at(there + j * LANES)] + more
            column, row, sample, channel = _next(column, row, sample, channel, ends)


@numba.njit(**options)
def _multiply(blas: int, a: Any, b: Any, add: bool, c: Any, sizes: Any, many: int) -> None:
    """`many` products (m, k) (k, n) of matrices that lie one behind the other; a, b: (array, transposed)."""
    m, n, k = sizes
    (x, x_turned), (y, y_turned) = a, b
    lda, ldb = m if x_turned else k, k if y_turned else n
    for i in range(many):
        left, right = (x, i * m * k, lda, x_turned), (y, i * k * n, ldb, y_turned)
        gemm(blas, sizes, left, right, add, (c, i * m * n, n))


@compiled_sums
def forward(
    blas: int,
    sizes: Any,
    chunk: Any,
    pad: Any,
    matrices: Any,
    x: Any,
    weight: Any,
    bias: Any,
    u: Any,
    rest: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """y = A' [U V] A + bias."""
    _, c, h, w, f, oh, ow, groups = sizes
    at0, g0, bt0, at1, g1, bt1 = matrices
    points, step, kernel = len(bt0) * len(bt1), (len(at0), len(at1)), (g0.shape[1], g1.shape[1])
    pairs = f * (c // groups)
    read(weight, 0, (pairs, *kernel), (1, 1, 1), (0, 0), kernel, g0, g1, u)
    columns = (ow + step[1] - 1) // step[1]
    for s in range(first, last, chunk[0]):
        for row in range(0, (oh + step[0] - 1) // step[0], chunk[1]):
            rows = min(chunk[1], (oh + step[0] - 1) // step[0] - row)
            ends = min(chunk[0], last - s), rows, columns
            n, down = ends[0] * rows * columns, row * step[0]
            v, m = rest[: points * c * n], rest[points * c * n : points * (c + f) * n]
            read(x, s * c * h * w, (c, h, w), ends, (pad[0] - down, pad[1]), step, bt0, bt1, v)
            shape = f // groups, n, c // groups
            _multiply(blas, (u, False), (v, False), False, m, shape, points * groups)
            write(m, at0, at1, bias, y, s * f * oh * ow, (f, oh, ow), ends, (-down, 0), step, False)


@compiled_sums
def gradients(
    blas: int,
    sizes: Any,
    chunk: Any,
    pad: Any,
    matrices: Any,
    turned: Any,
    x: Any,
    dy: Any,
    weight: Any,
    dx: Any,
    dw: Any,
    u: Any,
    sums: Any,
    rest: Any,
    first: int,
    last: int,
) -> None:
    """dx = tiles'(B [U' (A dy A')] B'), and dw = G' [sum of (A dy A') V'] G; of no size: not wanted.

    dw is written when all else is done, and may lie in u.
    """
    _, c, h, w, f, oh, ow, groups = sizes
    at0, g0, bt0, at1, g1, bt1 = matrices
    a0, gt0, b0, a1, gt1, b1 = turned
    points, step, kernel = len(bt0) * len(bt1), (len(at0), len(at1)), (g0.shape[1], g1.shape[1])
    pairs, none = f * (c // groups), rest[:0]
    if dx.size:
        read(weight, 0, (pairs, *kernel), (1, 1, 1), (0, 0), kernel, g0, g1, u)
        for q in range(first * c * h * w, last * c * h * w):
            dx[at(q)] = 0
    for q in range(len(sums)):
        sums[at(q)] = 0
    columns = (ow + step[1] - 1) // step[1]
    for s in range(first, last, chunk[0]):
        for row in range(0, (oh + step[0] - 1) // step[0], chunk[1]):
            rows = min(chunk[1], (oh + step[0] - 1) // step[0] - row)
            ends = min(chunk[0], last - s), rows, columns
            n, down = ends[0] * rows * columns, row * step[0]
            v, m = rest[: points * c * n], rest[points * c * n : points * (c + f) * n]
            start, top = s * c * h * w, (pad[0] - down, pad[1])
            read(dy, s * f * oh * ow, (f, oh, ow), ends, (-down, 0), step, a0, a1, m)
            if dw.size:
                read(x, start, (c, h, w), ends, top, step, bt0, bt1, v)
                shape = f // groups, c // groups, n
                _multiply(blas, (m, False), (v, True), True, sums, shape, points * groups)
            if dx.size:
                shape = c // groups, n, f // groups
                _multiply(blas, (u, True), (m, False), False, v, shape, points * groups)
                write(v, b0, b1, none, dx, start, (c, h, w), ends, top, step, True)
    if dw.size:
        write(sums, gt0, gt1, none, dw, 0, (pairs, *kernel), (1, 1, 1), (0, 0), kernel, False)
