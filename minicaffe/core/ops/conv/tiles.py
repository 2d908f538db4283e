"""Winograd with NumPy and CuPy: chunks of tiles, their transforms, and their layout in the workspace."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from minicaffe.backends.device import device_of
from minicaffe.core.ops import arrays
from minicaffe.core.ops.gemm import SMALL, gemm
from minicaffe.core.ops.geometry import ConvGeometry, Sizes, Window
from minicaffe.core.ops.im2col import col2im, im2col, side_by_side

Matrices = Sequence[Any]  # of one transform: one for each axis, on CUDA one for all axes
TILES = 64  # of a product, at least: with fewer it is slow


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
        transforms = 1 if self._cuda else len(window.kernel)
        self._pixels, self._free = pieces[:: -1 if transforms % 2 else 1]
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
        later = self._of.writes.pad[0] < 0  # the first tiles of these samples are in the images
        col2im(self._pixel_columns, self._window, to, add=later, **self._im2col_args)
        if to is not images:
            arrays.copy(to, images)

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
