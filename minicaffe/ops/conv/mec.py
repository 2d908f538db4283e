"""Memory-efficient convolution: lower along every axis but the first, and multiply overlapping views.

A sample is unrolled along its columns only, with all that one output column needs of an image row side by
side, which is kw times the image, not kh kw:

    L[g, ox, y, (c, j)] = x[g, c, y - ph, ox sw - pw + j dw]

The windows of output row oy are rows oy sh ... oy sh + kh - 1 of L, which lie one behind the other for each
ox: a matrix (ow, kh c kw) whose rows are hp c kw apart. No row is copied; matrices of neighbouring oy overlap.

    y[g, :, oy, :] = weight[g] L[g, :, oy sh : oy sh + kh]'               (f/g, kh c kw) (kh c kw, ow)

With three axes L keeps the first and unrolls the others; with one axis nothing is copied but the image itself.
Source: M. Cho, D. Brand, MEC: Memory-efficient Convolution for Deep Neural Network, ICML 2017.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.ops.conv.common import add_bias, as_strided, by_samples, copy, fill, plus
from minicaffe.ops.gemm import gemm
from minicaffe.ops.geometry import ConvGeometry, Window
from minicaffe.replay.trace import do


def refuses(g: ConvGeometry) -> str | None:
    """Why a shape cannot be taken: kernel rows must lie one behind the other."""
    if g.window.dilation[0] != 1 and g.window.kernel[0] != 1:
        return "it needs dilation 1 along the first axis"
    return None


def workspace(g: ConvGeometry, limit: int) -> int:
    """Elements a thread needs: L, the weight in L's order, a product, and sums."""
    across = _across(g)
    product = max(across * _depth(g) * g.group, math.prod(g.weight_shape))
    return _lowered_size(g) + product + 2 * math.prod(g.weight_shape)


def forward(x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any) -> Any:
    """y = weight * x + bias, into `out`."""
    y = out.reshape(g.n, g.group, g.f // g.group, g.out[0], _across(g)).swapaxes(2, 3)

    def part(first: int, last: int, work: Any) -> None:
        low, w, _, _ = _split(work, g)
        _to_rows(weight, g, w)
        for s in range(first, last):
            _lower(x[s], g, low)
            gemm(w[:, None], _windows(low, g).swapaxes(2, 3), y[s])
        add_bias(bias, out[first:last])

    by_samples(part, g, work)
    return out


def input_gradient(dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dL = dy' weight, row by row added where the windows overlap; then dx folded from dL, into `out`."""
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.out[0], _across(g))

    def part(first: int, last: int, work: Any) -> None:
        low, w, product, _ = _split(work, g)
        _to_rows(weight, g, w)
        windows = _windows(low, g)
        for s in range(first, last):
            do(fill, 0, out=low)
            for row in range(g.out[0]):
                here = windows[:, row]
                gemm(dy[s, :, :, row].swapaxes(1, 2), w, product[: here.size].reshape(here.shape))
                do(plus, product[: here.size].reshape(here.shape), out=here)
            _fold(low, g, out[s])

    by_samples(part, g, work)
    return out


def weight_gradient(x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
    """dweight = sum over samples and output rows of dy L, added to `out`."""
    dy = dy.reshape(g.n, g.group, g.f // g.group, g.out[0], _across(g))

    def part(first: int, last: int, work: Any) -> None:
        low, _, product, sums = _split(work, g)
        do(fill, 0, out=sums)
        for s in range(first, last):
            _lower(x[s], g, low)
            windows = _windows(low, g)
            for row in range(g.out[0]):
                share = product[: sums.size].reshape(sums.shape)
                gemm(dy[s, :, :, row], windows[:, row], share)
                do(plus, share, out=sums)

    first, *others = g.window.kernel
    for piece in by_samples(part, g, work):
        sums = piece[-out.size :].reshape(g.f, first, g.c // g.group, *others)
        do(plus, sums.swapaxes(1, 2), out=out)
    return out


def _across(g: ConvGeometry) -> int:
    """Outputs of one row: along all axes but the first."""
    return math.prod(g.out[1:])


def _depth(g: ConvGeometry) -> int:
    """Entries of a window: first kernel size, channels of a group, other kernel sizes."""
    return math.prod(g.weight_shape[1:])


def _lowered_shape(g: ConvGeometry) -> tuple[int, ...]:
    rows = g.image[0] + 2 * g.window.pad[0]
    return (g.group, *g.out[1:], rows, g.c // g.group, *g.window.kernel[1:])


def _lowered_size(g: ConvGeometry) -> int:
    return math.prod(_lowered_shape(g))


def _split(work: Any, g: ConvGeometry) -> tuple[Any, Any, Any, Any]:
    low, weight = _lowered_size(g), math.prod(g.weight_shape)
    shape = (g.group, g.f // g.group, _depth(g))
    w, sums = work[low : low + weight].reshape(shape), work[-weight:].reshape(shape)
    return work[:low].reshape(_lowered_shape(g)), w, work[low + weight : -weight], sums


def _to_rows(weight: Any, g: ConvGeometry, out: Any) -> None:
    """weight (f, c, kh, kw) in the order of a window in L: (f, kh, c, kw)."""
    first, *others = g.window.kernel
    do(copy, weight.swapaxes(1, 2), out=out.reshape(g.f, first, g.c // g.group, *others))


def _windows(low: Any, g: ConvGeometry) -> Any:
    """The windows of each output row as overlapping views of L: (g, oh, places across, kh c kw)."""
    step = math.prod(low.shape[low.ndim - len(g.window.kernel) :]) * low.itemsize  # an image row
    across = _across(g)
    rows = g.image[0] + 2 * g.window.pad[0]
    strides = (across * rows * step, g.window.stride[0] * step, rows * step, low.itemsize)
    return as_strided(low, (g.group, g.out[0], across, _depth(g)), strides)


def _pieces(low: Any, image: Any, g: ConvGeometry) -> Any:
    """Pairs of views of L and of an image that hold the same entries: one for each kernel element across."""
    k, pad, h = len(g.image) - 1, g.window.pad[0], g.image[0]
    x = image.reshape(g.group, g.c // g.group, *g.image)
    whole = slice(None)
    inside = low[(whole,) * (1 + k) + (slice(pad, pad + h),)]
    if not k:
        yield inside, x.swapaxes(1, 2)
        return
    window = g.window
    parts = window.kernel, window.stride, window.pad, window.dilation
    across = Window(*(sizes[1:] for sizes in parts))
    for element, places, pixels in across.elements(g.image[1:], g.out[1:]):
        at = (whole, *places, whole, whole, *element)  # g, places, h, c
        there = inside[at]
        seen = x[(whole,) * 3 + pixels]  # g, c, h, pixels
        yield there, seen.transpose(0, *range(3, 3 + k), 2, 1)


def _lower(image: Any, g: ConvGeometry, low: Any) -> None:
    do(fill, 0, out=low)
    for there, seen in _pieces(low, image, g):
        do(copy, seen, out=there)


def _fold(low: Any, g: ConvGeometry, out: Any) -> None:
    do(fill, 0, out=out)
    for there, seen in _pieces(low, out, g):
        do(plus, there, out=seen)
