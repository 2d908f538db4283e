"""Some of Winograd's tiles, their transforms, and where they lie in the work."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from minicaffe.backend import on_cuda
from minicaffe.ops.conv.common import copy, plus
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry, Sizes, Window
from minicaffe.ops.im2col import col2im, im2col, side_by_side
from minicaffe.ops.skinny import SMALL
from minicaffe.replay.trace import do

Matrices = Sequence[Any]  # of one transform: an axis each, on CUDA one for all
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

    @property
    def later(self) -> bool:
        """Whether they are not the first ones of their samples."""
        return self.writes.pad[0] < 0


class Cut:
    """Tiles of `channels` channels, as pixels or as points; cut from images, and put together to images.

    Two pieces of work hold them in turn, so that they can be transformed axis by axis. Points are a matrix
    (points, channels tiles) in the first; pixels are one (pixels, channels tiles) wherever so many transforms
    on lead, on CUDA its transpose. On the CPU the samples of a tile lie side by side, so that what is copied
    lies together: images are turned so in the piece that is free.
    """

    def __init__(self, of: Tiles, window: Window, channels: int, pieces: tuple[Any, Any]):
        self._of, self._window, self._columns = of, window, channels * of.count
        self._cuda = on_cuda(pieces[0])
        self._points, self._between = pieces
        self._pixels, self._free = pieces[:: -1 if self._axes % 2 else 1]
        self._given: dict[str, Any] = {"layout": "points", "places": of.tiles}
        if self._cuda:
            self._given["layout"] = "patches"

    @property
    def points(self) -> Any:
        """A matrix (channels of a group, tiles) for each point and group."""
        shape = math.prod(self._of.reads.kernel), self._of.g.group, -1, self._of.count
        return self._points.reshape(shape)

    def read(self, images: Any, transforms: Matrices) -> None:
        """Cut tiles from images (s, c, *image), and transform them to points."""
        if self._turns(images):
            images, given = side_by_side(images.shape, self._free), images
            do(copy, given, out=images)
        im2col(images, self._window, self._pixel_columns, **self._given)
        self._transform(transforms, self._pixels, self._free)

    def write(self, images: Any, transforms: Matrices, bias: Any = None) -> None:
        """Add tiles up to images (s, c, *image); those of a later band to what the one before left.

        They are transformed from points, and take a number a channel more.
        """
        self._transform(transforms, self._points, self._between)
        if bias is not None:
            lead = 1 if self._cuda else math.prod(self._window.kernel)
            by_channel = self._pixel_columns.reshape(lead, len(bias), -1)
            do(plus, bias.reshape(-1, 1), out=by_channel)
        to = side_by_side(images.shape, self._free) if self._turns(images) else images
        col2im(self._pixel_columns, self._window, to, add=self._of.later, **self._given)
        if to is not images:
            do(copy, to, out=images)

    @property
    def _axes(self) -> int:
        """How many transforms there are: on CUDA all axes are one."""
        return 1 if self._cuda else len(self._window.kernel)

    @property
    def _pixel_columns(self) -> Any:
        pixels = math.prod(self._window.kernel)
        shape = (self._columns, pixels) if self._cuda else (pixels, self._columns)
        return self._pixels[: math.prod(shape)].reshape(shape)

    def _transform(self, matrices: Matrices, source: Any, to: Any) -> None:
        """Multiply an axis by each matrix in turn, from one piece into the other."""
        if self._cuda:
            (matrix,) = matrices
            ends = [
                self._pixel_columns.T if piece is self._pixels else piece.reshape(-1, self._columns)
                for piece in (source, to)
            ]
            gemm(matrix, *ends)
            return
        shape = [matrix.shape[1] for matrix in matrices]
        for axis, matrix in enumerate(matrices):
            before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :]) * self._columns
            parts = _few_enough(after, SMALL // matrix.size)
            ends = [
                piece[: before * size * after].reshape(before, size, parts, -1).swapaxes(1, 2)
                for piece, size in ((source, shape[axis]), (to, len(matrix)))
            ]
            gemm(matrix, *ends)
            shape[axis], source, to = len(matrix), to, source

    def _turns(self, images: Any) -> bool:
        return len(images) > 1 and not self._cuda


class Chunk:
    """Some tiles of x (t^2 pixels) and of y (m^2), each as points (t^2) as well.

    While tiles of y are transformed those of x are of no use: they lie in the same work.
    """

    def __init__(self, of: Tiles, work: Any):
        self.samples, g = of.samples, of.g
        m, x, y = (size * of.count for size in sizes(g, of.reads.kernel, of.writes.kernel))
        rest = work[m:]
        self.y = Cut(of, of.writes, g.f, (work[:m], rest[:y]))
        self.x = Cut(of, of.reads, g.c, (rest[:x], rest[x : 2 * x]))


@functools.cache
def _few_enough(columns: int, most: int) -> int:
    """In how many equal parts there are no more than `most` columns, but powers of 2: such BLAS need not copy.

    >>> _few_enough(12, 3), _few_enough(12, 2), _few_enough(12, 99)
    (4, 4, 1)
    """
    parts = 1
    while columns // parts > most and columns % (2 * parts) == 0:
        parts *= 2
    return parts


def sizes(g: ConvGeometry, points: Sizes, pixels: Sizes) -> tuple[int, int, int]:
    """Entries of a tile's points of y, of x, and of y while it is transformed."""
    t = math.prod(points)
    return g.f * t, g.c * t, g.f * max(points) * pixels[0] ** (len(pixels) - 1)


class Sizing:
    """How many tiles of F(m x m, r x r) a convolution has, and what they take."""

    def __init__(self, m: int):
        self.m = m

    def _tiles(self, g: ConvGeometry) -> Sizes:
        return tuple(-(-size // self.m) for size in g.out)

    def _sides(self, g: ConvGeometry) -> Sizes:
        return tuple(self.m + r - 1 for r in g.window.kernel)

    def _tile(self, g: ConvGeometry) -> int:
        """Elements that one tile takes, as pixels and as points."""
        m, x, y = sizes(g, self._sides(g), (self.m,) * len(g.image))
        return m + max(2 * x, y)

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
