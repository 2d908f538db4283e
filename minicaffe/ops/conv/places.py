"""Direct convolution with neighbouring places in a vector, for small batches of images: no column matrix.

    y[f, p] = bias[f] + sum over k of w[f, k] X[where[k] + p]

X are the channels as planes in which all places of a band are one flat run (see `planes`), so that through an
element k of the kernel they see pixels that lie as they do, `where[k]` further on. A tile of filters by
vectors of places stays in registers (`loops.tile`). dx is the same of dy with the weight turned; dweight[f, k]
is the sum over p of dy[f, p] X[where[k] + p]. Forward and dx split into samples, bands and tiles of filters,
so that one image keeps all threads busy; dweight into tiles of filters, which add to it themselves. Where
there are no compiled loops, on CUDA and without Numba, it is `implicit`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from minicaffe.backend import on_cuda
from minicaffe.ops.conv import implicit
from minicaffe.ops.conv.implicit import cuda_workspace
from minicaffe.ops.conv.planes import Planes
from minicaffe.ops.geometry import ConvGeometry, lift
from minicaffe.ops.loops import loops, no_bias
from minicaffe.ops.row import Piece
from minicaffe.ops.threads import run

__all__ = ["cuda_workspace", "forward", "input_gradient", "refuses", "weight_gradient", "workspace"]
COMPILED = True  # of use to the planner only where there are compiled loops
TILE = 8  # filters of a tile at the most
MOST = 2**31  # elements that a table can tell apart


def recordable(dtype: Any) -> bool:
    """Whether all that it does is compiled loops."""
    return loops("places", dtype) is not None


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: places are counted in 32 bits."""
    if max(_room(Planes(g, False)), _room(Planes(g, True)), math.prod(g.weight_shape)) >= MOST:
        return f"it needs a row of images, and weights, of less than {MOST} numbers"
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: a band of planes, and a tile of sums or of what they are of."""
    own = max(_room(Planes(g, False)), _room(Planes(g, True)))
    return max(own, implicit.workspace(g, limit))


def forward_workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs for `forward`."""
    return max(_room(Planes(g, False)), implicit.forward_workspace(g, limit))


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    fast = _loops(x)
    if fast is None:
        return implicit.forward(x, weight, bias, g, out, work)
    arrays = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
    _correlate(fast, g, False, (*arrays, out.reshape(-1)), work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx, into `out`."""
    fast = _loops(dy)
    if fast is None:
        return implicit.input_gradient(dy, weight, g, out, work)
    arrays = dy.reshape(-1), weight.reshape(-1), no_bias(dy.dtype), out.reshape(-1)
    _correlate(fast, g, True, arrays, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight, added to `out`."""
    fast = _loops(x)
    if fast is None:
        return implicit.weight_gradient(x, dy, g, out, work)
    numbers, *tables = _numbers(Planes(g, False, laid=True), x.dtype)
    arrays = x.reshape(-1), dy.reshape(-1), out.reshape(-1)
    tiles = -(-(g.f // g.group) // fast.ROWS)
    run(fast.weigh, g.group * tiles, *arrays, g.n, *numbers, *tables, Piece(work))
    return out


def _loops(x: Any) -> Any:
    return None if on_cuda(x) else loops("places", x.dtype)


def _correlate(fast: Any, g: ConvGeometry, back: bool, arrays: Any, work: Any) -> None:
    """Targets of sources, x and y or dy and dx: a unit is a tile of channels of a band of a sample."""
    planes = Planes(g, back)
    numbers, *tables = _numbers(planes, arrays[0].dtype)
    units = g.n * g.group * planes.bands * -(-planes.channels[1] // fast.ROWS)
    run(fast.correlate, units, *arrays, *numbers, *tables, Piece(work))


@functools.lru_cache(maxsize=4096)
def _room(planes: Planes) -> int:
    """Elements of work: planes, and a tile."""
    return planes.room + TILE * planes.run


@functools.lru_cache(maxsize=256)
def _numbers(planes: Planes, dtype: Any) -> tuple[Any, ...]:
    """What the loops want to know of one direction: `plane`, `target`, tables; see there."""
    tile: Any = loops("tile", dtype)
    g, vector = planes.g, int(tile.lanes(dtype))
    row, window = math.prod(g.weight_shape[1:]), math.prod(g.window.kernel)
    group = g.f // g.group * row
    target: Any = lift(g.out), (1, 1, 1), (group, row)
    if planes.back:
        target = lift(g.image), g.window.lifted()[1], (group, window)
    plane = *planes.numbers, (planes.room, vector, int(planes.flat))
    return (plane, target), planes.phases, *planes.tables, planes.starts(vector)
