"""Winograd's convolution by compiled loops: both axes in vectors, tiles read and written in place.

Each function returns whether there are such loops for the arrays; if not, it does nothing. m and the letters
are those of `winograd`.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.backends.cpu import Piece, no_bias, no_epilogue, with_blas
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cpu.threads import share
from minicaffe.core.ops import arrays
from minicaffe.core.ops.conv import winograd_filters as filters
from minicaffe.core.ops.conv.strips import adjoint, strips, taps
from minicaffe.core.ops.conv.transforms import by_axes, of_weights
from minicaffe.core.ops.geometry import ConvGeometry


def forward(m: int, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> bool:
    """Writes y = weight * x + bias to `out`; returns whether there are loops for it."""
    return _correlate(m, x, weight, bias, g, None, out, work)


def input_gradient(m: int, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> bool:
    """Writes dx to `out`, from overlapping tiles of x or from tiles of dx, whichever are fewer."""
    kernels, blas = with_blas("winograd", dy)
    if kernels is None:
        return False
    blocking = strips(g, m, kernels.lanes(dy.dtype))
    count, kernel_args = _units(kernels, m, dy, g, None, work.size - blocking.weights)
    if not blocking.adds_up(kernel_args[1]):
        if _has_more(g):
            arrays.fill(out, 0)
        return _correlate(m, dy, weight, None, adjoint(g), g, out, work)
    u, work = _transformed(m, weight, g, True, False, work)
    data = dy.reshape(-1), u, out.reshape(-1), Piece(work)
    run(kernels.input_gradient, count, blas, kernel_args, *data)
    return True


def weight_gradient(m: int, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> bool:
    """Adds dweight to `out`; returns whether there are loops for it."""
    kernels, blas = with_blas("winograd", dy)
    if kernels is None:
        return False
    if blocks := filters.filters(g, m, kernels.lanes(x.dtype)):
        filters.weight_gradient(blocks, x, dy, out, work)
        return True
    sums = strips(g, m, kernels.lanes(x.dtype)).weights
    count, kernel_args = _units(kernels, m, x, g, None, work.size - sums * share(work))
    data = x.reshape(-1), dy.reshape(-1), Piece(work)
    slices = run(kernels.weight_gradient, count, blas, kernel_args, *data)
    if slices:
        weights, _ = with_blas("winograd_weights", dy)
        matrix = of_weights(m, g.window.kernel, g.window.stride, dy.dtype, False)
        run(weights.transform_back, g.f, blas, work, slices, matrix, g.f, out.reshape(-1))
    return True


def _correlate(
    m: int,
    x: Any,
    weight: Any,
    bias: Any,
    g: ConvGeometry,
    of: ConvGeometry | None,
    out: Any,
    work: Any,
) -> bool:
    """Writes y to `out`, or dx of the convolution `of`, whose adjoint is `g`."""
    kernels, blas = with_blas("winograd", x)
    if kernels is None:
        return False
    strided = of is not None and max(of.window.stride) > 1
    if not strided and (blocks := filters.filters(g, m, kernels.lanes(x.dtype))):
        filters.correlate(blocks, x, weight, bias, of is not None, out, work)
        return True
    u, work = _transformed(m, weight, of or g, bool(of), bool(of), work)
    count, kernel_args = _units(kernels, m, x, g, of, work.size)
    data = x.reshape(-1), no_bias(x.dtype) if bias is None else bias, u
    results = (of.c, of.image) if of else (g.f, g.out)
    to = no_epilogue(results[0], math.prod(results[1])), out.reshape(-1)
    run(kernels.forward, count, *to, blas, kernel_args, *data, Piece(work))
    return True


def _transformed(
    m: int, weight: Any, g: ConvGeometry, turned: bool, reverse: bool, work: Any
) -> tuple[Any, Any]:
    """Computes U, or U' if `turned`, of the weight or the reversed weight; returns it and the rest of work."""
    f, k = g.f // g.group, g.c // g.group
    matrix = of_weights(m, g.window.kernel, g.window.stride, weight.dtype, reverse)
    size = math.prod(matrix.shape[:2]) * g.f * k
    kernel_args = matrix, weight.reshape(-1), (f, k), turned, work[:size]
    kernels, blas = with_blas("winograd_weights", weight)
    rows = g.c * len(matrix) if turned else g.f
    run(kernels.transform, rows, blas, *kernel_args)
    return work[:size], work[size:]


def _units(
    kernels: Any, m: int, x: Any, g: ConvGeometry, of: ConvGeometry | None, rest: int
) -> tuple[int, tuple[Any, ...]]:
    """Returns how many units share `rest` elements, and the loops' arguments."""
    blocking = strips(g, m, kernels.lanes(x.dtype))
    count, kernel_args = blocking.units(rest // share(x), share(x), of)
    return count, (*kernel_args, by_axes(m, taps(g.window), x.dtype))


def _has_more(g: ConvGeometry) -> bool:
    """Whether there are pixels that belong to no plane: no place reads them."""
    window = g.window
    axes = zip(g.image, g.out, taps(window), window.stride, window.pad, strict=True)
    return any(s > 1 and (p < 0 or size + p > s * (o + r - 1)) for size, o, r, s, p in axes)
