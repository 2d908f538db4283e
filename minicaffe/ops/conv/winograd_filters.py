"""Winograd's convolution with all tiles at a time and some filters after the other, by compiled loops.

That is for small images of many channels, of which U is large beside the tiles: F(4x4, 3x3) makes four
numbers of one of the weight. If it were written to memory and read again, by each thread, that would take as
long as the products. So the tiles of all samples are transformed first, for all threads, and of U a block of
filters at a time, which stays in a thread's cache: see `loops.winograd_filters`. m and the letters are those
of `winograd`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from minicaffe.cpu import loops, no_bias
from minicaffe.cpu.threads import Piece
from minicaffe.ops.conv.strips import GAP, Strips, strips, tables, taps
from minicaffe.ops.conv.transforms import by_axes, of_weights
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.replay.dispatch import run

OF_TILES = 2**22  # elements of V of all samples, at the most: it is read again for each block
OF_BLOCK = 2**18  # of a block of U, and of sums that become dweight, if so few filters make one
CHANNELS = 16  # of a group at the least: fewer do not fill a vector
LARGE = 2**16  # elements of U, of which as many and fewer stay in the cache as they are
WIDTHS = (4, 8, 16)  # numbers of vectors of 256 or 512 bits
FEWEST = 5  # filters of a block at the least, whatever the loops' tiles of sums


@dataclass(frozen=True)
class Filters:
    """All tiles of F(m x m, r x r), and its filters in blocks."""

    strips: Strips

    @functools.cached_property
    def tiles(self) -> int:
        """Of all samples."""
        return self.strips.g.n * math.prod(self.strips.tiles)

    @functools.cached_property
    def line(self) -> int:
        """Elements of a line: with a vector more, which would else reach that of another thread."""
        return self._odd(self.tiles + self.strips.lanes - 1)

    @functools.cached_property
    def wide(self) -> int:
        """Elements of a tile of V where channels of a group lie side by side."""
        return self._odd(self.strips.g.c // self.strips.g.group)

    def _odd(self, count: int) -> int:
        """So many elements as an odd number of vectors, whose sets in the cache differ."""
        return (-(-count // self.strips.lanes) | 1) * self.strips.lanes

    @functools.cached_property
    def told(self) -> tuple[Any, ...]:
        """What the loops are told of the convolution."""
        whole = self.strips.g.n, self.strips.tiles[0]
        sizes, _, *told = self.strips.told(whole, self.line, None)
        return sizes, *told

    def pay(self) -> bool:
        """Whether U is large, also beside the tiles, and those stay in the cache. No stride is taken."""
        g = self.strips.g
        if max(g.window.stride) > 1 or g.c // g.group < CHANNELS:
            return False
        if math.prod(self.strips.points) * g.f * (g.c // g.group) <= LARGE:
            return False
        if self.size(g.c, self.line) > OF_TILES:
            return False
        return 2 * g.f * (g.c // g.group) > self.tiles * (g.c + g.f)

    def block(self, rows: int) -> tuple[int, int]:
        """Filters of a block, a multiple of so many, and how far its points are apart."""
        of_one = math.prod(self.strips.points) * self.wide
        high = max(rows, OF_BLOCK // of_one // rows * rows)
        return high, self._odd(high * self.wide)

    @functools.cached_property
    def forth(self) -> tuple[np.ndarray, ...]:
        """Tables of U = G weight: its elements, vectors of kernels, and where each element's are."""
        both = tables(self._elements, self.wide, self.strips.lanes)
        return *both, _places(self._elements, self.wide)

    def back(self, apart: int) -> tuple[np.ndarray, ...]:
        """Tables of dweight = G' sums: its points, so far apart, and the others."""
        points = _steps(math.prod(self.strips.points), self._elements, apart)
        return points, *self.forth[1:]

    @property
    def _elements(self) -> int:
        """Of a kernel."""
        return math.prod(self.strips.g.window.kernel)

    def size(self, count: int, line: int) -> int:
        """Elements of points with so many lines."""
        return math.prod(self.strips.points) * (count * line + GAP)

    @property
    def least(self) -> int:
        """Elements of work for one thread: V in either form and M, which are for all, and what is its own."""
        g, high = self.strips.g, max(FEWEST, self.block(1)[0])
        v = max(self.size(g.c, self.line), self.size(g.group * self.tiles, self.wide))
        block = self.size(high, self.wide) + self.size(high, self.line)
        own = max(block + self._elements * self.wide, self.size(self.strips.lanes, self.line))
        return v + self.size(g.f, self.line) + self.strips.cut[4] + own


