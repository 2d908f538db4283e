"""Direct convolution with neighbouring places in a vector, for small batches of images: no column matrix.

    y[f, p] = bias[f] + sum over k of w[f, k] X[where[k] + p]

X are the channels as planes in which all places of a band are one flat run (see `planes`), so that through an
element k of the kernel they see pixels that lie as they do, `where[k]` further on. A tile of filters times vectors
of places stays in registers (`loops.tile`). dx is the same of dy with the weight turned; dweight[f, k] is the
sum over p of dy[f, p] X[where[k] + p]. Forward and dx split into samples, bands and tiles of filters, so that
one image keeps all threads busy; dweight into tiles of filters. Needs Numba.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minicaffe.ops import loops as compiled
from minicaffe.ops.conv.common import no_bias
from minicaffe.ops.conv.planes import Planes
from minicaffe.ops.geometry import ConvGeometry, lift
from minicaffe.ops.loops import loops
from minicaffe.ops.record import Piece
from minicaffe.ops.threads import run

TILE = 8  # filters of a tile at the most
MOST = 2**31  # elements that a table can tell apart


def recordable(dtype: Any) -> bool:
    """Whether all that it does is compiled loops."""
    return loops("places", dtype) is not None


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken."""
    if not compiled.available():
        return "it needs Numba"
    if max(_elements(g), math.prod(g.weight_shape)) >= MOST:
        return "its planes are too large"
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: a band of planes, and the sums of a tile or what they are of."""
    return _elements(g)


def forward_workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs for `forward`."""
    return _room(Planes(g, False))


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    taps = math.prod(g.weight_shape[1:])
    weights = g.f // g.group * taps, taps
    given = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
    _correlate(*given, out.reshape(-1), g, False, (lift(g.out), (1, 1, 1)), weights, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx, into `out`."""
    stride = g.window.lifted()[1]
    weights = g.f // g.group * math.prod(g.weight_shape[1:]), math.prod(g.window.kernel)
    given = dy.reshape(-1), weight.reshape(-1), no_bias(dy.dtype)
    _correlate(*given, out.reshape(-1), g, True, (lift(g.image), stride), weights, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight, added to `out`."""
    fast: Any = loops("places", x.dtype)
    numbers, *tables, room, vector = _numbers(g, False, x.dtype)
    flat = x.reshape(-1), dy.reshape(-1), out.reshape(-1)
    row = math.prod(g.weight_shape[1:])
    tiles = g.group * -(-(g.f // g.group) // fast.ROWS)
    own = g.n, numbers, lift(g.out), row, *tables, room, vector, Piece(work)
    run(fast.weigh, tiles, *flat, *own)
    return out


def _correlate(
    x: Any,
    w: Any,
    bias: Any,
    y: Any,
    g: ConvGeometry,
    back: bool,
    target: Any,
    weights: Any,
    work: Any,
) -> None:
    fast: Any = loops("places", x.dtype)
    numbers, *tables, room, vector = _numbers(g, back, x.dtype)
    (_, f, groups), *_, (_, bands) = numbers
    units = g.n * groups * bands * -(-f // fast.ROWS)
    own = numbers, target, weights, *tables, room, vector, Piece(work)
    run(fast.correlate, units, x, w, bias, y, *own)


def _elements(g: ConvGeometry) -> int:
    return max(_room(Planes(g, False)), _room(Planes(g, True)))


@functools.lru_cache(maxsize=4096)
def _room(planes: Planes) -> int:
    return planes.room + TILE * planes.run


@functools.lru_cache(maxsize=256)
def _numbers(g: ConvGeometry, back: bool, dtype: Any) -> tuple[Any, ...]:
    """What the loops want to know of one direction: numbers, phases, jobs, steps, places, room, lanes."""
    tile: Any = loops("tile", dtype)
    planes, vector = Planes(g, back), tile.lanes(dtype)
    starts = np.arange(0, planes.run, vector, np.int32)
    places = np.stack((starts, starts), axis=1)
    return planes.numbers, planes.phases, *planes.tables, places, planes.room, vector
