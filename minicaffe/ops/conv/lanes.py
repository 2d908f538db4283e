"""Samples side by side: a vector holds one pixel of 16 of them, and no column matrix is ever formed.

Blocks of samples are turned so, band by band of the output's rows, with the padding around each band; then
every output is a sum over the kernel of a weight times a vector, a tile of such sums in the registers
(`loops.tile`). What meets what is said by two tables, which are all that differs between a convolution and
its input's gradient. There outputs are sorted by their phase, the remainder of their place by the stride,
since only every stride-th element of a kernel sees them, and in both, where much is padding, by the elements
that see something else (`lanes_tables`):

    y[o]  = sum over t of w[t] x[o stride - pad + t dilation]                              one phase
    dx[i] = sum over t of w[t] dy[(i + pad - t dilation) / stride]      where that is whole: a phase's steps

Where there are no compiled loops, on CUDA and without Numba, it is `implicit`. It pays from some 16 samples a
thread on, 8 in float64.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from minicaffe.backend import on_cuda
from minicaffe.cpu import loops
from minicaffe.cpu.piece import Piece
from minicaffe.cpu.threads import share
from minicaffe.ops.conv import implicit
from minicaffe.ops.conv.implicit import cuda_workspace
from minicaffe.ops.conv.lanes_tables import COLUMNS, WIDTHS, sweep
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.replay.dispatch import run

__all__ = [
    "cuda_workspace",
    "forward",
    "input_gradient",
    "recordable",
    "refuses",
    "weight_gradient",
    "workspace",
]
CHUNK = 128  # places that are summed at a time
GRAIN = 2**13  # weights that a thread adds at the least
LARGEST = 2**31 // max(WIDTHS)  # entries of a sample whose places in a block an int32 holds


def recordable(dtype: Any) -> bool:
    """Whether all that it does is compiled loops."""
    return loops("lanes", dtype) is not None


def only_compiled(g: ConvGeometry) -> bool:
    """Whether it is for compiled loops alone."""
    return True


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: its blocks must be counted in 32 bits."""
    if max(g.c * math.prod(g.image), g.f * g.places, math.prod(g.weight_shape)) >= LARGEST:
        return f"it needs samples and weights of less than {LARGEST} numbers"
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: a band of the source and one of the result, and sums of dweight."""
    sums = max(sweep(g, False, count, True).entries for count in WIDTHS) + math.prod(g.weight_shape)
    return max(sums, _entries(g, False), _entries(g, True), implicit.workspace(g, limit))


def forward_workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs for `forward`: a band of the input, and a tile of filters of the output."""
    return max(_entries(g, False), implicit.forward_workspace(g, limit))


def _entries(g: ConvGeometry, turned: bool) -> int:
    ways = itertools.product(WIDTHS, COLUMNS)
    return max(sweep(g, turned, count, columns=columns).entries for count, columns in ways)


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    fast = None if on_cuda(x) else loops("lanes", x.dtype)
    if fast is None:
        return implicit.forward(x, weight, bias, g, out, work)
    _multiply(fast, x, weight, bias, g, False, out, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx: each of its pixels from the outputs that saw it, phase by phase; into `out`."""
    fast = None if on_cuda(dy) else loops("lanes", dy.dtype)
    if fast is None:
        return implicit.input_gradient(dy, weight, g, out, work)
    _multiply(fast, dy, weight, None, g, True, out, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight: its sums over all places and lanes stay in registers; added to `out`."""
    fast = None if on_cuda(x) else loops("lanes", x.dtype)
    if fast is None:
        return implicit.weight_gradient(x, dy, g, out, work)
    found = sweep(g, False, fast.lanes(x.dtype), True)
    units, cut = found.units(g.n, share(work), fast.ROWS)
    given = cut, found.source, found.result, found.weights, found.tables, CHUNK
    slices = run(fast.summed, units, *given, x.reshape(-1), dy.reshape(-1), Piece(work))
    if slices:
        run(fast.added, out.size, work, slices, out.reshape(-1), grain=GRAIN)
    return out


def _multiply(
    fast: Any, x: Any, w: Any, bias: Any | None, g: ConvGeometry, turned: bool, y: Any, work: Any
) -> None:
    found, flat = sweep(g, turned, fast.lanes(x.dtype), columns=fast.COLUMNS), w.reshape(-1)
    units, cut = found.units(g.n, share(work), fast.ROWS)
    more = (flat, False) if bias is None else (bias, True)
    given = cut, found.source, found.result[:4], found.weights, found.tables
    run(fast.multiplied, units, *given, x.reshape(-1), flat, *more, Piece(work), y.reshape(-1))
