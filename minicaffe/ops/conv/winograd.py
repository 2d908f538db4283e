"""Winograd's minimal filtering F(m x m, r x r): fewer multiplications, by transforms of tiles and weights.

A tile of t = m + r - 1 pixels a side gives m x m outputs of an r x r kernel with t x t multiplications
instead of (m r)^2. Tiles are taken m pixels apart and padded at the far edge, so any image will do:

    V = (B' (x) B') tiles(x)'       (t^2, c, tiles)     the tiles are im2col with a window of t and stride m
    U = (G  (x) G ) weight          (t^2, f, c)
    M[i] = U[i] V[i]                (t^2, f, tiles)     t^2 products, where all the work is
    y = tiles'((A' (x) A') M)                           col2im with a window of m and stride m

(x) is the Kronecker product: each two-sided transform is one GEMM. All is linear, so the gradients are the
transposes, read from right to left. With Numba, all of it is one compiled loop a thread, whose transforms
take one axis after the other (`loops.winograd`). One or two axes; tiles up to 8 pixels a side; stride 1, no
dilation.
Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.ops.conv.tiles import Chunk, Tiles
from minicaffe.ops.conv.transforms import POINTS, along, constants, two
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry, Sizes, Window
from minicaffe.ops.im2col import col2im, im2col
from minicaffe.ops.loops import with_blas
from minicaffe.ops.threads import in_slices

TILES = 64  # of a product at the least: fewer would starve it
PRODUCTS = 2**18  # elements of products that are added to the sums at a time
IN_CACHE = 2**18  # elements of V and M that the compiled loops have at a time


class Winograd:
    """F(m x m, r x r) as a strategy, for whichever r the convolution has."""

    def __init__(self, m: int):
        self.m = m

    def refuses(self, g: ConvGeometry) -> str | None:
        """Why a shape cannot be taken."""
        window, most = g.window, max(POINTS) + 1 - self.m
        if len(g.image) > 2:
            return "it needs 1 or 2 axes"
        if any(size != 1 for size in window.stride + window.dilation):
            return "it needs stride 1 and dilation 1"
        if any(not 2 <= size <= most for size in window.kernel):
            return f"F({self.m}x{self.m}) needs kernels of 2 to {most}"
        return None

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs: U, the sums that become dweight, some products, and a chunk of tiles."""
        fixed, tiles = sum(self._parts(g)), self._tiles(g)
        many = max(TILES, math.prod(tiles[1:]), max(limit - fixed, fixed // 2) // self._tile(g))
        return fixed + min(many, g.n * math.prod(tiles)) * self._tile(g)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs for `forward`: U and a chunk of tiles."""
        return self.workspace(g, limit) - sum(self._parts(g)[1:])

    def forward(
        self, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
    ) -> Any:
        """y = A' [U V] A + bias, into `out`."""
        at, _, bt = self._matrices(g, x)

        def part(first: int, last: int, work: Any) -> None:
            size = self._parts(g)[0]
            u, work = work[:size], work[size:]
            u = self._weight(weight, g, u)
            out[first:last] = 0
            for chunk in self._chunks(first, last, g, work):
                im2col(x[chunk.samples], chunk.reads, chunk.x, "patches", places=chunk.tiles)
                gemm(bt, chunk.x.T, chunk.v)
                gemm(u, chunk.by_point(chunk.v), chunk.by_point(chunk.m))
                gemm(chunk.m.T, at.T, chunk.y)
                if bias is not None:
                    filters = chunk.y.reshape(g.f, -1)
                    filters += bias.reshape(-1, 1)
                to = out[chunk.samples]
                col2im(chunk.y, chunk.writes, to, "patches", places=chunk.tiles, add=True)

        in_slices(self._forward_loop(x, weight, bias, g, out) or part, g.n, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dx = tiles'(B [U' (A dy A')] B'), into `out`."""
        self.gradients(None, dy, weight, g, out, None, work)
        return out

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dweight = G' [sum over tiles of (A dy A') V'] G, added to `out`."""
        self.gradients(x, dy, None, g, None, out, work)
        return out

    def gradients(
        self, x: Any, dy: Any, weight: Any, g: ConvGeometry, dx: Any, dw: Any, work: Any
    ) -> None:
        """Both gradients at once, the tiles of dy transformed once; dx or dw may be None: not wanted."""
        at, gg, bt = self._matrices(g, dy)
        shape = (len(gg), g.group, g.f // g.group, g.c // g.group)

        def part(first: int, last: int, work: Any) -> None:
            u, sums, product, work = self._split(g, work)
            share, s = u[: math.prod(g.weight_shape)], sums.reshape(shape)
            sums.fill(0)
            if dx is not None:
                u = self._weight(weight, g, u).swapaxes(2, 3)
                dx[first:last] = 0
            for chunk in self._chunks(first, last, g, work):
                here = chunk.samples
                some: dict[str, Any] = {"layout": "patches", "places": chunk.tiles}
                im2col(dy[here], chunk.writes, chunk.y, **some)
                gemm(at.T, chunk.y.T, chunk.m)
                m, v = chunk.by_point(chunk.m), chunk.by_point(chunk.v)
                if dw is not None:
                    im2col(x[here], chunk.reads, chunk.x, **some)
                    gemm(bt, chunk.x.T, chunk.v)
                    for some_points in self._groups(g):
                        to = product[: s[some_points].size].reshape(s[some_points].shape)
                        gemm(m[some_points], v[some_points].swapaxes(2, 3), to)
                        s[some_points] += to
                if dx is not None:
                    gemm(u, m, v)
                    gemm(chunk.v.T, bt, chunk.x)
                    col2im(chunk.x, chunk.reads, dx[here], add=True, **some)
            if dw is not None:  # where U was
                gemm(sums.reshape(len(gg), -1).T, gg, share.reshape(-1, gg.shape[1]))

        for piece in in_slices(self._gradients_loop(x, dy, weight, g, dx, dw) or part, g.n, work):
            if dw is not None:
                dw += piece[: dw.size].reshape(dw.shape)

    def _forward_loop(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any) -> Any:
        """The compiled loop that computes y for a slice of samples, if there is one."""
        fast, blas = with_blas("winograd", x)
        if fast is None:
            return None
        plain, _ = along(self.m, g.window.kernel, x.dtype)
        bias = np.empty(0, x.dtype) if bias is None else bias
        given, y = (x.reshape(-1), weight.reshape(-1), bias), out.reshape(-1)

        def part(first: int, last: int, work: Any) -> None:
            size = self._parts(g)[0]
            u, rest = work[:size], work[size:]
            numbers = self._numbers(g, rest.size)
            fast.forward(blas, *numbers, plain, *given, u, rest, y, first, last)

        return part

    def _gradients_loop(
        self, x: Any, dy: Any, weight: Any, g: ConvGeometry, dx: Any, dw: Any
    ) -> Any:
        """The compiled loop that computes both gradients of a slice of samples, if there is one."""
        fast, blas = with_blas("winograd", dy)
        if fast is None:
            return None
        plain, turned = along(self.m, g.window.kernel, dy.dtype)
        none = np.empty(0, dy.dtype)
        given = [none if array is None else array.reshape(-1) for array in (x, dy, weight, dx)]

        def part(first: int, last: int, work: Any) -> None:
            u, sums, _, rest = self._split(g, work)
            share = none if dw is None else u[: dw.size]
            own = plain, turned, *given, share, u, sums, rest
            fast.gradients(blas, *self._numbers(g, rest.size), *own, first, last)

        return part

    @functools.lru_cache(maxsize=1024)  # noqa: B019  (there are two of this class, for good)
    def _numbers(self, g: ConvGeometry, rest: int) -> tuple[Any, ...]:
        """What the loops want to know: sizes, how many samples and rows of tiles at a time, the pad."""
        (h, w), (oh, ow), (rows, columns), pad = (
            two(sizes, fill)
            for sizes, fill in ((g.image, 1), (g.out, 1), (self._tiles(g), 1), (g.window.pad, 0))
        )
        points = math.prod(self._sides(g)) * (g.c + g.f)
        most = min(rest // self._tile(g), max(TILES, (IN_CACHE + self._weights(g)) // points))
        chunk = max(1, most // (rows * columns)), max(1, min(rows, most // columns))
        return (g.n, g.c, h, w, g.f, oh, ow, g.group), chunk, pad

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

    def _matrices(self, g: ConvGeometry, x: Any) -> tuple[Any, ...]:
        return constants(self.m, g.window.kernel, x.dtype, x.device.id if on_cuda(x) else None)

    def _parts(self, g: ConvGeometry) -> tuple[int, int, int]:
        """Elements of U, of the sums, and of the products of one group of points."""
        size = self._weights(g)
        return size, size, self._groups(g)[0].stop * size // math.prod(self._sides(g))

    def _groups(self, g: ConvGeometry) -> list[slice]:
        """The points, in groups whose products are no more than is handled at a time."""
        points = math.prod(self._sides(g))
        many = min(points, max(1, PRODUCTS * points // max(1, self._weights(g))))
        return [slice(i, i + many) for i in range(0, points, many)]

    def _split(self, g: ConvGeometry, work: Any) -> tuple[Any, Any, Any, Any]:
        """U, sums and products in a thread's work, and what is left for tiles."""
        a, b, c = itertools.accumulate(self._parts(g))
        return work[:a], work[a:b], work[b:c], work[c:]

    def _weight(self, weight: Any, g: ConvGeometry, u: Any) -> Any:
        """U (t^2, group, f/group, c/group), in each thread's work: to share it would cost more."""
        gg = self._matrices(g, weight)[1]
        gemm(gg, weight.reshape(-1, gg.shape[1]).T, u.reshape(len(gg), -1))
        return u.reshape(len(gg), g.group, g.f // g.group, g.c // g.group)

    def _chunks(self, first: int, last: int, g: ConvGeometry, work: Any) -> Iterator[Chunk]:
        """Samples first..last: whole ones, or bands of a sample's tiles, as many as the work holds."""
        for tiles in self._some_tiles(first, last, g, work.size // self._tile(g)):
            yield Chunk(tiles, work)

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
