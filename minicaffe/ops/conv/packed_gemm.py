"""Direct convolution with neighbouring places in a vector: no column matrix, and no BLAS.

    y[f, p] = bias[f] + sum over k of w[f, k] X[where[k] + p]

X are the channels as planes in which the pixels that places see through element k of the kernel lie as the
places do, `where[k]` further on (see `planes`); those of a 1 x 1 convolution are the image. Of a block of
places, some DEPTH elements at a time are gathered into panels, which stay near while the weights
pass by (see `panels`), and a tile of filters by vectors of places stays in registers (`loops.tile`): the
layers of K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008, without a copy
of the weights. dx is the same of dy with the weight turned. Of dweight[f, k], the sum over p of dy[f, p]
X[where[k] + p], filters are in the vectors. y and dx split into blocks and tiles of channels, so that one
image keeps all threads busy; dweight into channels of x. Where there are no compiled loops, on CUDA and
without Numba, it is `implicit`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.cpu import loops, no_bias
from minicaffe.cpu.threads import Piece, share
from minicaffe.ops.conv import panels, split
from minicaffe.ops.conv.engine import Engine
from minicaffe.ops.conv.implicit import IMPLICIT
from minicaffe.ops.conv.panels import TURNED, Panels
from minicaffe.ops.conv.space_to_depth import LANES, Planes
from minicaffe.ops.geometry import ConvGeometry, lift
from minicaffe.replay.dispatch import run

RESULTS = 2**17  # of a block that are summed at a time, so that they stay in the cache
TOLD = 2**31  # elements that a table can tell apart
TILE = 8  # filters of a tile at the most


class PackedGemm(Engine):
    """Places in vectors, packed in panels: no column matrix, no BLAS."""

    name = "places"
    traced = True

    def is_compiled(self, dtype: Any) -> bool:
        """Whether all that it does is compiled loops."""
        return loops("packed_gemm", dtype) is not None

    def needs_compiled(self, g: ConvGeometry) -> bool:
        """Whether it is for compiled loops alone."""
        return True

    def refuses(self, g: ConvGeometry) -> str | None:
        """Why a shape cannot be taken: places are counted in 32 bits."""
        if max(_room(g, back) for back in (False, True)) + math.prod(g.weight_shape) >= TOLD:
            return f"it needs images of a block, and weights, of less than {TOLD} numbers"
        return None

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs: a panel, the planes of a block, and sums."""
        sums = g.rows // g.group * (-(-(g.f // g.group) // LANES) * LANES)
        planes = Planes(g, False, sums=True)
        weight = panels.most(planes) + planes.room + sums
        return max(_room(g, False), _room(g, True), weight, IMPLICIT.workspace(g, limit))

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs for `forward`."""
        return max(_room(g, False), IMPLICIT.forward_workspace(g, limit))

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Elements that `implicit` needs on CUDA."""
        return IMPLICIT.cuda_workspace(g, limit, itemsize)

    def forward(
        self, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
    ) -> Any:
        """y = weight * x + bias, into `out`."""
        fast = _loops(x)
        if fast is None:
            return IMPLICIT.forward(x, weight, bias, g, out, work)
        arrays = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
        _correlate(fast, g, False, (*arrays, out.reshape(-1)), work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dx, into `out`."""
        fast = _loops(dy)
        if fast is None:
            return IMPLICIT.input_gradient(dy, weight, g, out, work)
        arrays = dy.reshape(-1), weight.reshape(-1), no_bias(dy.dtype), out.reshape(-1)
        _correlate(fast, g, True, arrays, work)
        return out

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dweight, added to `out`."""
        fast = _loops(x)
        if fast is None:
            return IMPLICIT.weight_gradient(x, dy, g, out, work)
        arrays = x.reshape(-1), dy.reshape(-1), out.reshape(-1)
        run(fast.weigh, g.c, *arrays, *_sums(g, x.dtype), Piece(work))
        return out


def _loops(x: Any) -> Any:
    return None if on_cuda(x) else loops("packed_gemm", x.dtype)


def _correlate(fast: Any, g: ConvGeometry, back: bool, arrays: Any, work: Any) -> None:
    """Targets of sources, x and y or dy and dx."""
    units, *tables = _tables(g, back, arrays[0].dtype, share(work))
    run(fast.correlate, units, *arrays, *tables, Piece(work))


@functools.lru_cache(maxsize=4096)
def _room(g: ConvGeometry, back: bool) -> int:
    """Elements of work for y or dx: a panel, planes, and sums of a part of the targets."""
    planes = Planes(g, back)
    columns, rows = planes.columns, -(-planes.channels[1] // _parts(planes)) + TILE
    return panels.most(planes) + planes.room + columns * min(planes.channels[1], rows)


def _parts(planes: Planes) -> int:
    """Into how many parts targets are cut at the least."""
    return min(-(-planes.channels[1] // TILE), -(-planes.channels[1] * planes.columns // RESULTS))


@functools.lru_cache(maxsize=256)
def _tables(g: ConvGeometry, back: bool, dtype: Any, threads: int) -> tuple[Any, ...]:
    """Units of the loop for y or dx, and what it wants to know: `plane`, `target`, tables; see there."""
    planes = Planes(g, back)
    tables, tile = _panels(planes, dtype)
    units, tiles = planes.blocks * g.group, -(-planes.channels[1] // tile.ROWS)
    parts = split.parts(units, threads, tiles, _parts(planes))
    return units * parts, *_numbers(tables), parts, planes.phases, tables.tables, tables.across


@functools.lru_cache(maxsize=256)
def _sums(g: ConvGeometry, dtype: Any) -> tuple[Any, ...]:
    """What the loop for dweight wants to know."""
    planes = Planes(g, False, sums=True)
    tables, _ = _panels(planes, dtype)
    turned = np.arange(TURNED, dtype=np.int32) * tables.width
    return *_numbers(tables), planes.phases, tables.sums, tables.across, turned


def _panels(planes: Planes, dtype: Any) -> tuple[Panels, Any]:
    tile: Any = loops("microkernel", dtype)
    return Panels(planes, int(tile.lanes(dtype)), tile.COLUMNS), tile


def _numbers(tables: Panels) -> tuple[Any, Any]:
    """`plane` and `target`."""
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
