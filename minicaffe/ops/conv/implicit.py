"""Implicit GEMM: the column matrix is never whole; a tile of it lives as long as it is multiplied.

On CUDA a block gathers its tile of columns from the image into shared memory (kernels/implicit.cu). On the
CPU a tile is a band of output rows of one sample, small enough to stay in the cache between im2col and the
product that reads it:

    y[s, g, :, band] = weight[g] im2col(x[s])[g][:, band] + bias[g]

A band is a window that starts further down: the first axis has pad - row stride. With Numba, all bands of a
thread are one compiled loop (`loops.implicit`) that calls BLAS itself; threads share samples, groups, bands
and, where these are few, blocks of filters or channels. Source: S. Chetlur et al., cuDNN: Efficient Primitives
for Deep Learning, 2014.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.cpu import no_bias, with_blas
from minicaffe.cpu.threads import Piece, share
from minicaffe.ops.conv import implicit_gemm, split
from minicaffe.ops.conv.common import add_pieces, by_samples, is_product, recordable
from minicaffe.ops.conv.engine import Engine
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry, Window, lift
from minicaffe.ops.im2col import col2im, im2col
from minicaffe.replay.dispatch import run
from minicaffe.replay.trace import do

TILE = 2**17  # entries of a tile: 512 KiB in float32
PLACES = 192  # of a product at the least, where an image has so many: BLAS packs the filters for each anew
FILTERS = 16  # of a product at the least, where filters are shared among threads
ROWS = (
    64  # of the columns that a thread takes of all samples, at the least, for the weight's gradient
)


class Implicit(Engine):
    """Columns by tiles that live as long as they are multiplied."""

    name = "implicit"
    traced = True
    rule_rank = 1
    tie_rank = 0
    one_product = True

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs: a tile, or one row of outputs if that is more; a product and sums."""
        return self.forward_workspace(g, limit) + 2 * math.prod(g.weight_shape)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs for `forward`: a tile."""
        return max(_band(g) * g.rows * _across(g), _tile(g))

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Elements that the parts of its sums need on CUDA."""
        return implicit_gemm.workspace(g, limit, itemsize)

    def is_compiled(self, dtype: Any) -> bool:
        """Whether loops that call BLAS serve arrays of a type."""
        return recordable(dtype)

    def forward(
        self, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
    ) -> Any:
        """y = weight * x + bias, into `out`."""
        if on_cuda(x):
            work = work if is_product(g) else None
            return implicit_gemm.forward(x, weight, bias, g, out, work=work)
        fast, blas = with_blas("implicit", x)
        if fast is not None:
            rows, parts = _cut(g, share(work))
            given = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
            units = g.n * g.group * -(-g.out[0] // rows) * parts
            args = *_numbers(g, rows), g.window.is_point, parts, *given, out.reshape(-1)
            run(fast.forward, units, blas, *args, Piece(work))
            return out
        w, y = weight.reshape(g.group, g.f // g.group, -1), _rows(out, g)
        b = None if bias is None else bias.reshape(g.group, -1, 1)

        def part(first: int, last: int, work: Any) -> None:
            for s in range(first, last):
                for rows, window, places, tile in _tiles(g, work):
                    im2col(x[s : s + 1], window, tile, places=places)
                    here = y[s][..., rows]
                    gemm(w, tile, here)
                    if b is not None:
                        do(np.add, here, b, out=here)

        by_samples(part, g, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dx = sum over the bands of col2im(weight' dy), into `out`."""
        if on_cuda(dy) and is_product(g):
            dy, dx = dy.reshape(g.n, g.f), out.reshape(g.n, g.c)
            implicit_gemm.product(dy, weight.reshape(g.f, g.c), dx, work)
            return out
        if on_cuda(dy):
            return implicit_gemm.input_gradient(dy, weight, g, out)
        fast, blas = with_blas("implicit", dy)
        if fast is not None:
            parts = split.parts(g.n * g.group, share(work), g.c // g.group)
            args = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
            numbers = *_numbers(g, _band(g, g.group)), g.window.is_point, parts
            run(fast.input_gradient, g.n * g.group * parts, blas, *numbers, *args, Piece(work))
            return out
        w, dy = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2), _rows(dy, g)

        def part(first: int, last: int, work: Any) -> None:
            for s in range(first, last):
                do(np.copyto, out[s], 0)
                for rows, window, places, tile in _tiles(g, work):
                    gemm(w, dy[s][..., rows], tile)
                    col2im(tile, window, out[s : s + 1], places=places, add=True)

        by_samples(part, g, work)
        return out

    def weight_and_bias_gradients(
        self, x: Any, dy: Any, g: ConvGeometry, dw: Any, db: Any, work: Any
    ) -> bool:
        """Both by one kernel, on CUDA."""
        implicit_gemm.weight_gradient(x, dy, g, dw, work, db)
        return True

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dweight' = sum over samples and bands of im2col(x) dy', added to `out`."""
        if on_cuda(x):
            return implicit_gemm.weight_gradient(x, dy, g, out, work)
        fast, blas = with_blas("implicit", dy)
        if fast is not None:
            _weight_gradient(fast, blas, x, dy, g, out, work)
            return out
        size, dw, dy = out.size, out.reshape(g.group, g.f // g.group, -1), _rows(dy, g)

        def part(first: int, last: int, work: Any) -> None:
            product, sums = work[-2 * size : -size], work[-size:]
            do(np.copyto, sums, 0)
            for s in range(first, last):
                for rows, window, places, tile in _tiles(g, work):
                    im2col(x[s : s + 1], window, tile, places=places)
                    gemm(
                        tile,
                        dy[s][..., rows].swapaxes(1, 2),
                        product.reshape(g.group, -1, g.f // g.group),
                    )
                    do(np.add, sums, product, out=sums)

        for piece in by_samples(part, g, work):
            do(
                np.add,
                dw,
                piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2),
                out=dw,
            )
        return out


IMPLICIT = Implicit()  # what others are where there are no loops of theirs


def _weight_gradient(
    fast: Any, blas: int, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any
) -> None:
    """As rows of the program: each thread takes all samples of some channels, or some samples and bands."""
    threads, room, arrays = share(work), _tile(g), (x.reshape(-1), dy.reshape(-1))
    rows, _ = _cut(g, threads)
    units = g.n * -(-g.out[0] // rows)
    is_point = g.window.is_point
    if is_point or units < threads or (g.rows >= ROWS * threads and split.even(g.c, threads)):
        numbers = *_numbers(g, _band(g, g.group)), is_point, g.n, room
        args = *arrays, out.reshape(-1), Piece(work)
        run(fast.weight_rows_gradient, g.c, blas, *numbers, *args)
        return
    numbers = *_numbers(g, rows), room
    slices = run(fast.weight_gradient, units, blas, *numbers, *arrays, Piece(work))
    add_pieces(work, slices, room, g, out)


def _across(g: ConvGeometry) -> int:
    """Outputs of one row: along all axes but the first."""
    return math.prod(g.out[1:])


def _band(g: ConvGeometry, groups: int = 1) -> int:
    """Output rows of a tile of one of so many groups."""
    across = _across(g)
    return max(1, min(g.out[0], max(TILE // (g.rows // groups * across), -(-PLACES // across))))


def _tile(g: ConvGeometry) -> int:
    """Elements of a tile, as the loops have it: of one group."""
    return _band(g, g.group) * (g.rows // g.group) * _across(g)


@functools.lru_cache(maxsize=1024)
def _cut(g: ConvGeometry, threads: int) -> tuple[int, int]:
    """Output rows of a band, and in how many parts the filters of a group are taken, to be even."""
    units, bands = g.n * g.group, -(-g.out[0] // _band(g, g.group))
    most = min(g.out[0], 2 * g.places // PLACES)
    rows = -(-g.out[0] // split.parts(units, threads, most, bands))
    units *= -(-g.out[0] // rows)
    return rows, split.parts(units, threads, max(1, g.f // g.group // FILTERS))


@functools.lru_cache(maxsize=1024)
def _numbers(g: ConvGeometry, rows: int) -> tuple[Any, ...]:
    """What the loops want to know: sizes, the first axis of three, and im2col's shapes."""
    sizes = g.group, g.f // g.group, g.c // g.group, rows
    return sizes, 3 - len(g.image), (lift(g.image), g.window.lifted(), lift(g.out))


def _rows(y: Any, g: ConvGeometry) -> Any:
    return y.reshape(g.n, g.group, g.f // g.group, g.places)


def _tiles(g: ConvGeometry, work: Any) -> Iterator[tuple[slice, Window, tuple[int, ...], Any]]:
    """For each band: its places, the window that starts there, its sizes, room for its columns."""
    across, most, window = _across(g), _band(g), g.window
    for row in range(0, g.out[0], most):
        rows = min(most, g.out[0] - row)
        pad = (window.pad[0] - row * window.stride[0], *window.pad[1:])
        tile = work[: g.rows * rows * across].reshape(g.group, -1, rows * across)
        places = slice(row * across, (row + rows) * across)
        yield places, dataclasses.replace(window, pad=pad), (rows, *g.out[1:]), tile
