"""Winograd's convolution by compiled loops: both axes in vectors, tiles read and written in place.

If there are many channels, the microkernel multiplies, without a copy of U. If U is large beside the tiles, it
is computed in blocks (`winograd_filters`). The input gradient is a convolution of dy with the reversed kernel,
unless that has more tiles. A convolution of dilation d is d^2 convolutions of dilation 1, one for each
remainder of the places. A convolution of stride s is a sum of s^2 convolutions of stride 1, one for each
remainder of the pixels, with a part of the kernel: one convolution with s^2 times as many channels. m and the
letters are those of core/ops/conv/winograd.py.
"""

import functools
import math
from typing import Any

from minicaffe.backends.cpu import Piece, no_bias, no_epilogue, with_blas
from minicaffe.backends.cpu.conv import winograd_filters as filters
from minicaffe.backends.cpu.conv.strips import adjoint, strips
from minicaffe.backends.cpu.ops import row
from minicaffe.backends.cpu.threads import run, share
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv.winograd import by_axes, of_weights, taps
from minicaffe.core.ops.geometry import ConvGeometry


@functools.lru_cache(maxsize=1024)
def room(g: ConvGeometry, m: int, back: bool = False) -> int:
    """Returns the elements of work for one thread, for vectors of any width; for dx with `back`."""
    is_plain = max(g.window.stride + g.window.dilation) == 1
    g, most = adjoint(g) if back else g, 0
    for lanes in filters.WIDTHS:
        tiles, blocks = strips(g, m, lanes), filters.filters(g, m, lanes)
        most = max(most, tiles.least if is_plain else tiles.enough, blocks.least if blocks else 0)
    return most


@row("winograd.forward", blas=True, work=room)
def forward(compiled, blas, self, x, weight, bias, g, out, work):
    _correlate(compiled, blas, self.m, x, weight, bias, g, None, out, work)


@row("winograd.input_gradient", blas=True, work=functools.partial(room, back=True))
def input_gradient(compiled, blas, self, dy, weight, g, out, work):
    """From overlapping tiles of x or from tiles of dx, whichever are fewer."""
    m = self.m
    blocking = strips(g, m, compiled.lanes(dy.dtype))
    count, kernel_args = _units(compiled, m, dy, g, None, work.size - blocking.weights)
    if not blocking.adds_up(kernel_args[1]):
        window = g.window
        axes = zip(g.image, g.out, taps(window), window.stride, window.pad, strict=True)
        # Whether there are pixels that belong to no plane: no place reads them
        if any(s > 1 and (p < 0 or size + p > s * (o + r - 1)) for size, o, r, s, p in axes):
            arrays.fill(out, 0)
        _correlate(compiled, blas, m, dy, weight, None, adjoint(g), g, out, work)
        return
    u, work = _transformed(m, weight, g, True, False, work)
    data = dy.reshape(-1), u, out.reshape(-1), Piece(work)
    run(compiled.input_gradient, count, blas, kernel_args, *data)


@row("winograd.weight_gradient", of="dy", blas=True)
def weight_gradient(compiled, blas, self, x, dy, g, out, work):
    m = self.m
    if blocks := filters.filters(g, m, compiled.lanes(x.dtype)):
        filters.weight_gradient(blocks, x, dy, out, work)
        return
    sums = strips(g, m, compiled.lanes(x.dtype)).weights
    count, kernel_args = _units(compiled, m, x, g, None, work.size - sums * share())
    data = x.reshape(-1), dy.reshape(-1), Piece(work)
    slices = run(compiled.weight_gradient, count, blas, kernel_args, *data)
    if slices:
        matrix = of_weights(m, g.window.kernel, g.window.stride, dy.dtype, False)
        run(compiled.transform_back, g.f, blas, work, slices, matrix, g.f, out.reshape(-1))


@row("winograd.gradients", blas=True)
def gradients(compiled, blas, self, x, dy, weight, g, dx, dw, work):
    if dw is not None:
        weight_gradient(compiled, blas, self, x, dy, g, dw, work)
    if dx is not None:
        input_gradient(compiled, blas, self, dy, weight, g, dx, work)


def _correlate(
    kernels: Any,
    blas: int,
    m: int,
    x: Any,
    weight: Any,
    bias: Any,
    g: ConvGeometry,
    of: ConvGeometry | None,
    out: Any,
    work: Any,
) -> None:
    """Writes y to `out`, or dx of the convolution `of`, whose adjoint is `g`."""
    strided = of is not None and max(of.window.stride) > 1
    if not strided and (blocks := filters.filters(g, m, kernels.lanes(x.dtype))):
        filters.correlate(blocks, x, weight, bias, of is not None, out, work)
        return
    u, work = _transformed(m, weight, of or g, bool(of), bool(of), work)
    count, kernel_args = _units(kernels, m, x, g, of, work.size)
    data = x.reshape(-1), no_bias(x.dtype) if bias is None else bias, u
    run(kernels.forward, count, *no_epilogue(out), blas, kernel_args, *data, Piece(work))


def _transformed(
    m: int, weight: Any, g: ConvGeometry, turned: bool, reverse: bool, work: Any
) -> tuple[Any, Any]:
    """Computes U, or U' if `turned`, of the weight or the reversed weight; returns it and the rest of work."""
    f, k = g.f // g.group, g.c // g.group
    matrix = of_weights(m, g.window.kernel, g.window.stride, weight.dtype, reverse)
    size = math.prod(matrix.shape[:2]) * g.f * k
    kernel_args = matrix, weight.reshape(-1), (f, k), turned, work[:size]
    kernels, blas = with_blas("winograd", weight.dtype)
    run(kernels.transform, g.c * len(matrix) if turned else g.f, blas, *kernel_args)
    return work[:size], work[size:]


def _units(
    kernels: Any, m: int, x: Any, g: ConvGeometry, of: ConvGeometry | None, rest: int
) -> tuple[int, tuple[Any, ...]]:
    """Returns how many units share `rest` elements, and the loops' arguments."""
    count, kernel_args = strips(g, m, kernels.lanes(x.dtype)).units(rest // share(), share(), of)
    return count, (*kernel_args, by_axes(m, taps(g.window), x.dtype))
