"""1 x 1 convolution: the image is its own column matrix, so there is no lowering at all.

    y[s, g] = weight[g] x[s, g] + bias[g]                        (f/g, c/g) (c/g, p)

One strided-batched GEMM; the weight's gradient is a product a sample, summed: on the CPU as soon as it is
there, on CUDA as many at a time as the work holds. Images of one place are rows of one matrix, and each
direction is one product. With Numba, products are compiled loops (`loops.pointwise`), whose threads share
samples, groups, and bands of rows or columns.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from minicaffe.cpu import no_bias, with_blas
from minicaffe.cpu.threads import share
from minicaffe.ops.conv import split
from minicaffe.ops.conv.common import add_bias, by_samples, is_product, plus, recordable
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.ops.sums import add_rows
from minicaffe.replay.dispatch import run
from minicaffe.replay.trace import do

__all__ = [
    "cuda_workspace",
    "forward",
    "forward_workspace",
    "input_gradient",
    "recordable",
    "refuses",
    "weight_gradient",
    "workspace",
]
BAND = 8  # rows or columns of a product that threads share, at the least


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: windows that are more, or fewer, than the pixels themselves."""
    return None if g.window.is_point else "it needs a kernel of 1, stride 1 and pad 0"


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: a product and the sum of products."""
    return 2 * math.prod(g.weight_shape)


def forward_workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs for `forward`: none."""
    return 0


def cuda_workspace(g: ConvGeometry, limit: int, size: int) -> int:
    """Elements, of `size` bytes, needed on CUDA: products, of all samples if `limit` allows, and their sum."""
    if is_product(g):
        return 0
    weight = math.prod(g.weight_shape)
    return (max(1, min(g.n, limit // max(1, weight) - 1)) + 1) * weight


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight x + bias, into `out`."""
    if _product(weight, False, x, bias, g, out):
        return out
    if is_product(g):
        gemm(x.reshape(g.n, g.c), weight.reshape(g.f, g.c).T, out.reshape(g.n, g.f))
        add_bias(bias, out)
        return out
    w, y = (
        weight.reshape(g.group, g.f // g.group, -1),
        out.reshape(g.n, g.group, g.f // g.group, g.places),
    )
    x = x.reshape(g.n, g.group, g.c // g.group, g.places)

    def part(first: int, last: int, _: Any) -> None:
        gemm(w, x[first:last], y[first:last])
        add_bias(bias, out[first:last])

    by_samples(part, g, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx = weight' dy, into `out`."""
    if _product(weight, True, dy, None, g, out):
        return out
    if is_product(g):
        gemm(dy.reshape(g.n, g.f), weight.reshape(g.f, g.c), out.reshape(g.n, g.c))
        return out
    w = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2)
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.places)
    dx = out.reshape(g.n, g.group, g.c // g.group, g.places)

    def part(first: int, last: int, _: Any) -> None:
        gemm(w, dy[first:last], dx[first:last])

    by_samples(part, g, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight' = sum over samples of x[s] dy[s]', added to `out`."""
    fast, blas = with_blas("pointwise", x)
    if fast is not None:
        sizes = g.group, g.f // g.group, g.c // g.group, g.places
        parts = _grid(g.group, *sizes[1:3], share(x))
        given = x.reshape(-1), dy.reshape(-1), out.reshape(-1)
        run(fast.weight_gradient, g.group * math.prod(parts), blas, sizes, parts, g.n, *given)
        return out
    if is_product(g):
        dys, xs = dy.reshape(g.n, g.f), x.reshape(g.n, g.c)
        gemm(dys.T, xs, out.reshape(g.f, g.c), accumulate=True, scratch=work)
        return out
    size, dw = out.size, out.reshape(g.group, g.f // g.group, -1)
    x = x.reshape(g.n, g.group, g.c // g.group, g.places)
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.places).swapaxes(2, 3)

    def part(first: int, last: int, work: Any) -> None:
        sums, many = work[-size:], work.size // size - 1
        for s in range(first, last, many):
            e = min(s + many, last)
            products = work[: (e - s) * size].reshape(e - s, g.group, -1, g.f // g.group)
            gemm(x[s:e], dy[s:e], products)
            add_rows(products.reshape(e - s, -1), sums, add=s > first)

    for piece in by_samples(part, g, work):
        do(plus, piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2), out=dw)
    return out


def _product(weight: Any, turned: bool, x: Any, bias: Any, g: ConvGeometry, out: Any) -> bool:
    """out = weight x + bias by the compiled loop, if it serves; the weight is transposed if `turned`."""
    fast, blas = with_blas("pointwise", x)
    if fast is None:
        return False
    f, c = g.f // g.group, g.c // g.group
    sizes = (g.group, c, f, g.places) if turned else (g.group, f, c, g.places)
    parts = _grid(g.n * g.group, sizes[1], g.places, share(x))
    given = x.reshape(-1), no_bias(x.dtype) if bias is None else bias, out.reshape(-1)
    args = blas, sizes, parts, weight.reshape(-1), turned, *given
    run(fast.product, g.n * g.group * math.prod(parts), *args)
    return True


@functools.lru_cache(maxsize=1024)
def _grid(units: int, rows: int, columns: int, threads: int) -> tuple[int, int]:
    """Into how many bands the rows and the columns of each product are cut; the longer side first."""
    longer, shorter = sorted((rows, columns), reverse=True)
    first = split.parts(units, threads, max(1, longer // BAND))
    second = split.parts(units * first, threads, max(1, shorter // BAND))
    return (first, second) if rows >= columns else (second, first)
