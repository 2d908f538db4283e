"""Winograd's convolution by compiled loops for all tiles at a time, and one block of filters after another.

It is for small images with many channels, for which U is large beside the tiles: F(4x4, 3x3) computes four
numbers of U from each number of the weight. To write U to memory and read it again, in each thread, would take
as long as the products. So the tiles of all samples are transformed first, for all threads; then each thread
computes U for a block of filters, which stays in its cache: see backends/cpu/kernels/winograd_filters.py. m
and the letters are those of `winograd`.
"""

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, loops, no_bias, no_epilogue
from minicaffe.backends.cpu.conv.strips import GAP, Strips, strips
from minicaffe.backends.cpu.skinny import table
from minicaffe.backends.cpu.threads import run
from minicaffe.core.ops.conv.winograd import by_axes, of_weights, taps
from minicaffe.core.ops.geometry import ConvGeometry

OF_TILES = 2**22  # elements of V of all samples, at most: each block reads V again
# Elements of a block of U, or of sums that become dweight, unless its filters are few
OF_BLOCK = 2**18
CHANNELS = 16  # of a group, at least: fewer do not fill a vector
LARGE = 2**16  # elements up to which a whole U stays in the cache
WIDTHS = (4, 8, 16)  # numbers of vectors of 256 or 512 bits
FEWEST = 8  # filters of a block, at least, for every microkernel


class Filters:
    """All tiles of F(m x m, r x r), and the filters in blocks. Lines are rows of V and M, of all tiles."""

    def __init__(self, strips: Strips):
        self.strips, g = strips, strips.g
        self.points = math.prod(strips.points)  # of a tile
        self.elements = math.prod(g.window.kernel)  # of a kernel
        self.tiles = g.n * math.prod(strips.tiles)  # of all samples
        # Elements of a line: a vector more than its tiles, so that no store reaches another thread's line
        self.line = self._odd(self.tiles + strips.lanes - 1)
        # Elements of a tile of V if the channels of a group lie side by side
        self.wide = self._odd(g.c // g.group)
        # Of U = G weight: how far the kernels' elements are apart, and the offset of each
        self.forth = self.wide, _offsets(self.elements, self.wide)

    def _odd(self, count: int) -> int:
        """Returns `count` rounded up to an odd number of vectors, so that lines differ in their cache sets."""
        return (-(-count // self.strips.lanes) | 1) * self.strips.lanes

    @functools.cached_property
    def kernel_args(self) -> tuple[Any, ...]:
        """The arguments of the loops that describe the convolution."""
        whole = self.strips.g.n, self.strips.tiles[0]
        sizes, _, *layout = self.strips.kernel_args(whole, self.line, None)
        return sizes, *layout

    def pay(self) -> bool:
        """Whether blocks of filters are faster: U is large, V fits the cache, and there are no strides."""
        g, channels = self.strips.g, self.strips.g.c // self.strips.g.group
        fits = channels >= CHANNELS and self.size(g.c, self.line) <= OF_TILES
        large = self.points * g.f * channels > LARGE
        plain = max(g.window.stride) == 1
        return plain and fits and large and 2 * g.f * channels > self.tiles * (g.c + g.f)

    def block(self, rows: int) -> tuple[int, int]:
        """Returns the filters of a block, a multiple of `rows`, and the distance of its points."""
        high = max(rows, OF_BLOCK // (self.points * self.wide) // rows * rows)
        return high, self._odd(high * self.wide)

    def back(self, apart: int) -> tuple[Any, ...]:
        """Returns the table of dweight = G' sums, points at distance `apart`, and `forth`."""
        return table(self.points, self.elements, apart), *self.forth

    def size(self, count: int, line: int) -> int:
        """Returns the elements of an array of all points with `count` lines each."""
        return self.points * (count * line + GAP)

    @property
    def least(self) -> int:
        """Elements of work for one thread: V in either layout and M, for all threads, and its own blocks."""
        g, high = self.strips.g, max(FEWEST, self.block(1)[0])
        v = max(self.size(g.c, self.line), self.size(g.group * self.tiles, self.wide))
        block = self.size(high, self.wide) + self.size(high, self.line)
        own = max(block + self.elements * self.wide, self.size(self.strips.lanes, self.line))
        return v + self.size(g.f, self.line) + self.strips.cut[4] + own


@functools.lru_cache(maxsize=1024)
def filters(g: ConvGeometry, m: int, lanes: int) -> Filters | None:
    """Returns the blocks of a convolution if they are faster, else None; cached."""
    blocks = Filters(strips(g, m, lanes))
    return blocks if blocks.pay() else None


def correlate(
    blocks: Filters, x: Any, weight: Any, bias: Any | None, turned: bool, out: Any, work: Any
) -> None:
    """Writes y to `out`; or, with `turned`, dx: then x is dy and the weight is transposed and reversed."""
    kernels: Any = loops("winograd_filters", x.dtype)
    g, m = blocks.strips.g, blocks.strips.m
    k, f, end = g.c // g.group, g.f // g.group, blocks.size(g.c, blocks.line)
    sizes = blocks.kernel_args, by_axes(m, taps(g.window), x.dtype)
    v, own = work[:end], Piece(work[end:])
    run(kernels.images, g.c, *sizes, x.reshape(-1), v, own)
    matrix = of_weights(m, g.window.kernel, g.window.stride, x.dtype, turned)
    weights = matrix, weight.reshape(-1), (k, f) if turned else (f, k), turned, blocks.forth
    results = v, no_bias(x.dtype) if bias is None else bias, own
    kernel_args = blocks.block(kernels.ROWS), weights, *results
    run(kernels.forward, _units(g.f, g, kernels.ROWS), *no_epilogue(out), *sizes, *kernel_args)


def weight_gradient(blocks: Filters, x: Any, dy: Any, out: Any, work: Any) -> None:
    """Adds dweight to `out` (f, c / group, *kernel)."""
    kernels: Any = loops("winograd_filters", x.dtype)
    g, m = blocks.strips.g, blocks.strips.m
    lanes = blocks.strips.lanes
    end = blocks.size(g.group * blocks.tiles, blocks.wide)
    last = end + blocks.size(g.f, blocks.line)
    sizes = blocks.kernel_args, by_axes(m, taps(g.window), x.dtype)
    v, results, own = work[:end], work[end:last], Piece(work[last:])
    side_by_side = _offsets(blocks.tiles, blocks.wide), blocks.wide, v, own
    run(kernels.images_turned, _units(g.c, g, lanes), *sizes, x.reshape(-1), *side_by_side)
    run(kernels.results, g.f, *sizes, dy.reshape(-1), results, own)
    matrix = of_weights(m, g.window.kernel, g.window.stride, x.dtype, False)
    block = blocks.block(kernels.ROWS)
    kernel_args = block, matrix, blocks.back(block[1]), v, results, out.reshape(-1), own
    run(kernels.weight_gradient, _units(g.f, g, kernels.ROWS), *sizes, *kernel_args)


def _units(count: int, g: ConvGeometry, each: int) -> int:
    """Returns the number of units, each with at most `each` of `count` channels, all of one group."""
    return g.group * -(-(count // g.group) // each)


@functools.lru_cache(maxsize=1024)
def _offsets(count: int, apart: int) -> Any:
    """Returns the offsets of `count` entries, `apart` elements from each other, (count,) int32."""
    return (np.arange(count) * apart).astype(np.int32)
