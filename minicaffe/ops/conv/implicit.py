"""Implicit GEMM: the column matrix is never whole; a tile of it lives as long as it is multiplied.

On CUDA a block gathers its tile of columns from the image into shared memory (kernels/implicit.cu). On the
CPU a tile is a band of output rows of one sample, small enough to stay in the cache between im2col and the
product that reads it:

    y[s, g, :, band] = weight[g] im2col(x[s])[g][:, band] + bias[g],   then max(0, y) where a ReLU is fused

A band is a window that starts further down: the first axis has pad - row stride. With Numba, all bands of a
thread are one compiled loop (`loops.implicit`) that calls BLAS itself. Source: S. Chetlur et al.,
cuDNN: Efficient Primitives for Deep Learning, 2014.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.ops.conv import implicit_gemm
from minicaffe.ops.conv.implicit_gemm import workspace as cuda_workspace
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry, Window, lift
from minicaffe.ops.im2col import col2im, im2col
from minicaffe.ops.loops import with_blas
from minicaffe.ops.threads import in_slices

__all__ = ["cuda_workspace", "forward", "input_gradient", "refuses", "weight_gradient", "workspace"]
TILE = 2**16  # entries of a tile: 256 KiB in float32
PLACES = 64  # of a product at the least, where an image has so many: fewer would starve it


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: every shape can."""
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: a tile, or one row of outputs if that is more; a product and sums."""
    return forward_workspace(g, limit) + 2 * math.prod(g.weight_shape)


def forward_workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs for `forward`: a tile."""
    return _band(g) * g.rows * _across(g)


def forward(
    x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any, relu: bool = False
) -> Any:
    """y = weight * x + bias, with `relu` max(0, y), into `out`."""
    if on_cuda(x):
        return implicit_gemm.forward(x, weight, bias, g, out, relu)
    w, y = weight.reshape(g.group, g.f // g.group, -1), _rows(out, g)
    b = None if bias is None else bias.reshape(g.group, -1, 1)
    fast, blas = with_blas("implicit", x)

    def part(first: int, last: int, work: Any) -> None:
        if fast is not None:
            given = np.empty(0, x.dtype) if bias is None else bias
            flat = x.reshape(-1), weight.reshape(-1), given, relu
            fast.forward(blas, *_numbers(g), *flat, work, out.reshape(-1), first, last)
            return
        for s in range(first, last):
            for rows, window, places, tile in _tiles(g, work):
                im2col(x[s : s + 1], window, tile, places=places)
                here = y[s][..., rows]
                gemm(w, tile, here)
                if b is not None:
                    here += b
                if relu:
                    np.maximum(here, 0, out=here)

    in_slices(part, g.n, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx = sum over the bands of col2im(weight' dy), into `out`."""
    if on_cuda(dy):
        return implicit_gemm.input_gradient(dy, weight, g, out)
    w, dy = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2), _rows(dy, g)
    fast, blas = with_blas("implicit", dy)

    def part(first: int, last: int, work: Any) -> None:
        if fast is not None:
            flat = dy.reshape(-1), weight.reshape(-1), work, out.reshape(-1)
            fast.input_gradient(blas, *_numbers(g), *flat, first, last)
            return
        for s in range(first, last):
            out[s] = 0
            for rows, window, places, tile in _tiles(g, work):
                gemm(w, dy[s][..., rows], tile)
                col2im(tile, window, out[s : s + 1], places=places, add=True)

    in_slices(part, g.n, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight' = sum over samples and bands of im2col(x) dy', added to `out`."""
    if on_cuda(x):
        return implicit_gemm.weight_gradient(x, dy, g, out, work)
    size, dw, dy = out.size, out.reshape(g.group, g.f // g.group, -1), _rows(dy, g)
    fast, blas = with_blas("implicit", dy)

    def part(first: int, last: int, work: Any) -> None:
        product, sums = work[-2 * size : -size], work[-size:]
        sums.fill(0)
        if fast is not None:
            flat = x.reshape(-1), dy.reshape(-1), work, sums
            fast.weight_gradient(blas, *_numbers(g), *flat, first, last)
            return
        for s in range(first, last):
            for rows, window, places, tile in _tiles(g, work):
                im2col(x[s : s + 1], window, tile, places=places)
                gemm(
                    tile,
                    dy[s][..., rows].swapaxes(1, 2),
                    product.reshape(g.group, -1, g.f // g.group),
                )
                sums += product

    for piece in in_slices(part, g.n, work):
        dw += piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2)
    return out


def _across(g: ConvGeometry) -> int:
    """Outputs of one row: along all axes but the first."""
    return math.prod(g.out[1:])


def _band(g: ConvGeometry) -> int:
    """Output rows of a tile."""
    across = _across(g)
    return max(1, min(g.out[0], max(TILE // (g.rows * across), -(-PLACES // across))))


@functools.lru_cache(maxsize=1024)
def _numbers(g: ConvGeometry) -> tuple[Any, ...]:
    """What the loops want to know: sizes, the first axis of three, and im2col's shapes."""
    sizes = g.group, g.f // g.group, g.rows // g.group, _band(g)
    return sizes, 3 - len(g.image), (g.c, lift(g.image), g.window.lifted(), lift(g.out))


def _rows(y: Any, g: ConvGeometry) -> Any:
    return y.reshape(g.n, g.group, g.f // g.group, g.places)


def _tiles(g: ConvGeometry, work: Any) -> Iterator[tuple[slice, Window, tuple[int, ...], Any]]:
    """For each band: its places, the window that starts there, its sizes, room for its columns."""
    across, most, window = _across(g), _band(g), g.window
    for row in range(0, g.out[0], most):
        rows = min(most, g.out[0] - row)
        pad = (window.pad[0] - row * window.stride[0], *window.pad[1:])
        tile = work[: g.rows * rows * across].reshape(g.group, -1, rows * across)
        places = slice(row * across, (row + rows) * across)
        yield places, dataclasses.replace(window, pad=pad), (rows, *g.out[1:]), tile
