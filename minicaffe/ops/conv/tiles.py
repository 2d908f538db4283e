"""Some of Winograd's tiles, and where their forms lie in the work."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

from minicaffe.ops.geometry import ConvGeometry, Sizes, Window

PRODUCTS = 2**18  # elements of products that are added to the sums at a time


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Some tiles: which samples', how many along each axis, the windows that read and write them."""

    samples: slice
    tiles: Sizes
    reads: Window
    writes: Window
    g: ConvGeometry

    @functools.cached_property
    def count(self) -> int:
        """How many in all."""
        return (self.samples.stop - self.samples.start) * math.prod(self.tiles)

    @functools.cached_property
    def buffers(self) -> list[tuple[int, int, tuple[int, int]]]:
        """Where in the work the four forms of the tiles lie, and their shapes."""
        t, m = math.prod(self.reads.kernel), math.prod(self.writes.kernel)
        c, f = self.g.c * self.count, self.g.f * self.count
        shapes = [(c, t), (t, c), (t, f), (f, m)]
        ends = [0, *itertools.accumulate(math.prod(shape) for shape in shapes)]
        return list(zip(ends[:-1], ends[1:], shapes, strict=True))


class Chunk:
    """Tiles with their buffers x (c tiles, t^2), v (t^2, c tiles), m (t^2, f tiles), y (f tiles, m^2)."""

    def __init__(self, of: Tiles, work: Any):
        self.of, self.samples, self.tiles = of, of.samples, of.tiles
        self.reads, self.writes = of.reads, of.writes
        self.x, self.v, self.m, self.y = (work[a:b].reshape(shape) for a, b, shape in of.buffers)

    def by_point(self, form: Any) -> Any:
        """(t^2, channels tiles) as a matrix (channels of a group, tiles) for each point and group."""
        return form.reshape(len(form), self.of.g.group, -1, self.of.count)


class Sizing:
    """How many tiles of F(m x m, r x r) a convolution has, and what they take."""

    def __init__(self, m: int):
        self.m = m

    def _tiles(self, g: ConvGeometry) -> Sizes:
        return tuple(-(-size // self.m) for size in g.out)

    def _sides(self, g: ConvGeometry) -> Sizes:
        return tuple(self.m + r - 1 for r in g.window.kernel)

    def _tile(self, g: ConvGeometry) -> int:
        """Elements that one tile takes in all its forms."""
        t, m = math.prod(self._sides(g)), self.m ** len(g.image)
        return 2 * g.c * t + g.f * (t + m)

    def _weights(self, g: ConvGeometry) -> int:
        return math.prod(self._sides(g)) * g.f * (g.c // g.group)

    def _parts(self, g: ConvGeometry) -> tuple[int, int, int]:
        """Elements of U, of the sums, and of the products of one group of points."""
        size = self._weights(g)
        return size, size, self._groups(g)[0].stop * size // math.prod(self._sides(g))

    def _groups(self, g: ConvGeometry) -> list[slice]:
        """The points, in groups whose products are no more than is handled at a time."""
        points = math.prod(self._sides(g))
        many = min(points, max(1, PRODUCTS * points // max(1, self._weights(g))))
        return [slice(i, i + many) for i in range(0, points, many)]

    @functools.lru_cache(maxsize=1024)  # noqa: B019  (there are two of this class, for good)
    def _some_tiles(self, first: int, last: int, g: ConvGeometry, most: int) -> list[Tiles]:
        tiles, t, m = self._tiles(g), self._sides(g), self.m
        samples = max(1, most // math.prod(tiles))
        rows = min(tiles[0], most // math.prod(tiles[1:]))
        pads, steps, found = g.window.pad[1:], (m,) * len(t), []
        for s in range(first, last, samples):
            for row in range(0, tiles[0], rows):
                here = (min(rows, tiles[0] - row), *tiles[1:])
                reads = Window(t, steps, (g.window.pad[0] - row * m, *pads))
                writes = Window(steps, steps, (-row * m, *[0] * len(pads)))
                found.append(Tiles(slice(s, min(s + samples, last)), here, reads, writes, g))
        return found
