"""Implicit GEMM: only a tile of the column matrix exists at a time, while it is multiplied.

On CUDA a block copies its tile of columns from the image to shared memory
(backends/cuda/kernels/implicit.cu). On the CPU a tile holds the columns of a band: some output rows of one
sample, few enough for the tile to stay in the cache between im2col and the product that reads it:

    y[s, g, :, band] = weight[g] im2col(x[s])[g][:, band] + bias[g]

A band that begins at an output row is a window with another pad, pad - row stride, along the first axis.
With Numba, compiled loops compute all bands of a thread (backends/cpu/conv/implicit.py). Source:
S. Chetlur et al., cuDNN: Efficient Primitives for Deep Learning, 2014.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

from minicaffe.backends.dispatch import op, tried, workspace
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv.common import by_samples
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.gemm import gemm
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.core.ops.im2col import col2im, im2col

TILE = 2**17  # entries of a tile: 512 KiB in float32
PLACES = 192  # of a product, at least, if there are as many: BLAS packs the filters for each


class Implicit(Engine):
    """GEMM with a column matrix of which only a tile exists at a time."""

    name = "implicit"
    traced = True
    rule_rank = 1
    tie_rank = 0
    one_product = True

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: those of `forward`, a product, and partial sums."""
        return self.forward_workspace(g, limit) + 2 * math.prod(g.weight_shape)

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`: a tile, or one row of outputs if that is more."""
        return max(band(g) * g.rows * _across(g), tile_size(g))

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements for partial sums on CUDA."""
        return workspace(Implicit.forward, "cuda", g, limit, itemsize)

    @op(traced=False)
    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""
        w, y = weight.reshape(g.group, g.f // g.group, -1), _rows(out, g)
        b = None if bias is None else bias.reshape(g.group, -1, 1)

        def part(first: int, last: int, work: Any) -> None:
            for s in range(first, last):
                for rows, window, places, tile in _tiles(g, work):
                    im2col(x[s : s + 1], window, tile, places=places)
                    results = y[s][..., rows]
                    gemm(w, tile, results)
                    if b is not None:
                        arrays.add(b, results)

        by_samples(part, g, work)

    @op(traced=False)
    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx = sum over bands of col2im(weight' dy) to `out`, and returns it."""
        w, dy = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2), _rows(dy, g)

        def part(first: int, last: int, work: Any) -> None:
            for s in range(first, last):
                arrays.fill(out[s], 0)
                for rows, window, places, tile in _tiles(g, work):
                    gemm(w, dy[s][..., rows], tile)
                    col2im(tile, window, out[s : s + 1], places=places, add=True)

        by_samples(part, g, work)

    @tried
    def weight_and_bias_gradients(
        self, x: Any, dy: Any, g: ConvGeometry, dw: Any, db: Any, work: Any
    ) -> bool:
        """Adds dweight to `dw` and dbias to `db` by one kernel; returns whether there is one, on CUDA."""
        raise NotImplementedError

    @op(traced=False)
    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight' = sum over samples and bands of im2col(x) dy', transposed, to `out`; returns it."""
        size, dw, dy = out.size, out.reshape(g.group, g.f // g.group, -1), _rows(dy, g)

        def part(first: int, last: int, work: Any) -> None:
            product, sums = work[-2 * size : -size], work[-size:]
            arrays.fill(sums, 0)
            for s in range(first, last):
                for rows, window, places, tile in _tiles(g, work):
                    im2col(x[s : s + 1], window, tile, places=places)
                    to = product.reshape(g.group, -1, g.f // g.group)
                    gemm(tile, dy[s][..., rows].swapaxes(1, 2), to)
                    arrays.add(product, sums)

        for piece in by_samples(part, g, work):
            arrays.add(piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2), dw)


IMPLICIT = Implicit()  # to which engines fall back that have no loops for a type or device


def _across(g: ConvGeometry) -> int:
    """Returns the places of one output row: along all axes but the first."""
    return math.prod(g.out[1:])


@functools.lru_cache(maxsize=1024)
def band(g: ConvGeometry, groups: int = 1) -> int:
    """Returns the output rows of a band whose tile holds 1 / `groups` of the channels."""
    across = _across(g)
    return max(1, min(g.out[0], max(TILE // (g.rows // groups * across), -(-PLACES // across))))


@functools.lru_cache(maxsize=1024)
def tile_size(g: ConvGeometry) -> int:
    """Returns the elements of a tile of one group, as the compiled loops use it."""
    return band(g, g.group) * (g.rows // g.group) * _across(g)


def _rows(y: Any, g: ConvGeometry) -> Any:
    return y.reshape(g.n, g.group, g.f // g.group, g.places)


def _tiles(g: ConvGeometry, work: Any) -> Iterator[tuple[slice, Window, tuple[int, ...], Any]]:
    """For each band: its places, the window that begins there, its output sizes, workspace for its columns."""
    across, most, window = _across(g), band(g), g.window
    for row in range(0, g.out[0], most):
        rows = min(most, g.out[0] - row)
        pad = (window.pad[0] - row * window.stride[0], *window.pad[1:])
        tile = work[: g.rows * rows * across].reshape(g.group, -1, rows * across)
        places = slice(row * across, (row + rows) * across)
        yield places, dataclasses.replace(window, pad=pad), (rows, *g.out[1:]), tile
