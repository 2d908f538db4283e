"""Winograd's minimal filtering F(m x m, r x r): fewer multiplications, by transforms of tiles and weights.

A tile of t = m + r - 1 pixels a side gives m x m outputs of an r x r kernel with t x t multiplications
instead of (m r)^2. Tiles are taken m pixels apart and padded at the far edge, so any image will do:

    V = (B' (x) B') tiles(x)'       (t^2, c, tiles)     the tiles are im2col with a window of t and stride m
    U = (G  (x) G ) weight          (t^2, f, c)
    M[i] = U[i] V[i]                (t^2, f, tiles)     t^2 products, where all the work is
    y = tiles'((A' (x) A') M)                           col2im with a window of m and stride m

(x) is the Kronecker product: each two-sided transform is one GEMM. All is linear, so the gradients are the
transposes, read from right to left. With Numba, compiled loops take one axis after the other
(`loops.winograd`), and the input's gradient is a convolution of dy by the weight back to front. One or two
axes; tiles up to 8 pixels a side; stride 1, no dilation.
Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

from minicaffe.backend import on_cuda
from minicaffe.ops.conv import split
from minicaffe.ops.conv.common import no_bias, recordable
from minicaffe.ops.conv.tiles import Chunk, Sizing
from minicaffe.ops.conv.transforms import POINTS, along, constants, reversed_columns, two
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.ops.loops import with_blas
from minicaffe.ops.record import Piece
from minicaffe.ops.threads import in_slices, run, share

TILES = 64  # of a product at the least: fewer would starve it
FEWEST = 8  # of a product, where threads share the tiles of one sample
IN_CACHE = 2**18  # elements of V and M that the compiled loops have at a time


class Winograd(Sizing):
    """F(m x m, r x r) as a strategy, for whichever r the convolution has."""

    recordable = staticmethod(recordable)

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
        back = _adjoint(g)  # of which the loops take a row of tiles at the least
        row = math.prod(self._sides(g)) * (g.c + g.f) * math.prod(self._tiles(back)[1:])
        fixed = self.forward_workspace(g, limit) + sum(self._parts(g)[1:])
        return max(fixed, self._parts(g)[0] + row)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Elements a thread needs for `forward`: U and a chunk of tiles."""
        fixed, tiles = sum(self._parts(g)), self._tiles(g)
        many = max(TILES, math.prod(tiles[1:]), max(limit - fixed, fixed // 2) // self._tile(g))
        return self._parts(g)[0] + min(many, g.n * math.prod(tiles)) * self._tile(g)

    def forward(
        self, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
    ) -> Any:
        """y = A' [U V] A + bias, into `out`."""
        if self._compiled(x, weight, bias, g, out, work, False):
            return out
        at, _, bt = self._matrices(g, x)

        def part(first: int, last: int, work: Any) -> None:
            size = self._parts(g)[0]
            u, work = work[:size], work[size:]
            u = self._weight(weight, g, u)
            for chunk in self._chunks(first, last, g, work):
                chunk.x.read(x[chunk.samples])
                gemm(bt, chunk.x.form, chunk.v)
                gemm(u, chunk.by_point(chunk.v), chunk.by_point(chunk.m))
                gemm(at, chunk.m, chunk.y.form)
                if bias is not None:
                    chunk.y.add(bias)
                chunk.y.write(out[chunk.samples])

        in_slices(part, g.n, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dx = tiles'(B [U' (A dy A')] B'), into `out`; compiled, it is a convolution of dy."""
        if not self._compiled(dy, weight, None, _adjoint(g), out, work, True):
            self.gradients(None, dy, weight, g, out, None, work)
        return out

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """dweight = G' [sum over tiles of (A dy A') V'] G, added to `out`."""
        if not self._compiled_weight_gradient(x, dy, g, out, work):
            self.gradients(x, dy, None, g, None, out, work)
        return out

    def gradients(
        self, x: Any, dy: Any, weight: Any, g: ConvGeometry, dx: Any, dw: Any, work: Any
    ) -> None:
        """Both gradients, by NumPy with the tiles of dy transformed once; dx or dw may be None: not wanted."""
        if with_blas("winograd", dy)[0] is not None:
            if dw is not None:
                self.weight_gradient(x, dy, g, dw, work)
            if dx is not None:
                self.input_gradient(dy, weight, g, dx, work)
            return
        at, gg, bt = self._matrices(g, dy)
        shape = (len(gg), g.group, g.f // g.group, g.c // g.group)

        def part(first: int, last: int, work: Any) -> None:
            u, sums, product, work = self._split(g, work)
            share, s = u[: math.prod(g.weight_shape)], sums.reshape(shape)
            sums.fill(0)
            if dx is not None:
                u = self._weight(weight, g, u).swapaxes(2, 3)
            for chunk in self._chunks(first, last, g, work):
                here = chunk.samples
                chunk.y.read(dy[here])
                gemm(at.T, chunk.y.form, chunk.m)
                m, v = chunk.by_point(chunk.m), chunk.by_point(chunk.v)
                if dw is not None:
                    chunk.x.read(x[here])
                    gemm(bt, chunk.x.form, chunk.v)
                    for some_points in self._groups(g):
                        to = product[: s[some_points].size].reshape(s[some_points].shape)
                        gemm(m[some_points], v[some_points].swapaxes(2, 3), to)
                        s[some_points] += to
                if dx is not None:
                    gemm(u, m, v)
                    gemm(bt.T, chunk.v, chunk.x.form)
                    chunk.x.write(dx[here])
            if dw is not None:  # where U was
                gemm(sums.reshape(len(gg), -1).T, gg, share.reshape(-1, gg.shape[1]))

        for piece in in_slices(part, g.n, work):
            if dw is not None:
                dw += piece[: dw.size].reshape(dw.shape)

    def _compiled(
        self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any, turned: bool
    ) -> bool:
        """Compute y by compiled loops, if they serve: also where the weight is `turned`, to (c, f) and back to
        front, and `g` the convolution that is then the input's gradient."""
        fast, blas = with_blas("winograd", x)
        if fast is None:
            return False
        plain, _ = along(self.m, g.window.kernel, x.dtype)
        (_, g0, _, _, g1, _), size = plain, self._weights(g)
        if turned:
            g0, g1 = reversed_columns(self.m, g.window.kernel, x.dtype)
        run(fast.transform, size // (len(g0) * len(g1)), weight.reshape(-1), g0, g1, work[:size])
        units, numbers = self._numbers(g, (work.size - size) // share(work), share(work))
        given = x.reshape(-1), no_bias(x.dtype) if bias is None else bias, work[:size]
        args = plain, turned, *given, out.reshape(-1), Piece(work[size:])
        run(fast.forward, units, blas, *numbers, *args)
        return True

    def _compiled_weight_gradient(
        self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any
    ) -> bool:
        """Add dweight to `out` by compiled loops, if they serve."""
        fast, blas = with_blas("winograd", dy)
        if fast is None:
            return False
        plain, turned = along(self.m, g.window.kernel, dy.dtype)
        (_, gt0, _, _, gt1, _), size = turned, self._weights(g)
        units, numbers = self._numbers(g, work.size // share(work) - size, share(work))
        args = plain, turned, x.reshape(-1), dy.reshape(-1), Piece(work)
        slices = run(fast.weight_gradient, units, blas, *numbers, *args)
        pairs = math.prod(g.weight_shape[:2])
        if slices:
            run(fast.transform_back, pairs, work, slices, gt0, gt1, pairs, out.reshape(-1))
        return True

    @functools.lru_cache(maxsize=1024)  # noqa: B019  (there are two of this class, for good)
    def _numbers(self, g: ConvGeometry, rest: int, threads: int) -> tuple[int, tuple[Any, ...]]:
        """How many units there are; and sizes, samples and rows of tiles of a unit, and the pad."""
        (h, w), (oh, ow), (rows, columns), pad = (
            two(sizes, fill)
            for sizes, fill in ((g.image, 1), (g.out, 1), (self._tiles(g), 1), (g.window.pad, 0))
        )
        points = math.prod(self._sides(g)) * (g.c + g.f)
        most = min(rest // points, max(TILES, (IN_CACHE + self._weights(g)) // points))
        samples, high = max(1, most // (rows * columns)), max(1, min(rows, most // columns))
        chunks = -(-g.n // samples)
        samples = max(1, g.n // max(threads, chunks + -chunks % threads))  # as many a thread
        if samples == 1:
            fewest = max(1, FEWEST // columns)
            high = -(-rows // split.parts(g.n, threads, rows // fewest, -(-rows // high)))
        units = -(-g.n // samples) * -(-rows // high)
        return units, ((g.n, g.c, h, w, g.f, oh, ow, g.group), (samples, high), pad)

    def _matrices(self, g: ConvGeometry, x: Any) -> tuple[Any, ...]:
        return constants(self.m, g.window.kernel, x.dtype, x.device.id if on_cuda(x) else None)

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


@functools.lru_cache(maxsize=1024)
def _adjoint(g: ConvGeometry) -> ConvGeometry:
    """The convolution of dy that gives dx, of stride 1: dy's places are its pixels."""
    pad = tuple(k - 1 - p for k, p in zip(g.window.kernel, g.window.pad, strict=True))
    return ConvGeometry(g.n, g.f, g.out, g.c, dataclasses.replace(g.window, pad=pad), g.group)
