"""Implicit GEMM: only a tile of the column matrix exists at a time, while it is multiplied.

On CUDA a block copies its tile of columns from the image to shared memory
(backends/cuda/kernels/implicit.cu). On the
CPU a tile holds the columns of a band: some output rows of one sample, few enough for the tile to stay in the
cache between im2col and the product that reads it:

    y[s, g, :, band] = weight[g] im2col(x[s])[g][:, band] + bias[g]

A band that begins at an output row is a window with another pad, pad - row stride, along the first axis.
With Numba, one compiled loop (backends/cpu/kernels/implicit.py) computes all bands of a thread and calls BLAS
itself.
Threads share samples, groups and bands, and if these are few also blocks of filters or channels. Source:
S. Chetlur et al., cuDNN: Efficient Primitives for Deep Learning, 2014.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

from minicaffe.backends.cpu import Piece, no_bias, no_epilogue, with_blas
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cpu.threads import share
from minicaffe.backends.cuda import implicit_gemm
from minicaffe.backends.device import on_cuda
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv import split
from minicaffe.core.ops.conv.common import add_pieces, by_samples, recordable
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.gemm import gemm
from minicaffe.core.ops.geometry import ConvGeometry, Window, lift
from minicaffe.core.ops.im2col import col2im, im2col

TILE = 2**17  # entries of a tile: 512 KiB in float32
PLACES = 192  # of a product, at least, if there are as many: BLAS packs the filters for each
FILTERS = 16  # of a product, at least, if threads share the filters
ROWS = 64  # of the column matrix for one thread, at least, if threads share the weight gradient by rows


class Implicit(Engine):
    """GEMM with a column matrix of which only a tile exists at a time."""

    name = "implicit"
    traced = True
    rule_rank = 1
    tie_rank = 0
    one_product = True

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: those of `forward`, a product, and partial sums."""
        return self.forward_workspace(g, limit) + 2 * math.prod(g.weight_shape)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`: a tile, or one row of outputs if that is more."""
        return max(_band(g) * g.rows * _across(g), _tile(g))

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements for partial sums on CUDA: see `implicit_gemm.workspace`."""
        return implicit_gemm.workspace(g, limit, itemsize)

    def is_compiled(self, dtype: Any) -> bool:
        """Whether there are compiled loops for a type, and a BLAS that they can call."""
        return recordable(dtype)

    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""
        if on_cuda(x):
            return implicit_gemm.forward(x, weight, bias, g, out, work=work)
        kernels, blas = with_blas("implicit", x)
        if kernels is not None:
            rows, parts = _cut(g, share(work))
            flat = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
            units = g.n * g.group * -(-g.out[0] // rows) * parts
            sizes = *_kernel_sizes(g, rows), g.window.is_point, parts
            to = no_epilogue(g.f, math.prod(g.out)), out.reshape(-1)
            run(kernels.forward, units, *to, blas, *sizes, *flat, Piece(work))
            return out
        w, y = weight.reshape(g.group, g.f // g.group, -1), _rows(out, g)
        b = None if bias is None else bias.reshape(g.group, -1, 1)

        def part(first: int, last: int, work: Any) -> None:
            for s in range(first, last):
                for rows, window, places, tile in _tiles(g, work):
                    im2col(x[s : s + 1], window, tile, places=places)
                    band = y[s][..., rows]
                    gemm(w, tile, band)
                    if b is not None:
                        arrays.add(b, band)

        by_samples(part, g, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx = sum over bands of col2im(weight' dy) to `out`, and returns it."""
        if on_cuda(dy) and g.is_product:
            dy, dx = dy.reshape(g.n, g.f), out.reshape(g.n, g.c)
            implicit_gemm.product(dy, weight.reshape(g.f, g.c), dx, work)
            return out
        if on_cuda(dy):
            return implicit_gemm.input_gradient(dy, weight, g, out, work)
        kernels, blas = with_blas("implicit", dy)
        if kernels is not None:
            parts = split.parts(g.n * g.group, share(work), g.c // g.group)
            flat = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
            rows = g.out[0] if g.window.is_point else _band(g, g.group)
            sizes = *_kernel_sizes(g, rows), g.window.is_point, parts
            run(kernels.input_gradient, g.n * g.group * parts, blas, *sizes, *flat, Piece(work))
            return out
        w, dy = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2), _rows(dy, g)

        def part(first: int, last: int, work: Any) -> None:
            for s in range(first, last):
                arrays.fill(out[s], 0)
                for rows, window, places, tile in _tiles(g, work):
                    gemm(w, dy[s][..., rows], tile)
                    col2im(tile, window, out[s : s + 1], places=places, add=True)

        by_samples(part, g, work)
        return out

    def weight_and_bias_gradients(
        self, x: Any, dy: Any, g: ConvGeometry, dw: Any, db: Any, work: Any
    ) -> bool:
        """Adds dweight to `dw` and dbias to `db` by one kernel, on CUDA; returns True."""
        implicit_gemm.weight_gradient(x, dy, g, dw, work, db)
        return True

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight' = sum over samples and bands of im2col(x) dy', transposed, to `out`; returns it."""
        if on_cuda(x):
            return implicit_gemm.weight_gradient(x, dy, g, out, work)
        kernels, blas = with_blas("implicit", dy)
        if kernels is not None:
            _weight_gradient(kernels, blas, x, dy, g, out, work)
            return out
        size, dw, dy = out.size, out.reshape(g.group, g.f // g.group, -1), _rows(dy, g)

        def part(first: int, last: int, work: Any) -> None:
            product, sums = work[-2 * size : -size], work[-size:]
            arrays.fill(sums, 0)
            for s in range(first, last):
                for rows, window, places, tile in _tiles(g, work):
                    im2col(x[s : s + 1], window, tile, places=places)
                    to = product.reshape(g.group, -1, g.f // g.group)
                    gemm(tile, dy[s][..., rows].swapaxes(1, 2), to)
                    arrays.add(product, sums)

        for piece in by_samples(part, g, work):
            arrays.add(piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2), dw)
        return out


IMPLICIT = Implicit()  # to which engines fall back that have no loops for a type or device


def _weight_gradient(
    kernels: Any, blas: int, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any
) -> None:
    """Adds dweight to `out` by compiled loops: a thread computes some channels, or some samples and bands."""
    threads, tile, flat = share(work), _tile(g), (x.reshape(-1), dy.reshape(-1))
    rows, _ = _cut(g, threads)
    units = g.n * -(-g.out[0] // rows)
    is_point = g.window.is_point
    if is_point or units < threads or (g.rows >= ROWS * threads and split.even(g.c, threads)):
        sizes = *_kernel_sizes(g, _band(g, g.group)), is_point, g.n, tile
        kernel_args = *flat, out.reshape(-1), Piece(work)
        run(kernels.weight_rows_gradient, g.c, blas, *sizes, *kernel_args)
        return
    sizes = *_kernel_sizes(g, rows), tile
    slices = run(kernels.weight_gradient, units, blas, *sizes, *flat, Piece(work))
    add_pieces(work, slices, tile, g, out)


def _across(g: ConvGeometry) -> int:
    """Returns the places of one output row: along all axes but the first."""
    return math.prod(g.out[1:])


def _band(g: ConvGeometry, groups: int = 1) -> int:
    """Returns the output rows of a band whose tile holds 1 / `groups` of the channels."""
    across = _across(g)
    return max(1, min(g.out[0], max(TILE // (g.rows // groups * across), -(-PLACES // across))))


def _bands(g: ConvGeometry) -> int:
    """Into how many bands of output rows the loops cut an image at the least; a 1 x 1 fills no tile."""
    return 1 if g.window.is_point else -(-g.out[0] // _band(g, g.group))


def _tile(g: ConvGeometry) -> int:
    """Returns the elements of a tile of one group, as the compiled loops use it."""
    return _band(g, g.group) * (g.rows // g.group) * _across(g)


@functools.lru_cache(maxsize=1024)
def _cut(g: ConvGeometry, threads: int) -> tuple[int, int]:
    """Returns output rows of a band, and parts of a group's filters, with which threads have equal work."""
    units, bands = g.n * g.group, _bands(g)
    most = min(g.out[0], 2 * g.places // PLACES)
    rows = -(-g.out[0] // split.parts(units, threads, most, bands))
    units *= -(-g.out[0] // rows)
    return rows, split.parts(units, threads, max(1, g.f // g.group // FILTERS))


@functools.lru_cache(maxsize=1024)
def _kernel_sizes(g: ConvGeometry, rows: int) -> tuple[Any, ...]:
    """Arguments of the compiled loops: sizes, the first of three axes in use, and im2col's shapes."""
    sizes = g.group, g.f // g.group, g.c // g.group, rows
    return sizes, 3 - len(g.image), (lift(g.image), g.window.lifted(), lift(g.out))


def _rows(y: Any, g: ConvGeometry) -> Any:
    """A view (n, group, f / group, places) of y."""
    return y.reshape(g.n, g.group, g.f // g.group, g.places)


def _tiles(g: ConvGeometry, work: Any) -> Iterator[tuple[slice, Window, tuple[int, ...], Any]]:
    """For each band: its places, the window that begins there, its output sizes, workspace for its columns."""
    across, most, window = _across(g), _band(g), g.window
    for row in range(0, g.out[0], most):
        rows = min(most, g.out[0] - row)
        pad = (window.pad[0] - row * window.stride[0], *window.pad[1:])
        tile = work[: g.rows * rows * across].reshape(g.group, -1, rows * across)
        places = slice(row * across, (row + rows) * across)
        yield places, dataclasses.replace(window, pad=pad), (rows, *g.out[1:]), tile
