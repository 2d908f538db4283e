"""The definition itself: loops over the kernel's elements, no column matrix, no GEMM.

    y[s, f, o] = bias[f] + sum over c, k of weight[f, c, k] x[s, c, o stride - pad + k dilation]

The reference of all other strategies. As compiled loops, rows of pixels times one weight, it is also the quick
one where a group has few channels and filters (depthwise), for there is nothing a GEMM could reuse.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.backend import launch, on_cuda
from minicaffe.ops.conv.common import add_partial_sums, no_bias, partial_sums
from minicaffe.ops.geometry import ConvGeometry, lift
from minicaffe.ops.loops import loops
from minicaffe.ops.threads import in_slices, run


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: every shape can."""
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: partial sums of dweight."""
    return math.prod(g.weight_shape)


def recordable(dtype: Any) -> bool:
    """Whether loops serve arrays of a type."""
    return loops("direct", dtype) is not None


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    if on_cuda(x):
        launch("direct.cu", "conv", out.size, out, x, weight, bias, *_sizes(g), out)
        return out
    fast, axes = loops("direct", x.dtype), _letters(g)
    if fast is not None:
        given = x.reshape(-1), weight.reshape(-1), no_bias(x.dtype) if bias is None else bias
        run(fast.forward, g.n * g.f, *given, out.reshape(-1), _lifted(g))
        return out

    def part(first: int, last: int, _: Any) -> None:
        out[first:last] = 0 if bias is None else bias.reshape(-1, *[1] * len(g.image))
        y, seen = _grouped(out[first:last], g), _grouped(x[first:last], g)
        for w, places, pixels in _elements(weight, g):
            y[places] += np.einsum(f"gfc,sgc{axes}->sgf{axes}", w, seen[pixels])

    in_slices(part, g.n)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dx: each output's gradient goes back to the pixels it saw, times their weights; into `out`."""
    if on_cuda(dy):
        launch("direct.cu", "conv_input_gradient", out.size, out, dy, weight, *_sizes(g), out)
        return out
    fast, axes = loops("direct", dy.dtype), _letters(g)
    if fast is not None:
        given = dy.reshape(-1), weight.reshape(-1), out.reshape(-1)
        run(fast.input_gradient, g.n * g.c, *given, _lifted(g))
        return out

    def part(first: int, last: int, _: Any) -> None:
        out[first:last] = 0
        dx, seen = _grouped(out[first:last], g), _grouped(dy[first:last], g)
        for w, places, pixels in _elements(weight, g):
            dx[pixels] += np.einsum(f"gfc,sgf{axes}->sgc{axes}", w, seen[places])

    in_slices(part, g.n)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight: for each weight the sum of output gradients times the pixels it met; added to `out`."""
    if on_cuda(x):
        launch("direct.cu", "conv_weight_gradient", out.size, out, x, dy, *_sizes(g), out)
        return out
    fast, axes = loops("direct", dy.dtype), _letters(g)
    if fast is not None:
        given = x.reshape(-1), dy.reshape(-1), g.n, out.reshape(-1)
        run(fast.weight_gradient, g.f, *given, _lifted(g))
        return out

    def part(first: int, last: int, work: Any) -> None:
        sums = partial_sums(work, g)
        there, seen = _grouped(dy[first:last], g), _grouped(x[first:last], g)
        for w, places, pixels in _elements(sums.reshape(g.weight_shape), g):
            w += np.einsum(f"sgf{axes},sgc{axes}->gfc", there[places], seen[pixels])

    add_partial_sums(in_slices(part, g.n, work), out)
    return out


def _letters(g: ConvGeometry) -> str:
    return "xyz"[: len(g.image)]


def _grouped(blob: Any, g: ConvGeometry) -> Any:
    n, c, *sizes = blob.shape
    return blob.reshape(n, g.group, c // g.group, *sizes)


def _elements(weight: Any, g: ConvGeometry) -> Any:
    """For each kernel element: its weights (g, f/g, c/g), where in y it is used, and what of x it sees."""
    w, lead = weight.reshape(g.group, -1, *g.weight_shape[1:]), (slice(None),) * 3
    for element, places, pixels in g.window.elements(g.image, g.out):
        yield w[lead + element], lead + places, lead + pixels


def _lifted(g: ConvGeometry) -> tuple[Any, ...]:
    return g.c, g.f, g.group, lift(g.image), g.window.lifted(), lift(g.out)


def _sizes(g: ConvGeometry) -> tuple[int, ...]:
    kernel, stride, pad, dilation = g.window.lifted()
    parts = (lift(g.image), kernel, pad, stride, dilation, lift(g.out))
    return (g.n, g.c, g.f, g.group, *(size for part in parts for size in part))
