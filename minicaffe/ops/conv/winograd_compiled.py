"""Winograd's convolution by compiled loops: all axes in vectors, tiles read and written where they lie.

Each function says whether there are such loops for the arrays; else nothing is done. m and the letters are
those of `winograd`.
"""

from __future__ import annotations

import math
from typing import Any

from minicaffe.cpu import no_bias, with_blas
from minicaffe.cpu.threads import Piece, share
from minicaffe.ops import arrays
from minicaffe.ops.conv import winograd_filters as filters
from minicaffe.ops.conv.strips import adjoint, strips, tables, taps, units
from minicaffe.ops.conv.transforms import by_axes, of_weights
from minicaffe.ops.geometry import ConvGeometry
from minicaffe.replay.dispatch import run


def forward(
    m: int, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
) -> bool:
    """Compute y."""
    return _correlate(m, x, weight, bias, g, None, out, work)


def input_gradient(m: int, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> bool:
    """Compute dx: of tiles of x that overlap or of its own, the fewer."""
    fast, blas = with_blas("winograd", dy)
    if fast is None:
        return False
    mine = strips(g, m, fast.lanes(dy.dtype))
    found, _, told = _units(fast, m, dy, g, None, work.size - mine.weights)
    if not mine.adds_up(told[1]):
        if _has_more(g):
            arrays.fill(out, 0)
        return _correlate(m, dy, weight, None, adjoint(g), g, out, work)
    u, work = _transformed(m, weight, g, True, False, work)
    run(fast.input_gradient, found, blas, *told, dy.reshape(-1), u, out.reshape(-1), Piece(work))
    return True


def weight_gradient(m: int, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> bool:
    """Add dweight to `out`."""
    fast, blas = with_blas("winograd", dy)
    if fast is None:
        return False
    if blocks := filters.filters(g, m, fast.lanes(x.dtype)):
        filters.weight_gradient(blocks, x, dy, out, work)
        return True
    sums = strips(g, m, fast.lanes(x.dtype)).weights
    found, _, told = _units(fast, m, x, g, None, work.size - sums * share(work))
    slices = run(
        fast.weight_gradient, found, blas, *told, x.reshape(-1), dy.reshape(-1), Piece(work)
    )
    if slices:
        weights, _ = with_blas("winograd_weights", dy)
        matrix = of_weights(m, g.window.kernel, g.window.stride, dy.dtype, False)
        given = work, slices, matrix, g.f, out.reshape(-1)
        run(weights.transform_back, g.f, blas, *given)
    return True


def _correlate(
    m: int,
    x: Any,
    weight: Any,
    bias: Any | None,
    g: ConvGeometry,
    of: ConvGeometry | None,
    out: Any,
    work: Any,
) -> bool:
    """Compute y; or dx of the convolution `of`, of which `g` is the adjoint."""
    fast, blas = with_blas("winograd", x)
    if fast is None:
        return False
    strided = of is not None and max(of.window.stride) > 1
    if not strided and (blocks := filters.filters(g, m, fast.lanes(x.dtype))):
        filters.correlate(blocks, x, weight, bias, of is not None, out, work)
        return True
    u, work = _transformed(m, weight, of or g, bool(of), bool(of), work)
    found, line, told = _units(fast, m, x, g, of, work.size)
    mine = strips(g, m, fast.lanes(x.dtype))
    product = tables(mine.channels[0] // g.group, line, mine.lanes)
    given = x.reshape(-1), no_bias(x.dtype) if bias is None else bias, u, out.reshape(-1)
    run(fast.forward, found, blas, *told, product, *given, Piece(work))
    return True


def _transformed(
    m: int, weight: Any, g: ConvGeometry, turned: bool, reverse: bool, work: Any
) -> tuple[Any, Any]:
    """U, or U' if `turned`, of the weight, or of the weight back to front; and the work that is left."""
    f, k = g.f // g.group, g.c // g.group
    matrix = of_weights(m, g.window.kernel, g.window.stride, weight.dtype, reverse)
    size = math.prod(matrix.shape[:2]) * g.f * k
    given = matrix, weight.reshape(-1), (f, k), turned, work[:size]
    fast, blas = with_blas("winograd_weights", weight)
    rows = g.c * len(matrix) if turned else g.f
    run(fast.transform, rows, blas, *given)
    return work[:size], work[size:]


def _units(
    fast: Any, m: int, x: Any, g: ConvGeometry, of: ConvGeometry | None, rest: int
) -> tuple[int, int, tuple[Any, ...]]:
    """How many units share so much of the work, elements of a line, and what the loops are told."""
    found, line, told = units(g, m, fast.lanes(x.dtype), rest // share(x), share(x), of)
    return found, line, (*told, by_axes(m, taps(g.window), x.dtype))


def _has_more(g: ConvGeometry) -> bool:
    """Whether there are pixels before or behind all that are of planes: no place sees them."""
    window = g.window
    axes = zip(g.image, g.out, taps(window), window.stride, window.pad, strict=True)
    return any(s > 1 and (p < 0 or size + p > s * (o + r - 1)) for size, o, r, s, p in axes)
