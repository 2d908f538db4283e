"""Winograd's minimal filtering F(m x m, r x r): fewer multiplications, by transforms of tiles and weights.

From a tile of t = m + r - 1 pixels a side, m x m outputs of an r x r kernel are computed by t x t
multiplications instead of (m r)^2. Tiles are m pixels apart, and padded at the far edge of the image:

    V = (B' (x) B') tiles(x)'       (t^2, c, tiles)     the tiles are im2col with a window of t and stride m
    U = (G  (x) G ) weight          (t^2, f, c)
    M[i] = U[i] V[i]                (t^2, f, tiles)     t^2 products, where all the work is
    y = tiles'((A' (x) A') M)                           col2im with a window of m and stride m

(x) is the Kronecker product: on CUDA a transform is one GEMM, on the CPU one GEMM for each axis. Everything is
linear, so the gradients are the transposes, read from right to left.

With Numba, compiled loops transform both axes in vectors (backends/cpu/conv/winograd.py); only they take
strides and dilations: without them the engine falls back to `implicit`. Images have 1 or 2 axes, tiles up to 8
pixels a side. Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minicaffe.backends.device import device_of
from minicaffe.backends.dispatch import op, workspace
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv.common import by_samples
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.conv.implicit import IMPLICIT
from minicaffe.core.ops.gemm import SMALL, gemm
from minicaffe.core.ops.geometry import ConvGeometry, Sizes, Window
from minicaffe.core.ops.im2col import col2im, im2col, side_by_side

STRIDE = 4  # at most: each plane of a channel has its own G
PRODUCTS = 2**18  # elements of products that are added to sums at a time
Matrices = Sequence[Any]  # of one transform: one for each axis, on CUDA one for all axes
TILES = 64  # of a product, at least: with fewer it is slow
# The points at which the polynomials are evaluated (and at infinity), for tiles of up to 4, 6 and 8 pixels:
# with small numerators, and with powers that lose least in float32.
POINTS = {4: (0, 1, -1), 6: (0, 0.6875, -0.6875, 1.4375, -1.4375), 8: (0, 0.5, -0.5, 1, -1, 2, -2)}


class Winograd(Engine):
    """F(4x4, r x r), for kernels of any size r up to 5."""

    name = "winograd"
    traced = True
    gradients_together = True
    m = 4  # outputs of a tile along an axis

    def refuses(self, g: ConvGeometry) -> str | None:
        """Returns why it cannot compute a shape; None if it can."""
        window, m, most = g.window, self.m, max(POINTS) + 1 - self.m
        if len(g.image) > 2:
            return "it needs 1 or 2 axes"
        if max(window.stride) > STRIDE:
            return f"it needs a stride of 1 to {STRIDE}"
        if any(d > 1 and s > 1 for d, s in zip(window.dilation, window.stride, strict=True)):
            return "it needs stride 1 along an axis with a dilation"
        if any(not 2 <= size <= most for size in taps(window)):
            strides = " strides" if max(window.stride) > 1 else ""
            return f"F({m}x{m}) needs kernels of 2 to {most}{strides}"
        products = math.prod(m * size for size in window.kernel)
        points = math.prod(even(m + r - 1) for r in taps(window)) * math.prod(window.stride)
        if points >= products and max(window.stride) > 1:
            return f"F({m}x{m}) would take no fewer multiplications"
        return None

    def needs_compiled(self, g: ConvGeometry) -> bool:
        """Yes for a stride or a dilation: without compiled loops they fall back to `implicit`."""
        return any(size != 1 for size in g.window.dilation + g.window.stride)

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: U, sums that become dweight, products, and a chunk of tiles."""
        forward = self.forward_workspace(g, limit)
        loops = workspace(Winograd.input_gradient, "cpu", g, self.m)
        if self.needs_compiled(g):
            return max(forward, loops, IMPLICIT.workspace(g, limit))
        return max(forward + sum(self._parts(g)[1:]), loops)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`: U and a chunk of tiles."""
        loops = workspace(Winograd.forward, "cpu", g, self.m)
        if self.needs_compiled(g):
            return max(loops, IMPLICIT.forward_workspace(g, limit))
        fixed, tiles = sum(self._parts(g)), self._tiles(g)
        many = max(TILES, math.prod(tiles[1:]), max(limit - fixed, fixed // 2) // self._tile(g))
        return max(self._parts(g)[0] + min(many, g.n * math.prod(tiles)) * self._tile(g), loops)

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements on CUDA: as on the CPU, or those of `implicit`."""
        if self.needs_compiled(g):
            return IMPLICIT.cuda_workspace(g, limit, itemsize)
        return self.workspace(g, limit)

    @op(traced=False)
    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = A' [U V] A + bias to `out`, and returns it."""
        if self.needs_compiled(g):
            return IMPLICIT.forward(x, weight, bias, g, out, work)
        at, _, bt = self._matrices(g, x)

        def part(first: int, last: int, work: Any) -> None:
            size = self._parts(g)[0]
            u = self._weight(weight, g, work[:size])
            for chunk in self._chunks(first, last, g, work[size:]):
                chunk.x.read(x[chunk.samples], bt)
                gemm(u, chunk.x.points, chunk.y.points)
                chunk.y.write(out[chunk.samples], at, bias)

        by_samples(part, g, work)

    @op(traced=False)
    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx = tiles'(B [U' (A dy A')] B') to `out`, and returns it."""
        if self.needs_compiled(g):
            return IMPLICIT.input_gradient(dy, weight, g, out, work)
        self.gradients(None, dy, weight, g, out, None, work)

    @op(traced=False)
    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight = G' [sum over tiles of (A dy A') V'] G to `out`, and returns it."""
        if self.needs_compiled(g):
            return IMPLICIT.weight_gradient(x, dy, g, out, work)
        self.gradients(x, dy, None, g, None, out, work)

    @op("dw", array="dy", traced=False)
    def gradients(
        self, x: Any, dy: Any, weight: Any, g: ConvGeometry, dx: Any, dw: Any, work: Any
    ) -> None:
        """Both gradients; NumPy transforms dy once for both. dx or dw may be None: not computed."""
        if self.needs_compiled(g):
            super().gradients(x, dy, weight, g, dx, dw, work)
            return
        at, gg, bt = self._matrices(g, dy)
        at_t, bt_t = ([matrix.T for matrix in axes] for axes in (at, bt))
        shape = (len(gg), g.group, g.f // g.group, g.c // g.group)

        def part(first: int, last: int, work: Any) -> None:
            a, b, c = itertools.accumulate(self._parts(g))  # the rest is for tiles
            u, sums, product, work = work[:a], work[a:b], work[b:c], work[c:]
            share, s = u[: math.prod(g.weight_shape)], sums.reshape(shape)
            if dx is not None:
                u = self._weight(weight, g, u).swapaxes(2, 3)
            for i, chunk in enumerate(self._chunks(first, last, g, work)):
                chunk.y.read(dy[chunk.samples], at_t)
                m, v = chunk.y.points, chunk.x.points
                if dw is not None:
                    chunk.x.read(x[chunk.samples], bt)
                    for points in self._groups(g):
                        factors = m[points], v[points].swapaxes(2, 3)
                        gemm(*factors, s[points], accumulate=i > 0, scratch=product)
                if dx is not None:
                    gemm(u, m, v)
                    chunk.x.write(dx[chunk.samples], bt_t)
            if dw is not None:  # in the place of U
                gemm(sums.reshape(len(gg), -1).T, gg, share.reshape(-1, gg.shape[1]))

        for piece in by_samples(part, g, work):
            if dw is not None:
                arrays.add(piece[: dw.size].reshape(dw.shape), dw)

    def _matrices(self, g: ConvGeometry, x: Any) -> tuple[Any, ...]:
        """A', G and B' in the type and on the device of an array."""
        device = device_of(x)
        return constants(self.m, g.window.kernel, x.dtype, device.xp, device.name)

    def _weight(self, weight: Any, g: ConvGeometry, u: Any) -> Any:
        """Computes U (t^2, group, f/group, c/group) in the thread's own work: sharing would cost more."""
        gg = self._matrices(g, weight)[1]
        gemm(gg, weight.reshape(-1, gg.shape[1]).T, u.reshape(len(gg), -1))
        return u.reshape(len(gg), g.group, g.f // g.group, g.c // g.group)

    def _chunks(self, first: int, last: int, g: ConvGeometry, work: Any) -> Iterator[Chunk]:
        """Samples first..last in chunks: whole samples, or bands of tiles, as many as fit the work."""
        for tiles in self._chunks_of_tiles(first, last, g, work.size // self._tile(g)):
            yield Chunk(tiles, work)

    def _tiles(self, g: ConvGeometry) -> Sizes:
        """Tiles of an image along each axis."""
        return tuple(-(-size // self.m) for size in g.out)

    def _sides(self, g: ConvGeometry) -> Sizes:
        """Pixels of a tile of x along each axis, t = m + r - 1."""
        return tuple(self.m + r - 1 for r in g.window.kernel)

    def _tile(self, g: ConvGeometry) -> int:
        """Elements of work for one tile, as pixels and as points."""
        m, x, y = sizes(g, self._sides(g), (self.m,) * len(g.image))
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
        tiles, t, m = self._tiles(g), self._sides(g), self.m
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
        layout = "patches" if self._cuda else "points"
        self._im2col_args: dict[str, Any] = {"layout": layout, "places": of.tiles}

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
        """Writes points as tiles plus bias (c,), summed to images (s, c, *image); later chunks are added."""
        self._transform(transforms, self._points, self._between)
        if bias is not None:
            lead = 1 if self._cuda else math.prod(self._window.kernel)
            arrays.add(bias.reshape(-1, 1), self._pixel_columns.reshape(lead, len(bias), -1))
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
    """A chunk's tiles of x (t^2 pixels) and y (m^2), also as t^2 points, in one part of the work in turn."""

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


@functools.cache
def matrices(m: int, r: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns A' (m, t), G (t, r) and B' (t, t) of F(m, r): y = A' [(G w) * (B' x)], t = m + r - 1.

    By Toom and Cook a product of polynomials is had from values at the points; its transpose is a filter.

    >>> at, g, bt = matrices(2, 3)
    >>> w, x = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 2.0, 5.0])
    >>> at @ ((g @ w) * (bt @ x)), np.correlate(x, w)
    (array([ 7., 19.]), array([ 7., 19.]))
    """
    t = m + r - 1
    points = np.array(next(POINTS[most] for most in POINTS if t <= most)[: t - 1], np.float64)
    at, g, bt = np.zeros((m, t)), np.zeros((t, r)), np.zeros((t, t))
    at[:, :-1], at[-1, -1] = points ** np.arange(m)[:, None], 1
    for i, point in enumerate(points):
        others = np.delete(points, i)
        g[i] = point ** np.arange(r) / np.prod(point - others)
        bt[i, : t - 1] = np.poly(others)[::-1]
    g[-1, -1], bt[-1] = 1, np.poly(points)[::-1]
    return at, g, bt


@functools.cache
def kronecker(m: int, kernel: Sizes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the matrices of `matrices` for all axes at once: their Kronecker products."""
    along = [matrices(m, r) for r in kernel]
    at, g, bt = (functools.reduce(np.kron, parts) for parts in zip(*along, strict=True))
    return at, g, bt


@functools.cache
def constants(m: int, kernel: Sizes, dtype: Any, xp: Any, device: str) -> tuple[Any, ...]:
    """A', G and B' in a type: G for all axes at once, A' and B' in lists, of one an axis, on CUDA for all."""
    at, g, bt = kronecker(m, kernel)
    if xp is np:
        each = [[matrix.astype(dtype) for matrix in matrices(m, r)] for r in kernel]
        return [one[0] for one in each], g.astype(dtype), [one[2] for one in each]
    at, g, bt = (xp.asarray(matrix.astype(dtype)) for matrix in (at, g, bt))
    return [at], g, [bt]


@functools.cache
def by_axes(m: int, kernel: Sizes, dtype: Any) -> tuple[tuple[np.ndarray, ...], ...]:
    """Returns B' and A of two axes, as `halves`, for the compiled loops; of one axis the first is empty."""
    axes = [(np.zeros((2, 0, 0)),) * 2] * (2 - len(kernel))
    for r in kernel:
        at, _, bt = matrices(m, even(m + r - 1) - m + 1)
        axes.append((halves(bt), halves(at.T)))
    return tuple(tuple(np.array(a, dtype, order="C") for a in p) for p in zip(*axes, strict=True))


@functools.cache
def of_weights(m: int, kernel: Sizes, stride: Sizes, dtype: Any, reverse: bool) -> np.ndarray:
    """Returns G for both axes at once, for the tiles of `by_axes`; with `reverse` for a reversed kernel.

    One matrix for each plane of a channel, (planes, points, kernel elements). Plane q of an axis has the
    kernel elements t with t % s = q; shorter kernels are filled with zeros.
    """
    planes = []
    for rests in itertools.product(*map(range, stride)):
        along: list[np.ndarray] = []
        for k, s, q in zip(kernel, stride, rests, strict=True):
            r = -(-k // s)
            g = matrices(m, even(m + r - 1) - m + 1)[1][:, :r][:, :: -1 if reverse else 1]
            of_axis = np.zeros((len(g), k))
            of_axis[:, q::s] = g[:, : len(range(q, k, s))]
            along.append(of_axis)
        planes.append(functools.reduce(np.kron, along))
    return np.array(planes, dtype, order="C")


def halves(matrix: np.ndarray) -> np.ndarray:
    """Returns the even columns of the rows for 0, p, q, ..., and the odd ones for infinity, p, q, ...

    The row for -p has the same even columns and the negative odd ones, so it shares the products of p.

    >>> halves(matrices(2, 3)[0].T)
    array([[[1.],
            [1.]],
    <BLANKLINE>
           [[1.],
            [1.]]])
    """
    rows = range(1, len(matrix) - 1, 2)
    return np.stack([matrix[[0, *rows], ::2], matrix[[-1, *rows], 1::2]])


def taps(window: Window) -> Sizes:
    """Returns the kernel elements along each axis that read one plane, at most."""
    return tuple(-(-k // s) for k, s in zip(window.kernel, window.stride, strict=True))


def even(size: int) -> int:
    """Returns the size rounded up to even, so that the points except 0 and infinity are pairs."""
    return size + size % 2


def two(sizes: Sequence[int], fill: int) -> tuple[int, int]:
    """Returns sizes along two axes; a single axis is the second.

    >>> two((7,), 1)
    (1, 7)
    """
    first, second = *[fill] * (2 - len(sizes)), *sizes
    return first, second
