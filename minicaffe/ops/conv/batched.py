"""A chunk of samples at a time: their columns one behind the other, and one strided-batched GEMM.

    y[s, g] = weight[g] im2col(x[s])[g] + bias[g]     for all samples s of the chunk at once

The products go straight into y and take one call a chunk. A chunk is as large as the work allows
(`workspace` asks for no more than `limit`); on the CPU it is small, so that columns are written,
multiplied and forgotten within the cache. The weight's gradient is taken as its transpose, columns dy',
whose left factor BLAS reads as it lies.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from minicaffe.backend import on_cuda
from minicaffe.ops.conv.common import add_bias, by_samples, plus
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.ops.im2col import col2im, im2col
from minicaffe.ops.sums import add_rows
from minicaffe.replay.trace import do

NEAR = (
    2**19
)  # elements of columns and outputs of a chunk on the CPU, so that they stay in a core's cache


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: every shape can."""
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: for each sample of a chunk columns and a product; sums of products."""
    weight = math.prod(g.weight_shape)
    return _most(g, limit) * (g.column_elements + weight) + weight


def forward_workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs for `forward`: for each sample of a chunk columns."""
    return _most(g, limit) * g.column_elements


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    w, y = (
        weight.reshape(g.group, g.f // g.group, -1),
        out.reshape(g.n, g.group, g.f // g.group, g.places),
    )

    def part(first: int, last: int, work: Any) -> None:
        for s, e, columns in _columns(first, last, g, work):
            im2col(x[s:e], g.window, columns)
            gemm(w, columns, y[s:e])
            add_bias(bias, out[s:e])

    by_samples(part, g, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx = col2im(weight' dy), into `out`."""
    w = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2)
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.places)

    def part(first: int, last: int, work: Any) -> None:
        for s, e, columns, _ in _chunks(first, last, g, work):
            gemm(w, dy[s:e], columns)
            col2im(columns, g.window, out[s:e])

    by_samples(part, g, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight' = sum over samples of im2col(x) dy', added to `out`."""
    size, dw = out.size, out.reshape(g.group, g.f // g.group, -1)
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.places).swapaxes(2, 3)

    def part(first: int, last: int, work: Any) -> None:
        sums = work[-size:]
        for s, e, columns, products in _chunks(first, last, g, work):
            im2col(x[s:e], g.window, columns)
            gemm(columns, dy[s:e], products)
            add_rows(products.reshape(e - s, -1), sums, add=s > first)

    for piece in by_samples(part, g, work):
        do(plus, piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2), out=dw)
    return out


def _most(g: ConvGeometry, limit: int) -> int:
    """Samples of a chunk, if its columns, products and their sums are to be no more than `limit`."""
    weight = math.prod(g.weight_shape)
    return max(1, min(g.n, (limit - weight) // (g.column_elements + weight)))


def _columns(first: int, last: int, g: ConvGeometry, work: Any, each: int = 0) -> Any:
    """For each chunk of first..last: its bounds, and room for its columns, of `each` more a sample."""
    most = max(1, work.size // max(1, g.column_elements + each))
    if not on_cuda(work):
        most = max(1, min(most, NEAR // (1 + g.column_elements + g.f * g.places)))
    steps = -(-(last - first) // most)  # chunks as equal as can be
    bounds = [first + (last - first) * i // steps for i in range(steps + 1)]
    for s, e in itertools.pairwise(bounds):
        columns = work[: (e - s) * g.column_elements]
        yield s, e, columns.reshape(e - s, g.group, g.rows // g.group, g.places)


def _chunks(first: int, last: int, g: ConvGeometry, work: Any) -> Any:
    """For each chunk of first..last: its bounds, and room for its columns and products."""
    weight = math.prod(g.weight_shape)
    for s, e, columns in _columns(first, last, g, work[: work.size - weight], weight):
        products = work[columns.size : columns.size + (e - s) * weight]
        yield s, e, columns, products.reshape(e - s, g.group, -1, g.f // g.group)
