"""Some of Winograd's tiles, and where their forms lie in the work."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

from minicaffe.backend import on_cuda
from minicaffe.ops.geometry import ConvGeometry, Sizes, Window
from minicaffe.ops.im2col import col2im, im2col, side_by_side

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
    def bounds(self) -> list[tuple[int, int]]:
        """Where in the work the four forms of the tiles lie."""
        t, m = math.prod(self.reads.kernel), math.prod(self.writes.kernel)
        c, f = self.g.c * self.count, self.g.f * self.count
        return list(itertools.pairwise(itertools.accumulate((0, c * t, c * t, f * t, f * m))))

    @property
    def later(self) -> bool:
        """Whether they are not the first ones of their samples."""
        return self.writes.pad[0] < 0


class Cut:
    """Pixels of tiles, `form` (pixels, channels tiles): cut from images, and put together to images.

    On CUDA, form is the transpose of what lies in memory. On the CPU the samples of a tile lie side by side,
    so that what is copied lies together: images are turned so in `aside`, which has room for them.
    """

    def __init__(self, form: Any, window: Window, of: Tiles, aside: Any):
        pixels = math.prod(window.kernel)
        shape = (-1, pixels) if on_cuda(form) else (pixels, -1)
        self._form, self._window, self._aside, self._of = form.reshape(shape), window, aside, of
        self._given: dict[str, Any] = {"layout": "points", "places": of.tiles}
        if on_cuda(form):
            self._given["layout"] = "patches"
        self.form = self._form.T if on_cuda(form) else self._form

    def read(self, images: Any) -> None:
        """Cut tiles from images (s, c, *image)."""
        if self._turns(images):
            images, given = side_by_side(images.shape, self._aside), images
            images[...] = given
        im2col(images, self._window, self._form, **self._given)

    def write(self, images: Any) -> None:
        """Add tiles up to images (s, c, *image); those of a later band to what the one before left."""
        to = side_by_side(images.shape, self._aside) if self._turns(images) else images
        col2im(self._form, self._window, to, add=self._of.later, **self._given)
        if to is not images:
            images[...] = to

    def _turns(self, images: Any) -> bool:
        return len(images) > 1 and not on_cuda(images)

    def add(self, bias: Any) -> None:
        """Add a number a channel."""
        lead = 1 if on_cuda(bias) else len(self._form)
        by_channel = self._form.reshape(lead, len(bias), -1)
        by_channel += bias.reshape(-1, 1)


class Chunk:
    """Tiles with their forms: x and v (t^2, c tiles), m (t^2, f tiles), y (m^2, f tiles)."""

    def __init__(self, of: Tiles, work: Any):
        self.of, self.samples = of, of.samples
        x, v, m, y = (work[a:b] for a, b in of.bounds)
        points = math.prod(of.reads.kernel)
        self.v, self.m = v.reshape(points, -1), m.reshape(points, -1)
        self.x, self.y = Cut(x, of.reads, of, v), Cut(y, of.writes, of, m)

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
        samples = -(-(last - first) // -(-(last - first) // samples))  # chunks as equal as can be
        rows = min(tiles[0], most // math.prod(tiles[1:]))
        pads, steps, found = g.window.pad[1:], (m,) * len(t), []
        for s in range(first, last, samples):
            for row in range(0, tiles[0], rows):
                here = (min(rows, tiles[0] - row), *tiles[1:])
                reads = Window(t, steps, (g.window.pad[0] - row * m, *pads))
                writes = Window(steps, steps, (-row * m, *[0] * len(pads)))
                found.append(Tiles(slice(s, min(s + samples, last)), here, reads, writes, g))
        return found
