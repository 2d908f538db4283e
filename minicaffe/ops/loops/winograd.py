"""Winograd's convolution: transforms of tiles, and the products between them.

Tiles are transformed `LANES` side by side. (a0, a1) pixels become P tile Q', (b0, b1) points, first along one
axis and then along the other: b0 a1 (a0 + b1) multiplications instead of the a0 a1 b0 b1 of the Kronecker
product. Points lie in memory as (b0 b1, channels, tiles): a matrix each. The letters are `conv.winograd`'s.

What the loops share: `sizes` are n, c, h, w, f, oh, ow and groups; `chunk` how many samples, and rows of
their tiles, are a unit; `matrices` A', G and B' of the first axis, then of the second.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.ops.loops import at, compiled_sums, helper_sums
from minicaffe.ops.loops.blas import gemm

LANES = 128


@helper_sums
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


@helper_sums
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


@helper_sums
def read(
    x: Any,
    start: int,
    sizes: Any,
    ends: Any,
    pad: Any,
    step: Any,
    p: Any,
    q: Any,
    points: Any,
    to: int,
    apart: int,
) -> None:
    """points[i b1 + j] = (P tile Q')[i, j] for all tiles of the images from `start` on.

    sizes are the images' c, h, w; ends the number of samples, of rows and of columns of tiles. Points begin
    at `to` and lie `apart`.
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
                _sum(q, j, half, 0, LANES, points, to + (i * len(q) + j) * apart + done, lanes)


@helper_sums
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
    apart: int = 0,
) -> None:
    """Tiles (P points Q') back to images, with the bias; or added to them, if points lie `apart`."""
    (c, h, w), (b0, b1), (a0, a1) = sizes, (len(p), len(q)), (p.shape[1], q.shape[1])
    count = c * ends[0] * ends[1] * ends[2]
    add, apart = apart > 0, apart if apart > 0 else count
    tiles, half = np.empty(a0 * a1 * LANES, y.dtype), np.empty(a1 * LANES, y.dtype)
    out = np.empty(b0 * b1 * LANES, y.dtype)
    column, row, sample, channel = 0, 0, 0, 0
    for done in range(0, count, LANES):
        lanes = min(LANES, count - done)
        for k in range(a0 * a1):
            for lane in range(lanes):
                tiles[at(k * LANES + lane)] = points[at(k * apart + done + lane)]
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


@helper_sums
def _multiply(blas: int, a: Any, b: Any, add: bool, c: Any, sizes: Any, many: int) -> None:
    """`many` products (m, k) (k, n) of matrices that lie one behind the other; a, b: (array, transposed)."""
    m, n, k = sizes
    (x, x_turned), (y, y_turned) = a, b
    lda, ldb = m if x_turned else k, k if y_turned else n
    for i in range(many):
        left, right = (x, i * m * k, lda, x_turned), (y, i * k * n, ldb, y_turned)
        gemm(blas, sizes, left, right, add, (c, i * m * n, n))


@helper_sums
def _unit(unit: int, bands: int, chunk: Any, tiles: Any, n: int) -> Any:
    """The first sample and row of tiles of a unit, and how many of both, and of columns, it has."""
    s, row = unit // bands * chunk[0], unit % bands * chunk[1]
    return s, row, (min(chunk[0], n - s), min(chunk[1], tiles[0] - row), tiles[1])


@helper_sums
def _tiles(sizes: Any, step: Any, chunk: Any) -> tuple[tuple[int, int], int]:
    """Rows and columns of tiles of an image, and into how many bands the rows are cut."""
    oh, ow = sizes[5], sizes[6]
    rows, columns = (oh + step[0] - 1) // step[0], (ow + step[1] - 1) // step[1]
    return (rows, columns), (rows + chunk[1] - 1) // chunk[1]


