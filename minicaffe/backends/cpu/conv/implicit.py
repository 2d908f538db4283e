"""Implicit GEMM by compiled loops that compute all bands of a thread and call BLAS themselves.

Threads share samples, groups and bands, and if these are few also blocks of filters or channels. The bands
and tiles are those of core/ops/conv/implicit.py, the loops those of backends/cpu/kernels/implicit.py.
"""

import functools
from typing import Any

from minicaffe.backends.cpu import Piece, loops, no_bias, no_epilogue
from minicaffe.backends.cpu.ops import row
from minicaffe.backends.cpu.threads import even_parts, evenly, run, share
from minicaffe.core.ops.conv.implicit import PLACES, band, tile_size
from minicaffe.core.ops.geometry import ConvGeometry, lift

FILTERS = 16  # of a product, at least, if threads share the filters
ROWS = 64  # of the column matrix for one thread, at least, if threads share the weight gradient by rows


@row("implicit.forward", blas=True)
def forward(compiled, blas, x, weight, bias, g, out, work):
    rows, parts = _cut(g, share())
    flat = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
    units = g.n * g.group * -(-g.out[0] // rows) * parts
    sizes = *_kernel_sizes(g, rows), g.window.is_point, parts
    run(compiled.forward, units, *no_epilogue(out), blas, *sizes, *flat, Piece(work))


@row("implicit.input_gradient", blas=True)
def input_gradient(compiled, blas, dy, weight, g, out, work):
    parts = even_parts(g.n * g.group, share(), g.c // g.group)
    flat = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
    rows = g.out[0] if g.window.is_point else band(g, g.group)
    sizes = *_kernel_sizes(g, rows), g.window.is_point, parts
    run(compiled.input_gradient, g.n * g.group * parts, blas, *sizes, *flat, Piece(work))


@row("implicit.weight_gradient", of="dy", blas=True)
def weight_gradient(compiled, blas, x, dy, g, out, work):
    """A thread computes some channels, or some samples and bands."""
    threads, size, flat = share(), tile_size(g), (x.reshape(-1), dy.reshape(-1))
    rows, _ = _cut(g, threads)
    units = g.n * -(-g.out[0] // rows)
    is_point = g.window.is_point
    if is_point or units < threads or (g.rows >= ROWS * threads and evenly(g.c, threads)):
        sizes = *_kernel_sizes(g, band(g, g.group)), is_point, g.n, size
        run(compiled.weight_rows_gradient, g.c, blas, *sizes, *flat, out.reshape(-1), Piece(work))
        return
    sizes = *_kernel_sizes(g, rows), size
    slices = run(compiled.weight_gradient, units, blas, *sizes, *flat, Piece(work))
    # Each slice's piece of work holds, behind its tile, a matrix (k, f / group) for each group
    sums = (g.f // g.group, g.rows // g.group)
    filters: Any = loops("filters", out.dtype)
    run(filters.add_pieces, g.f, work, slices, size, sums, out.reshape(-1))


@functools.lru_cache(maxsize=1024)
def _cut(g: ConvGeometry, threads: int) -> tuple[int, int]:
    """Returns output rows of a band, and parts of a group's filters, with which threads have equal work."""
    units, bands = g.n * g.group, -(-g.out[0] // band(g, g.group))
    bands = 1 if g.window.is_point else bands  # it fills no tile
    rows = -(-g.out[0] // even_parts(units, threads, min(g.out[0], 2 * g.places // PLACES), bands))
    units *= -(-g.out[0] // rows)
    return rows, even_parts(units, threads, max(1, g.f // g.group // FILTERS))


@functools.lru_cache(maxsize=1024)
def _kernel_sizes(g: ConvGeometry, rows: int) -> tuple[Any, ...]:
    """Arguments of the compiled loops: sizes, the first of three axes in use, and im2col's shapes."""
    sizes = g.group, g.f // g.group, g.c // g.group, rows
    return sizes, 3 - len(g.image), (lift(g.image), g.window.lifted(), lift(g.out))
