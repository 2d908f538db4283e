"""A chunk of samples at a time as one column matrix, and one GEMM.

With the columns of all windows of a chunk side by side, (k, s p), one product serves all its samples,
however few places an image has:

    Y[g] = weight[g] columns(x)[g]              (f/g, k) (k, s p),  then y[s, g] = Y[g][:, s] + bias[g]

The price is that y is written twice: its samples stand apart. For chunks and the weight's gradient see
`batched`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from minicaffe.ops.conv.common import by_samples, from_chunk, plus, to_chunk
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.ops.im2col import col2im, im2col
from minicaffe.replay.trace import do


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: every shape can."""
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: columns and outputs of a chunk, two of the weight's size."""
    chunk = max(1, min(g.n, (limit - _weights(g)) // _sample(g)))
    return chunk * _sample(g) + _weights(g)


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    w = weight.reshape(g.group, g.f // g.group, -1)

    def part(first: int, last: int, work: Any) -> None:
        for s, e, columns, y in _chunks(first, last, g, work):
            im2col(x[s:e], g.window, columns, "columns")
            for i in range(g.group):
                gemm(w[i], columns[i], y[i])
            from_chunk(y, bias, out[s:e])

    by_samples(part, g, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx = col2im(weight' dy), into `out`."""
    w = weight.reshape(g.group, g.f // g.group, -1)

    def part(first: int, last: int, work: Any) -> None:
        for s, e, columns, y in _chunks(first, last, g, work):
            to_chunk(dy[s:e], y)
            for i in range(g.group):
                gemm(w[i].T, y[i], columns[i])
            col2im(columns, g.window, out[s:e], "columns")

    by_samples(part, g, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight' = columns(x) dy', added to `out`."""
    size = out.size

    def part(first: int, last: int, work: Any) -> None:
        sums, scratch = work[-size:].reshape(g.group, -1, g.f // g.group), work[-2 * size : -size]
        for s, e, columns, y in _chunks(first, last, g, work):
            im2col(x[s:e], g.window, columns, "columns")
            to_chunk(dy[s:e], y)
            for i in range(g.group):
                gemm(columns[i], y[i].T, sums[i], accumulate=s > first, scratch=scratch)

    dw = out.reshape(g.group, g.f // g.group, -1)
    for piece in by_samples(part, g, work):
        sums = piece[-size:].reshape(g.group, -1, g.f // g.group)
        do(plus, sums.transpose(0, 2, 1), out=dw)
    return out


def _sample(g: ConvGeometry) -> int:
    return g.column_elements + g.f * g.places


def _weights(g: ConvGeometry) -> int:
    return 2 * math.prod(g.weight_shape)


def _chunks(first: int, last: int, g: ConvGeometry, work: Any) -> Any:
    """For each chunk of first..last: its bounds, and room for its columns and outputs, a matrix a group."""
    most = max(1, (work.size - _weights(g)) // _sample(g))
    steps = -(-(last - first) // most)  # chunks as equal as can be
    bounds = [first + (last - first) * i // steps for i in range(steps + 1)]
    for s, e in itertools.pairwise(bounds):
        n, split = e - s, (e - s) * g.column_elements
        columns = work[:split].reshape(g.group, -1, n * g.places)
        yield (
            s,
            e,
            columns,
            work[split : split + n * g.f * g.places].reshape(g.group, -1, n * g.places),
        )
