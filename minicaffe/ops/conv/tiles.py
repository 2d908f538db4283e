"""Some of Winograd's tiles, and where their forms lie in the work."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

from minicaffe.ops.geometry import ConvGeometry, Sizes, Window


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
