"""A convolution as im2col and a product for each band of output rows, one after the other in the cache.

`sizes` are the groups, the filters of one, the rows of its columns, and how many rows a band has; `axis` is
the first of the image's among three. A band is the window that starts so much further down. `tile` has room
for the columns of one band.
"""

from __future__ import annotations

from typing import Any

import numba

from minicaffe.ops.loops import at, compiled
from minicaffe.ops.loops.blas import gemm
from minicaffe.ops.loops.im2col import col2im, im2col


@numba.njit(nogil=True)
def _band(window: Any, out: Any, axis: int, row: int, most: int) -> tuple[Any, Any, int, int]:
    """The window and the outputs of the rows from `row` on, their number, and that of all places."""
    kernel, (sd, sh, sw), (pd, ph, pw), dilation = window
    od, oh, ow = out
    if axis == 0:
        rows = min(most, od - row)
        pad, some = (pd - row * sd, ph, pw), (rows, oh, ow)
    elif axis == 1:
        rows = min(most, oh - row)
        pad, some = (pd, ph - row * sh, pw), (od, rows, ow)
    else:
        rows = min(most, ow - row)
        pad, some = (pd, ph, pw - row * sw), (od, oh, rows)
    return (kernel, (sd, sh, sw), pad, dilation), some, some[0] * some[1] * some[2], od * oh * ow


@compiled
def forward(
    blas: int,
    sizes: Any,
    axis: int,
    shapes: Any,
    x: Any,
    w: Any,
    bias: Any,
    relu: bool,
    tile: Any,
    y: Any,
    first: int,
    last: int,
) -> None:
    """y[s, g, :, band] = w[g] im2col(x[s])[g, :, band] + bias[g], and its positive part with `relu`."""
    groups, f, k, most = sizes
    c, image, window, out = shapes
    for s in range(first, last):
        for row in range(0, out[axis], most):
            part, some, n, p = _band(window, out, axis, row, most)
            start = s * groups * f * p + row * (n // some[axis])
            im2col(x, c, image, part, some, tile, (0, (groups * k // c) * n, n, 1), s, s + 1)
            for g in range(groups):
                left, right = (w, g * f * k, k, False), (tile, g * k * n, n, False)
                gemm(blas, (f, n, k), left, right, False, (y, start + g * f * p, p))
            if bias.size or relu:
                for i in range(groups * f):
                    more = bias[at(i)] if bias.size else y.dtype.type(0)
                    for q in range(start + i * p, start + i * p + n):
                        value = y[at(q)] + more
                        y[at(q)] = y.dtype.type(0) if relu and value <= 0 else value


@compiled
def input_gradient(
    blas: int,
    sizes: Any,
    axis: int,
    shapes: Any,
    dy: Any,
    w: Any,
    tile: Any,
    dx: Any,
    first: int,
    last: int,
) -> None:
    """dx[s] = sum over the bands of col2im(w[g]' dy[s, g, :, band])."""
    groups, f, k, most = sizes
    c, image, window, out = shapes
    for s in range(first, last):
        for row in range(0, out[axis], most):
            part, some, n, p = _band(window, out, axis, row, most)
            start = s * groups * f * p + row * (n // some[axis])
            for g in range(groups):
                left, right = (w, g * f * k, k, True), (dy, start + g * f * p, p, False)
                gemm(blas, (k, n, f), left, right, False, (tile, g * k * n, n))
            steps = (0, (groups * k // c) * n, n, 1)
            col2im(tile, c, image, part, some, dx, steps, s, s + 1, row == 0)


@compiled
def weight_gradient(
    blas: int,
    sizes: Any,
    axis: int,
    shapes: Any,
    x: Any,
    dy: Any,
    tile: Any,
    sums: Any,
    first: int,
    last: int,
) -> None:
    """sums[g] (k, f) += im2col(x[s])[g, :, band] dy[s, g, :, band]', for all samples and bands."""
    groups, f, k, most = sizes
    c, image, window, out = shapes
    for s in range(first, last):
        for row in range(0, out[axis], most):
            part, some, n, p = _band(window, out, axis, row, most)
            start = s * groups * f * p + row * (n // some[axis])
            im2col(x, c, image, part, some, tile, (0, (groups * k // c) * n, n, 1), s, s + 1)
            for g in range(groups):
                left, right = (tile, g * k * n, n, False), (dy, start + g * f * p, p, True)
                gemm(blas, (k, f, n), left, right, True, (sums, g * k * f, f))