@functools.lru_cache(maxsize=1024)
def filters(g: ConvGeometry, m: int, lanes: int) -> Filters | None:
    """Those of a convolution that is better taken so, remembered."""
    found = Filters(strips(g, m, lanes))
    return found if found.pay() else None


@functools.lru_cache(maxsize=1024)
def least(g: ConvGeometry, m: int) -> int:
    """Elements of work that a thread needs, in this way or in strips, however wide its vectors are."""
    return max(max(strips(g, m, lanes).least, _least(g, m, lanes)) for lanes in WIDTHS)


@functools.lru_cache(maxsize=1024)
def enough(g: ConvGeometry, m: int) -> int:
    """Elements of work that a thread makes good use of, however wide its vectors are."""
    return max(max(strips(g, m, lanes).enough, _least(g, m, lanes)) for lanes in WIDTHS)


def _least(g: ConvGeometry, m: int, lanes: int) -> int:
    found = filters(g, m, lanes)
    return found.least if found else 0


def correlate(
    found: Filters, x: Any, weight: Any, bias: Any | None, turned: bool, out: Any, work: Any
) -> None:
    """Compute y; or dx, of dy and the weight `turned` back to front."""
    fast: Any = loops("winograd_filters", x.dtype)
    g, m = found.strips.g, found.strips.m
    k, f, end = g.c // g.group, g.f // g.group, found.size(g.c, found.line)
    told, v, own = (found.told, _axes(m, x, g)), work[:end], Piece(work[end:])
    run(fast.images, g.c, *told, x.reshape(-1), v, own)
    matrix = of_weights(m, g.window.kernel, g.window.stride, x.dtype, turned)
    kernels = matrix, weight.reshape(-1), (k, f) if turned else (f, k), turned, found.forth
    product = (
        tables(k, found.line, found.strips.lanes),
        v,
        no_bias(x.dtype) if bias is None else bias,
    )
    given = found.block(fast.ROWS), *kernels, *product, out.reshape(-1), own
    run(fast.forward, _units(g.f, g, fast.ROWS), *told, *given)


def weight_gradient(found: Filters, x: Any, dy: Any, out: Any, work: Any) -> None:
    """Add dweight to `out`."""
    fast: Any = loops("winograd_filters", x.dtype)
    g, m = found.strips.g, found.strips.m
    lanes, product = found.strips.lanes, tables(found.tiles, found.wide, found.strips.lanes)
    end = found.size(g.group * found.tiles, found.wide)
    last = end + found.size(g.f, found.line)
    told, v, results, own = (
        (found.told, _axes(m, x, g)),
        work[:end],
        work[end:last],
        Piece(work[last:]),
    )
    side_by_side = _places(found.tiles, found.wide), found.wide, v, own
    run(fast.images_turned, _units(g.c, g, lanes), *told, x.reshape(-1), *side_by_side)
    run(fast.results, g.f, *told, dy.reshape(-1), results, own)
    matrix = of_weights(m, g.window.kernel, g.window.stride, x.dtype, False)
    block = found.block(fast.ROWS)
    given = block, matrix, found.back(block[1]), product, v, results, out.reshape(-1), own
    run(fast.weight_gradient, _units(g.f, g, fast.ROWS), *told, *given)


def _axes(m: int, x: Any, g: ConvGeometry) -> Any:
    """The matrices of both axes."""
    return by_axes(m, taps(g.window), x.dtype)


def _units(count: int, g: ConvGeometry, each: int) -> int:
    """How many of so many channels of a group there are."""
    return g.group * -(-(count // g.group) // each)


@functools.lru_cache(maxsize=1024)
def _places(count: int, apart: int) -> Any:
    """Where each of so many is."""
    return (np.arange(count) * apart).astype(np.int32)


@functools.lru_cache(maxsize=1024)
def _steps(count: int, apart: int, further: int) -> Any:
    """The same in two arrays."""
    return np.stack([_places(count, apart), _places(count, further)], axis=1)
