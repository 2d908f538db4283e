"""Winograd with NumPy and CuPy: chunks of tiles, their transforms, and their layout in the workspace."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from minicaffe.backends.device import device_of
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv.transforms import even, taps
from minicaffe.core.ops.gemm import SMALL, gemm
from minicaffe.core.ops.geometry import ConvGeometry, Sizes, Window
from minicaffe.core.ops.im2col import col2im, im2col, side_by_side

Matrices = Sequence[Any]  # of one transform: one for each axis, on CUDA one for all axes
TILES = 64  # of a product, at least: with fewer it is slow
POINTS = 36  # of a tile, at most: F(4x4, 5x5) has 64, and rounds 10 times as much as sums in order
PRODUCTS = 2**18  # elements of products that are added to sums at a time


@dataclasses.dataclass(frozen=True)
class Tiles:
    """A chunk of tiles: their samples, tiles along each axis, and the windows that read and write them."""

    samples: slice
    tiles: Sizes
    reads: Window
    writes: Window
    g: ConvGeometry

    @functools.cached_property
    def count(self) -> int:
        """Tiles in all."""
        return (self.samples.stop - self.samples.start) * math.prod(self.tiles)

    @property
    def later(self) -> bool:
        """Whether a chunk with the first tiles of these samples came before."""
        return self.writes.pad[0] < 0


class Cut:
    """Tiles of `channels` channels, as pixels or as points; read from images, and written to images.

    Two pieces of work hold them in turn, since each axis is transformed from one piece to the other. Points
    are a matrix (points, channels tiles) in the first piece; pixels are a matrix (pixels, channels tiles), on
    CUDA its transpose, in the piece that the transforms end in. On the CPU the samples of a tile lie side by
    side, so that copies are contiguous: the free piece holds the images transposed for this.
    """

    def __init__(self, of: Tiles, window: Window, channels: int, pieces: tuple[Any, Any]):
        self._of, self._window, self._columns = of, window, channels * of.count
        self._cuda = device_of(pieces[0]).is_cuda
        self._points, self._between = pieces
        self._pixels, self._free = pieces[:: -1 if self._axes % 2 else 1]
        self._im2col_args: dict[str, Any] = {"layout": "points", "places": of.tiles}
        if self._cuda:
            self._im2col_args["layout"] = "patches"

    @property
    def points(self) -> Any:
        """A view (points, group, channels of a group, tiles)."""
        shape = math.prod(self._of.reads.kernel), self._of.g.group, -1, self._of.count
        return self._points.reshape(shape)

    def read(self, images: Any, transforms: Matrices) -> None:
        """Reads the tiles of images (s, c, *image), and transforms them to points."""
        if self._turns(images):
            images, source = side_by_side(images.shape, self._free), images
            arrays.copy(source, images)
        im2col(images, self._window, self._pixel_columns, **self._im2col_args)
        self._transform(transforms, self._pixels, self._free)

    def write(self, images: Any, transforms: Matrices, bias: Any = None) -> None:
        """Transforms points to tiles, adds bias (c,), and sums the tiles to images (s, c, *image).

        The tiles of a later chunk of these samples are added to the images.
        """
        self._transform(transforms, self._points, self._between)
        if bias is not None:
            lead = 1 if self._cuda else math.prod(self._window.kernel)
            by_channel = self._pixel_columns.reshape(lead, len(bias), -1)
            arrays.add(bias.reshape(-1, 1), by_channel)
        to = side_by_side(images.shape, self._free) if self._turns(images) else images
        col2im(self._pixel_columns, self._window, to, add=self._of.later, **self._im2col_args)
        if to is not images:
            arrays.copy(to, images)

    @property
    def _axes(self) -> int:
        """The number of transforms: one for each axis, on CUDA one for all."""
        return 1 if self._cuda else len(self._window.kernel)

    @property
    def _pixel_columns(self) -> Any:
        """The matrix (pixels, channels tiles), on CUDA its transpose."""
        pixels = math.prod(self._window.kernel)
        shape = (self._columns, pixels) if self._cuda else (pixels, self._columns)
        return self._pixels[: math.prod(shape)].reshape(shape)

    def _transform(self, matrices: Matrices, source: Any, to: Any) -> None:
        """Multiplies an axis by each matrix in turn, from one piece into the other."""
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
            parts = _column_parts(after, SMALL // matrix.size)
            ends = [
                piece[: before * size * after].reshape(before, size, parts, -1).swapaxes(1, 2)
                for piece, size in ((source, shape[axis]), (to, len(matrix)))
            ]
            gemm(matrix, *ends)
            shape[axis], source, to = len(matrix), to, source

    def _turns(self, images: Any) -> bool:
        """Whether images are transposed, so that samples lie side by side."""
        return len(images) > 1 and not self._cuda


class Chunk:
    """The tiles of x (t^2 pixels) and of y (m^2 pixels) of a chunk, each also as t^2 points.

    Tiles of x are not needed while those of y are transformed, so both use the same part of the work.
    """

    def __init__(self, of: Tiles, work: Any):
        self.samples, g = of.samples, of.g
        m, x, y = (size * of.count for size in sizes(g, of.reads.kernel, of.writes.kernel))
        rest = work[m:]
        self.y = Cut(of, of.writes, g.f, (work[:m], rest[:y]))
        self.x = Cut(of, of.reads, g.c, (rest[:x], rest[x : 2 * x]))


@functools.cache
def _column_parts(columns: int, most: int) -> int:
    """Returns a power of 2: into how many equal parts of at most `most` columns, which BLAS does not copy.

    >>> _column_parts(12, 3), _column_parts(12, 2), _column_parts(12, 99)
    (4, 4, 1)
    """
    parts = 1
    while columns // parts > most and columns % (2 * parts) == 0:
        parts *= 2
    return parts


def sizes(g: ConvGeometry, points: Sizes, pixels: Sizes) -> tuple[int, int, int]:
    """Returns the entries of a tile as points of y, as points of x, and of y between two transforms."""
    t = math.prod(points)
    return g.f * t, g.c * t, g.f * max(points) * pixels[0] ** (len(pixels) - 1)


class Sizing:
    """How many tiles of F(m x m, r x r) a convolution has, and how much workspace they need."""

    def __init__(self, m: int):
        self.most = m

    def m(self, g: ConvGeometry) -> int:
        """Returns the outputs of a tile along an axis: `most`, or 2 if its points would round too much."""
        points = math.prod(even(self.most + r - 1) for r in taps(g.window))
        return self.most if points <= POINTS else 2

    def _tiles(self, g: ConvGeometry) -> Sizes:
        """Tiles of an image along each axis."""
        return tuple(-(-size // self.m(g)) for size in g.out)

    def _sides(self, g: ConvGeometry) -> Sizes:
        """Pixels of a tile of x along each axis, t = m + r - 1."""
        return tuple(self.m(g) + r - 1 for r in g.window.kernel)

    def _tile(self, g: ConvGeometry) -> int:
        """Elements of work for one tile, as pixels and as points."""
        m, x, y = sizes(g, self._sides(g), (self.m(g),) * len(g.image))
        return m + max(2 * x, y)

    def _weights(self, g: ConvGeometry) -> int:
        """Elements of U (t^2, group, f / group, c / group)."""
        return math.prod(self._sides(g)) * g.f * (g.c // g.group)

    def _parts(self, g: ConvGeometry) -> tuple[int, int, int]:
        """Elements of U, of the sums, and of the products of one group of points."""
        size = self._weights(g)
        return size, size, self._groups(g)[0].stop * size // math.prod(self._sides(g))

    def _groups(self, g: ConvGeometry) -> list[slice]:
        """The points in groups whose products have at most PRODUCTS elements."""
        points = math.prod(self._sides(g))
        many = min(points, max(1, PRODUCTS * points // max(1, self._weights(g))))
        return [slice(i, i + many) for i in range(0, points, many)]

    @functools.lru_cache(maxsize=1024)  # noqa: B019  (there are two of this class, for good)
    def _chunks_of_tiles(self, first: int, last: int, g: ConvGeometry, most: int) -> list[Tiles]:
        """The tiles of samples first..last in chunks of at most `most` tiles, or of one row of tiles."""
        tiles, t, m = self._tiles(g), self._sides(g), self.m(g)
        samples = max(1, most // math.prod(tiles))
        samples = -(-(last - first) // -(-(last - first) // samples))  # chunks of nearly one size
        rows = min(tiles[0], most // math.prod(tiles[1:]))
        pads, steps, chunks = g.window.pad[1:], (m,) * len(t), []
        for s in range(first, last, samples):
            for row in range(0, tiles[0], rows):
                counts = (min(rows, tiles[0] - row), *tiles[1:])
                reads = Window(t, steps, (g.window.pad[0] - row * m, *pads))
                writes = Window(steps, steps, (-row * m, *[0] * len(pads)))
                chunks.append(Tiles(slice(s, min(s + samples, last)), counts, reads, writes, g))
        return chunks
