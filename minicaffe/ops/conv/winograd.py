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
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.ops.conv.tiles import Chunk, Tiles
from minicaffe.ops.conv.transforms import POINTS, along, constants
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry, Sizes, Window, lift
from minicaffe.ops.im2col import col2im, im2col
from minicaffe.ops.loops import with_blas
from minicaffe.ops.threads import in_slices

TILES = 64  # of a product at the least: fewer would starve it
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
        """Elements a thread needs: the transformed weight, and a chunk of tiles in each of their forms."""
        across = math.prod(self._tiles(g)[1:])
        tiles = max(TILES, across, (limit - 3 * self._weights(g)) // self._tile(g))
        return 3 * self._weights(g) + min(tiles, g.n * math.prod(self._tiles(g))) * self._tile(g)

    def forward(
        self, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
    ) -> Any:
        """y = A' [U V] A + bias, into `out`."""
        at, _, bt = self._matrices(g, x)

        def part(first: int, last: int, work: Any) -> None:
            u = self._weight(weight, g, work)
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
        size, shape = self._weights(g), (len(gg), g.group, g.f // g.group, g.c // g.group)

        def part(first: int, last: int, work: Any) -> None:
            sums, product = work[size : 2 * size], work[2 * size : 3 * size]
            sums.fill(0)
            if dx is not None:
                u = self._weight(weight, g, work).swapaxes(2, 3)
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
                    gemm(m, v.swapaxes(2, 3), product.reshape(shape))
                    sums += product
                if dx is not None:
                    gemm(u, m, v)
                    gemm(chunk.v.T, bt, chunk.x)
                    col2im(chunk.x, chunk.reads, dx[here], add=True, **some)
            if dw is not None:
                share = product[: dw.size].reshape(-1, gg.shape[1])
                gemm(sums.reshape(len(gg), -1).T, gg, share)

        for piece in in_slices(self._gradients_loop(x, dy, weight, g, dx, dw) or part, g.n, work):
            if dw is not None:
                dw += piece[2 * size : 2 * size + dw.size].reshape(dw.shape)

    def _forward_loop(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any) -> Any:
        """The compiled loop that computes y for a slice of samples, if there is one."""
        fast, blas = with_blas("winograd", x)
        if fast is None:
            return None
        plain, _ = along(self.m, g.window.kernel, x.dtype)
        bias = np.empty(0, x.dtype) if bias is None else bias
        given, y = (x.reshape(-1), weight.reshape(-1), bias), out.reshape(-1)

        def part(first: int, last: int, work: Any) -> None:
            fast.forward(blas, *self._numbers(g, work.size), plain, *given, work, y, first, last)

        return part

    def _gradients_loop(
        self, x: Any, dy: Any, weight: Any, g: ConvGeometry, dx: Any, dw: Any
    ) -> Any:
        """The compiled loop that computes both gradients of a slice of samples, if there is one."""
        fast, blas = with_blas("winograd", dy)
        if fast is None:
            return None
        plain, turned = along(self.m, g.window.kernel, dy.dtype)
        none, size = np.empty(0, dy.dtype), self._weights(g)
        given = [none if array is None else array.reshape(-1) for array in (x, dy, weight, dx)]

        def part(first: int, last: int, work: Any) -> None:
            share = none if dw is None else work[2 * size : 2 * size + dw.size]
            share.fill(0)
            numbers = self._numbers(g, work.size)
            fast.gradients(blas, *numbers, plain, turned, *given, share, work, first, last)

        return part

    @functools.lru_cache(maxsize=1024)  # noqa: B019  (there are two of this class, for good)
    def _numbers(self, g: ConvGeometry, work: int) -> tuple[Any, ...]:
        """What the loops want to know: sizes, how many samples and rows of tiles at a time, the pad."""
        h, w = lift(g.image)[1:]
        oh, ow = lift(g.out)[1:]
        rows, columns = lift(self._tiles(g))[1:]
        points = math.prod(self._sides(g)) * (g.c + g.f)
        most = min((work - 3 * self._weights(g)) // self._tile(g), max(TILES, IN_CACHE // points))
        chunk = max(1, most // (rows * columns)), max(1, min(rows, most // columns))
        return (g.n, g.c, h, w, g.f, oh, ow, g.group), chunk, lift(g.window.pad, 0)[1:]

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

    def _weight(self, weight: Any, g: ConvGeometry, work: Any) -> Any:
        """U (t^2, group, f/group, c/group), in each thread's work: to share it would cost more."""
        gg = self._matrices(g, weight)[1]
        u = work[: self._weights(g)].reshape(len(gg), -1)
        gemm(gg, weight.reshape(-1, gg.shape[1]).T, u)
        return u.reshape(len(gg), g.group, g.f // g.group, g.c // g.group)

    def _chunks(self, first: int, last: int, g: ConvGeometry, work: Any) -> Iterator[Chunk]:
        """Samples first..last: whole ones, or bands of a sample's tiles, as many as the work holds."""
        rest = work[3 * self._weights(g) :]
        for tiles in self._some_tiles(first, last, g, rest.size // self._tile(g)):
            yield Chunk(tiles, rest)

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
