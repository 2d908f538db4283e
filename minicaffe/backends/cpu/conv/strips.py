"""Blocking of Winograd's compiled loops: a convolution is cut into units, and a unit into strips of tiles.

A unit is some samples, or a band of rows of tiles of one sample; a strip is one row of tiles. The arguments
of the loops are described in backends/cpu/kernels/winograd.py, strips and their room in
winograd_transforms.py there.
"""

import functools
import math
from typing import Any

import numpy as np

from minicaffe.backends.cpu.threads import even_parts
from minicaffe.core.ops.conv.winograd import TILES, even, taps, two
from minicaffe.core.ops.geometry import ConvGeometry, Window

FEWEST = 8  # tiles of a product, at least, if threads share the tiles of one sample
IN_CACHE = 2**18  # elements of V and M of a unit
IN_ROOM = 2**12  # elements of strips that are transformed at a time: they stay in the first cache
BLOCK = 4  # pixels that are read at a time, at most
GAP = 64  # elements between the matrices of two points, at most


class Strips:
    """The tiles of F(m x m, r x r) for vectors of `lanes` numbers; a line is a row of V or M, of all tiles."""

    def __init__(self, g: ConvGeometry, m: int, lanes: int):
        self.g, self.m, self.lanes = g, m, lanes
        window, out = g.window, two(g.out, 1)
        dilation, stride = two(window.dilation, 1), two(window.stride, 1)
        self.pad = two(window.pad, 0)
        # Points, and outputs, of a tile along each axis
        self.points = two([even(m + r - 1) for r in taps(window)], 1)
        self.step = (1 if len(g.image) == 1 else m), m
        # For each axis, the distance of neighbouring pixels of a tile, and the tiles of one phase
        sizes = zip(out, dilation, stride, self.step, strict=True)
        self.phases = tuple((d * s, -(-o // (d * step))) for o, d, s, step in sizes)
        # Tiles of an image along each axis, those of all phases if it is dilated
        axes = zip(out, dilation, self.phases, strict=True)
        rows, columns = self.tiles = tuple(min(o, d) * tiles for o, d, (_, tiles) in axes)
        # Channels of V, where each plane of a channel counts as one, and of M
        self.channels = g.c * math.prod(stride), g.f
        # Elements of U, and as many of the sums that become dweight; and of a tile of V and of M
        self.weights = math.prod(self.points) * math.prod(self.channels) // g.group
        self.tile = math.prod(self.points) * sum(self.channels)
        # Elements behind the tiles of a line: planes are not read in the order of their lines, so a vector
        # that overruns would damage the next line
        self.behind = lanes - 1 if max(stride) > 1 else 0
        # Tiles of a unit, at most: they fit the cache, or are as large as U, which each unit reads
        self.most = max(TILES, (IN_CACHE + self.weights) // self.tile)
        self.cut = self._cut()
        # Elements of work that a thread needs: U or the sums, the room, and V and M of a row of tiles; and
        # those with which it computes as many tiles at a time as is fastest
        tiles = max(columns, min(g.n * rows * columns, self.most))
        self.least = self.weights + self.cut[4] + self._elements(self.line(columns))
        self.enough = self.weights + self.cut[4] + self._elements(self.line(tiles))

    def _cut(self) -> tuple[int, int, int, int, int, int]:
        """Returns the room of a thread, in which strips are transformed.

        Strips; pitch; offsets of the pixels that are read and of points after one axis; elements; and the
        pixels of a phase in a row.
        """
        (t0, t1), (m0, m1), columns = self.points, self.step, self.tiles[1]
        # The pixels of a row of x and of dy that are transformed, a vector at least
        widths = two(self.g.image, 1)[1] + min(0, self.pad[1]), two(self.g.out, 1)[1]
        wide = [max(width, self.lanes) for width in widths]
        between, of_phase = self.phases[1]
        seen = (of_phase - 1) * m1 + -(-t1 // BLOCK) * BLOCK
        pitch = max(between * seen, max(0, self.pad[1]) + wide[0], wide[1])
        pitch = -(-pitch // self.lanes) * self.lanes
        most = max(1, min(self.g.n * self.tiles[0], IN_ROOM // (t0 * pitch)))
        own, half = (most + 1) * t0 * pitch, (most + 1) * m0 * columns * m1 + BLOCK
        plane = max(t0, (most - 1) * m0 + t0) * pitch  # at the most, of what is added up
        reads, writes = own + plane, half + m0 * t1 * self._vectors(most)
        return most, pitch, own, half, -(-max(reads, writes) // GAP) * GAP, seen

    def _vectors(self, strips: int) -> int:
        """Returns the tiles of so many strips, in whole vectors."""
        return -(-strips * self.tiles[1] // self.lanes) * self.lanes

    @functools.cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Offsets in the room at which each tile is read and written; those that fill a vector lie last."""
        (most, pitch, *_, seen), columns, (m0, m1) = self.cut, self.tiles[1], self.step
        strip, column = np.divmod(np.arange(self._vectors(most)), columns)
        phase, number = np.divmod(column, self.phases[1][1])
        is_tile, at = strip < most, phase * seen + number * m1
        read = np.where(is_tile, strip * self.points[0] * pitch + at, most * self.points[0] * pitch)
        write = np.where(is_tile, strip * m0 * columns * m1 + column * m1, most * m0 * columns * m1)
        return read.astype(np.int32), write.astype(np.int32)

    def adds_up(self, chunk: tuple[int, int]) -> bool:
        """True if dx is of overlapping tiles of x, fewer than its own; units are then whole samples."""
        apart, rows = max(between for between, _ in self.phases), min(chunk[1], self.cut[0])
        if len(self.g.image) == 1 or apart > 1 or min(self.pad) < 0 or rows < self.tiles[0]:
            return False
        return math.prod(strips(adjoint(self.g), self.m, self.lanes).tiles) > math.prod(self.tiles)

    def _elements(self, line: int) -> int:
        """Returns the elements of V and M with lines of `line` elements."""
        return math.prod(self.points) * (sum(self.channels) * line + 2 * GAP)

    def line(self, tiles: int) -> int:
        """Returns the elements of a line: an odd number of vectors, so that lines use different cache sets."""
        return (-(-(tiles + self.behind) // self.lanes) | 1) * self.lanes

    @functools.lru_cache(maxsize=1024)  # noqa: B019  (strips are cached, too)
    def units(
        self, rest: int, threads: int, of: ConvGeometry | None
    ) -> tuple[int, tuple[Any, ...]]:
        """Returns the number of units, each with `rest` elements of work, and the arguments of the loops.

        `of` is the convolution of which this is the adjoint, if it computes a dx.
        """
        g, (rows, columns) = self.g, self.tiles
        vectors = (rest - self.cut[4] - self._elements(0)) // self.tile // self.lanes
        room = ((vectors - 1) | 1) * self.lanes - self.behind  # tiles of the longest line
        most = min(room, self.most)
        samples, high = max(1, most // (rows * columns)), max(1, min(rows, most // columns))
        chunks = -(-g.n // samples)
        samples = max(1, g.n // max(threads, chunks + -chunks % threads))  # equally many a thread
        if samples == 1:
            fewest = max(1, FEWEST // columns)
            high = -(-rows // even_parts(g.n, threads, rows // fewest, -(-rows // high)))
        units = -(-g.n // samples) * -(-rows // high)
        return units, self.kernel_args((samples, high), self.line(samples * high * columns), of)

    def kernel_args(
        self, chunk: tuple[int, int], line: int, of: ConvGeometry | None
    ) -> tuple[Any, ...]:
        """Returns the arguments `sizes` ... `places` of the loops; `chunk` = samples and rows of a unit."""
        g = self.g
        f, size, strides, pads = g.f, g.out, two([], 1), two([], 0)
        if of:
            f, size, strides = of.c, of.image, two(of.window.stride, 1)
            pads = two([p if s > 1 else 0 for p, s in _pads(of)], 0)
        sizes = g.n, g.c, *two(g.image, 1), f, *two(size, 1), g.group
        axes = zip(two(g.window.dilation, 1), strides, self.phases, strict=True)
        spread = tuple((d * s, many) for d, s, (_, many) in axes)
        planes = (*two(g.window.stride, 1), g.c // g.group), (*strides, f // g.group)
        layout = (self.pad, pads), self.tiles, self.step, (self.phases, spread), planes
        return sizes, chunk, *layout, line, self.cut, self.places


def _pads(g: ConvGeometry) -> Any:
    return zip(g.window.pad, g.window.stride, strict=True)


strips = functools.lru_cache(maxsize=1024)(Strips)


@functools.lru_cache(maxsize=1024)
def adjoint(g: ConvGeometry) -> ConvGeometry:
    """Returns the convolution of dy, of stride 1, that computes dx, with strides its planes as channels."""
    window, r = g.window, taps(g.window)
    sizes = zip(r, _pads(g), window.dilation, strict=True)
    pad = tuple(d * (k - 1) - (p if s == 1 else 0) for k, (p, s), d in sizes)
    planes = math.prod(window.stride)
    return ConvGeometry(g.n, g.f, g.out, g.c * planes, Window(r, (), pad, window.dilation), g.group)
