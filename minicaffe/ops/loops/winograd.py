"""Winograd's convolution: transforms of tiles, and the products between them.

How tiles are transformed, and lie in memory, says `tiles`. The letters are `conv.winograd`'s.

What the loops share: `sizes` are n, c, h, w, f, oh, ow and groups; `chunk` how many samples, and rows of
their tiles, are a unit; `matrices` A', G and B' of the first axis, then of the second.
"""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import at, compiled_sums, helper_sums
from minicaffe.ops.loops.blas import gemm
from minicaffe.ops.loops.tiles import read, write


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
