"""Convolution as a packed GEMM of our own: neighbouring places fill a vector; no column matrix, no BLAS.

    y[f, p] = bias[f] + sum over k of w[f, k] X[where[k] + p]

X holds the channels as planes (`space_to_depth`): the pixel that place p reads through element k of the kernel
is at where[k] + p. For a 1 x 1 convolution X is the image, whose whole vectors are multiplied where they lie.
Else, for a block of places, some DEPTH elements k at a time are packed into panels (`panels`), which stay in
the cache while all weights are multiplied; a tile of filters by vectors of places stays in registers
(backends/cpu/microkernel.py). dx is the same of dy with the weight transposed. For dweight[f, k] = sum over p
of dy[f, p] X[where[k] + p] the filters fill a vector. Threads share blocks and tiles of channels of y and dx,
so that one image keeps all of them busy; for dweight they share channels of x. Source: K. Goto, R. van de
Geijn, Anatomy of High-Performance Matrix Multiplication, 2008; here the weights are not packed.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops, no_bias, no_epilogue
from minicaffe.backends.cpu.conv import panels, split
from minicaffe.backends.cpu.conv.panels import TURNED, Panels
from minicaffe.backends.cpu.conv.rows import row
from minicaffe.backends.cpu.conv.space_to_depth import LANES, Planes
from minicaffe.backends.cpu.threads import run, share
from minicaffe.core.ops.geometry import ConvGeometry, lift

RESULTS = 2**17  # sums of a block at a time, so that they stay in the cache
TILE = 8  # filters of a tile, at most


@functools.lru_cache(maxsize=4096)
def room(g: ConvGeometry, back: bool = False) -> int:
    """Returns the elements of work for y or dx: panels, planes, and the sums of a part of the targets."""
    planes = Planes(g, back)
    columns, rows = planes.columns, -(-planes.channels[1] // _parts(planes)) + TILE
    return panels.largest(planes) + planes.room + columns * min(planes.channels[1], rows)


def room_of_sums(g: ConvGeometry) -> int:
    """Returns the elements of work for dweight: the panels and planes of a block, and sums."""
    sums = g.rows // g.group * (-(-(g.f // g.group) // LANES) * LANES)
    planes = Planes(g, False, sums=True)
    return panels.largest(planes) + planes.room + sums


@row("packed_gemm.forward", work=room)
def forward(compiled, x, weight, bias, g, out, work):
    arrays = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
    _correlate(compiled, g, False, (out.reshape(-1), *arrays), work)


@row("packed_gemm.input_gradient", work=functools.partial(room, back=True))
def input_gradient(compiled, dy, weight, g, out, work):
    arrays = out.reshape(-1), dy.reshape(-1), weight.reshape(-1), no_bias(dy.dtype)
    _correlate(compiled, g, True, arrays, work)


@row("packed_gemm.weight_gradient", work=room_of_sums)
def weight_gradient(compiled, x, dy, g, out, work):
    arrays = x.reshape(-1), dy.reshape(-1), out.reshape(-1)
    run(compiled.weight_gradient, g.c, *arrays, *_sums(g, x.dtype), Piece(work))


def _correlate(kernels: Any, g: ConvGeometry, back: bool, arrays: Any, work: Any) -> None:
    """Runs the loop that computes y from x, or dx from dy with `back`."""
    units, *tables = _tables(g, back, arrays[0].dtype, share())
    channels, sizes = (g.c, g.image) if back else (g.f, g.out)
    args = no_epilogue(channels, math.prod(sizes)), *arrays, *tables, Piece(work)
    run(kernels.correlate, units, *args)


def _parts(planes: Planes) -> int:
    """Returns into how many parts the channels of the targets are cut, at least."""
    return min(-(-planes.channels[1] // TILE), -(-planes.channels[1] * planes.columns // RESULTS))


@functools.lru_cache(maxsize=256)
def _tables(g: ConvGeometry, back: bool, dtype: Any, threads: int) -> tuple[Any, ...]:
    """Returns the units of the loop for y or dx and its arguments `plane` ... `left`: see the loop."""
    planes = Planes(g, back)
    tables, tile = _panels(planes, dtype)
    units, tiles = planes.blocks * g.group, -(-planes.channels[1] // tile.ROWS)
    parts = split.parts(units, threads, tiles, _parts(planes))
    more = tables.tables, planes.back, tables.left
    return units * parts, *_layout(tables), parts, planes.phases, *more


@functools.lru_cache(maxsize=256)
def _sums(g: ConvGeometry, dtype: Any) -> tuple[Any, ...]:
    """Returns the arguments `plane` ... `turned` of the loop for dweight."""
    planes = Planes(g, False, sums=True)
    tables, _ = _panels(planes, dtype)
    turned = np.arange(TURNED, dtype=np.int32) * tables.width
    return *_layout(tables), planes.phases, tables.sums, turned


def _panels(planes: Planes, dtype: Any) -> tuple[Panels, Any]:
    """The panels for the microkernel's tile, and the microkernel."""
    tile: Any = loops("microkernel", dtype)
    return Panels(planes, int(tile.lanes(dtype)), tile.COLUMNS, tile.FEW_COLUMNS), tile


def _layout(tables: Panels) -> tuple[Any, Any]:
    """Returns the arguments `plane` and `target` of the loops: the layout of sources, targets and weight."""
    planes, g = tables.planes, tables.planes.g
    row, window = math.prod(g.weight_shape[1:]), math.prod(g.window.kernel)
    image, steps, pads = (
        tuple(getattr(axis, name) for axis in planes.axes) for name in ("size", "step", "pad")
    )
    block = g.n, *planes.block, planes.bands
    room = planes.apart, planes.room, tables.room, tables.width, planes.rows, planes.laid
    plane = planes.channels, image, steps, pads, planes.sizes, block, room
    size, (_, down, along) = lift(g.out), (1, 1, 1)
    if planes.back:
        size, (_, down, along) = lift(g.image), g.window.lifted()[1]
    places = down * size[2], along, math.prod(size)
    return plane, (places, (g.f // g.group * row, window if planes.back else row))
