"""1 x 1 convolution: the image is its own column matrix, so there is no lowering at all.

    y[s, g] = weight[g] x[s, g] + bias[g]                        (f/g, c/g) (c/g, p)

One strided-batched GEMM; the weight's gradient is a product a sample, summed: on the CPU as soon as it is
there, on CUDA as many at a time as the work holds.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.ops.conv.common import add_bias
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.ops.sums import add_rows
from minicaffe.ops.threads import in_slices


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
    weight = math.prod(g.weight_shape)
    return (max(1, min(g.n, limit // max(1, weight) - 1)) + 1) * weight


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight x + bias, into `out`."""
    w, y = (
        weight.reshape(g.group, g.f // g.group, -1),
        out.reshape(g.n, g.group, g.f // g.group, g.places),
    )
    x = x.reshape(g.n, g.group, g.c // g.group, g.places)

    def part(first: int, last: int, _: Any) -> None:
        gemm(w, x[first:last], y[first:last])
        add_bias(bias, out[first:last])

    in_slices(part, g.n, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx = weight' dy, into `out`."""
    w = weight.reshape(g.group, g.f // g.group, -1).swapaxes(1, 2)
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.places)
    dx = out.reshape(g.n, g.group, g.c // g.group, g.places)

    def part(first: int, last: int, _: Any) -> None:
        gemm(w, dy[first:last], dx[first:last])

    in_slices(part, g.n, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight' = sum over samples of x[s] dy[s]', added to `out`."""
    size, dw = out.size, out.reshape(g.group, g.f // g.group, -1)
    x = x.reshape(g.n, g.group, g.c // g.group, g.places)
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.places).swapaxes(2, 3)

    def part(first: int, last: int, work: Any) -> None:
        sums, many = work[-size:], work.size // size - 1
        sums.fill(0)
        for s in range(first, last, many):
            e = min(s + many, last)
            products = work[: (e - s) * size].reshape(e - s, g.group, -1, g.f // g.group)
            gemm(x[s:e], dy[s:e], products)
            add_rows(products.reshape(e - s, -1), sums)

    for piece in in_slices(part, g.n, work):
        dw += piece[-size:].reshape(g.group, -1, g.f // g.group).swapaxes(1, 2)
    return out
