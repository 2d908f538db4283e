"""A chunk of samples at a time: their column matrices side by side, and one strided-batched GEMM.

    y[s, g] = weight[g] im2col(x[s])[g] + bias[g]     for all samples s of the chunk at once

One call for each chunk writes its products into y. The image of a 1 x 1 convolution is its own column matrix.
If an image has one place, each direction is one product. A chunk is as large as the workspace allows. On the
CPU a chunk is small, so that its columns stay in the cache until they are multiplied. The weight gradient is
computed transposed, columns dy', because BLAS then reads the columns without a copy.
"""

import itertools
import math
from typing import Any

from minicaffe.backends.device import device_of
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv.common import add_bias, by_samples
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.gemm import gemm
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.core.ops.im2col import col2im, im2col
from minicaffe.core.ops.sums import add_rows

NEAR = 2**19  # elements of a chunk's columns and outputs on the CPU: they stay in a core's cache


class Batched(Engine):
    """im2col of a chunk of samples, then one strided-batched GEMM."""

    name = "batched"
    traced = True
    rule_rank = 0
    tie_rank = 1
    unrolls_samples = True
    one_product = True

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread: columns and a product for each sample of a chunk, and sums."""
        weight = math.prod(g.weight_shape)
        return _samples(g, limit) * (_lowered(g) + weight) + weight

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements for one thread of `forward`: columns for each sample of a chunk."""
        return _samples(g, limit) * _lowered(g)

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns as many elements as on the CPU, or 0 if the convolution is one product."""
        return 0 if g.is_product else self.workspace(g, limit)

    def rounds_sums(self, g: ConvGeometry) -> bool:
        """Yes, unless the convolution is one product: products of samples are summed in the arrays' type."""
        return not g.is_product

    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out`, and returns it."""
        if g.is_product:
            gemm(x.reshape(g.n, g.c), weight.reshape(g.f, g.c).T, out.reshape(g.n, g.f))
            add_bias(bias, out)
            return out
        w = weight.reshape(g.group, g.f // g.group, -1)
        y = out.reshape(g.n, g.group, g.f // g.group, g.places)

        def part(first: int, last: int, work: Any) -> None:
            for s, e, columns in _columns(first, last, g, work):
                gemm(w, _unrolled(x[s:e], g, columns), y[s:e])
                add_bias(bias, out[s:e])

        by_samples(part, g, work)
        return out

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx = col2im(weight' dy) to `out`, and returns it."""
        if g.is_product:
            gemm(dy.reshape(g.n, g.f), weight.reshape(g.f, g.c), out.reshape(g.n, g.c))
            return out
        w = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2)
        dy = dy.reshape(g.n, g.group, g.f // g.group, g.places)

        def part(first: int, last: int, work: Any) -> None:
            for s, e, columns, _ in _chunks(first, last, g, work):
                if g.window.is_point:
                    gemm(w, dy[s:e], _as_columns(out[s:e], g))
                    continue
                gemm(w, dy[s:e], columns)
                col2im(columns, g.window, out[s:e])

        by_samples(part, g, work)
        return out

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight' = sum over samples of im2col(x) dy', transposed, to `out`, and returns it."""
        if g.is_product:
            dys, xs, dw = dy.reshape(g.n, g.f), x.reshape(g.n, g.c), out.reshape(g.f, g.c)
            gemm(dys.T, xs, dw, accumulate=True, scratch=work)
            return out
        size, dw = out.size, out.reshape(g.group, g.f // g.group, -1)
        dy = dy.reshape(g.n, g.group, g.f // g.group, g.places).swapaxes(2, 3)

        def part(first: int, last: int, work: Any) -> None:
            sums = work[-size:]
            for s, e, columns, products in _chunks(first, last, g, work):
                gemm(_unrolled(x[s:e], g, columns), dy[s:e], products)
                add_rows(products.reshape(e - s, -1), sums, add=s > first)

        for piece in by_samples(part, g, work):
            arrays.add(piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2), dw)
        return out


def _samples(g: ConvGeometry, limit: int) -> int:
    """Returns the samples of a chunk whose columns, products and sums have at most `limit` elements."""
    weight = math.prod(g.weight_shape)
    return max(1, min(g.n, (limit - weight) // max(1, _lowered(g) + weight)))


def _lowered(g: ConvGeometry) -> int:
    """Returns the elements of a sample's columns; 0 if the image is its own column matrix."""
    return 0 if g.window.is_point else g.column_elements


def _as_columns(x: Any, g: ConvGeometry) -> Any:
    """Images of a 1 x 1 convolution as column matrices, (s, group, c / group, places)."""
    return x.reshape(len(x), g.group, g.c // g.group, g.places)


def _unrolled(x: Any, g: ConvGeometry, columns: Any) -> Any:
    """The column matrices of x: the images themselves if 1 x 1, else im2col into `columns`."""
    return _as_columns(x, g) if g.window.is_point else im2col(x, g.window, columns)


def _columns(first: int, last: int, g: ConvGeometry, work: Any, each: int = 0) -> Any:
    """For each chunk of first..last: its bounds, and workspace for its columns; a sample has `each` more."""
    most = max(1, work.size // (_lowered(g) + each)) if _lowered(g) + each else last - first
    if not device_of(work).is_cuda:
        most = max(1, min(most, NEAR // (1 + g.column_elements + g.f * g.places)))
    count = -(-(last - first) // most)  # chunks of nearly one size
    for s, e in itertools.pairwise([first + (last - first) * i // count for i in range(count + 1)]):
        columns = work[: (e - s) * _lowered(g)]
        yield s, e, columns.reshape(e - s, g.group, -1 if columns.size else 0, g.places)


def _chunks(first: int, last: int, g: ConvGeometry, work: Any) -> Any:
    """For each chunk of first..last: its bounds, and workspace for its columns and products."""
    weight = math.prod(g.weight_shape)
    for s, e, columns in _columns(first, last, g, work[: work.size - weight], weight):
        products = work[columns.size : columns.size + (e - s) * weight]
        yield s, e, columns, products.reshape(e - s, g.group, -1, g.f // g.group)