@compiled_sums
def transform(weight: Any, g0: Any, g1: Any, u: Any, first: int, last: int) -> None:
    """u = G weight G' of pairs of a filter and a channel, first..last."""
    kernel, pairs = (g0.shape[1], g1.shape[1]), len(u) // (len(g0) * len(g1))
    start, some = first * kernel[0] * kernel[1], (last - first, *kernel)
    read(weight, start, some, (1, 1, 1), (0, 0), kernel, g0, g1, u, first, pairs)


@compiled_sums
def forward(
    blas: int,
    sizes: Any,
    chunk: Any,
    pad: Any,
    matrices: Any,
    turned: bool,
    x: Any,
    bias: Any,
    u: Any,
    y: Any,
    rest: Any,
    first: int,
    last: int,
) -> None:
    """y = A' [U V] A + bias; u lies there as (points, c, f) if it is `turned`."""
    n, c, h, w, f, oh, ow, groups = sizes
    at0, _, bt0, at1, _, bt1 = matrices
    points, step = len(bt0) * len(bt1), (len(at0), len(at1))
    tiles, bands = _tiles(sizes, step, chunk)
    for unit in range(first, last):
        s, row, ends = _unit(unit, bands, chunk, tiles, n)
        count, down = ends[0] * ends[1] * ends[2], row * step[0]
        v, m = rest[: points * c * count], rest[points * c * count : points * (c + f) * count]
        top, apart = (pad[0] - down, pad[1]), c * count
        read(x, s * c * h * w, (c, h, w), ends, top, step, bt0, bt1, v, 0, apart)
        shape = f // groups, count, c // groups
        _multiply(blas, (u, turned), (v, False), False, m, shape, points * groups)
        write(m, at0, at1, bias, y, s * f * oh * ow, (f, oh, ow), ends, (-down, 0), step)


@compiled_sums
def weight_gradient(
    blas: int,
    sizes: Any,
    chunk: Any,
    pad: Any,
    matrices: Any,
    turned: Any,
    x: Any,
    dy: Any,
    work: Any,
    first: int,
    last: int,
) -> None:
    """The sums of (A dy A') V' over units, at the beginning of `work`."""
    n, c, h, w, f, oh, ow, groups = sizes
    at0, _, bt0, at1, _, bt1 = matrices
    a0, _, _, a1, _, _ = turned
    points, step = len(bt0) * len(bt1), (len(at0), len(at1))
    tiles, bands = _tiles(sizes, step, chunk)
    size = points * f * (c // groups)
    sums, rest = work[:size], work[size:]
    for unit in range(first, last):
        s, row, ends = _unit(unit, bands, chunk, tiles, n)
        count, down = ends[0] * ends[1] * ends[2], row * step[0]
        v, m = rest[: points * c * count], rest[points * c * count : points * (c + f) * count]
        top, apart = (pad[0] - down, pad[1]), c * count
        read(x, s * c * h * w, (c, h, w), ends, top, step, bt0, bt1, v, 0, apart)
        top, apart = (-down, 0), f * count
        read(dy, s * f * oh * ow, (f, oh, ow), ends, top, step, a0, a1, m, 0, apart)
        shape = f // groups, c // groups, count
        _multiply(blas, (m, False), (v, True), unit > first, sums, shape, points * groups)


@compiled_sums
def transform_back(
    work: Any, slices: int, gt0: Any, gt1: Any, pairs: int, dw: Any, first: int, last: int
) -> None:
    """dw += G' [the sums of all slices, in their order] G, for pairs of a filter and a channel.

    Of the equal pieces of `work`, one a slice, each begins with its sums; those of all go to the first's.
    """
    kernel, points = (len(gt0), len(gt1)), gt0.shape[1] * gt1.shape[1]
    piece, none = len(work) // slices, dw[:0]
    for i in range(1, slices):
        for point in range(points):
            here, there = work[point * pairs + first :], work[i * piece + point * pairs + first :]
            for q in range(last - first):
                here[at(q)] += there[at(q)]
    start, some = first * kernel[0] * kernel[1], (last - first, *kernel)
    write(work[first:], gt0, gt1, none, dw, start, some, (1, 1, 1), (0, 0), kernel, pairs)
