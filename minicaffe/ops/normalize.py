"""Rows normalised by their statistics, then scaled and shifted feature by feature; and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backend import launch, launch_blocks, on_cuda
from minicaffe.ops import arrays, channels
from minicaffe.ops.rows import KINDS, Affine, Norm, Rows, Statistics, cut

FILE = "normalize.cu"
LEAST = 1e-7  # the share of a deviation in itself and eps, at the least


def normalise(x: Any, rows: Rows, found: Statistics, affine: Affine | None, out: Any) -> Any:
    """y = (x - mean) rate scale + bias; `out` may be x itself."""
    if x.size == 0:
        return out
    if on_cuda(x):
        numbers = found.mean, found.rate, *rows.seen, *_learned(affine)
        launch(FILE, "normalise", x.size, out, x, *numbers, out)
        return out
    if not rows.run("normalise", x, rows.seen, found.mean, found.rate, out):
        y = rows.of(out)
        np.subtract(rows.of(x), rows.each(found.mean), out=y)
        np.multiply(y, rows.each(found.rate), out=y)
    if affine is not None:
        y = affine.see(out)
        channels.scale(y, *affine.flat(), y)
    return out


def scale_gradient(
    x: Any,
    dy: Any,
    rows: Rows,
    found: Statistics,
    features: Rows,
    dscale: Any,
    dbias: Any,
    work: Any,
) -> None:
    """dscale += sum of dy (x - mean) rate, dbias += sum of dy, feature by feature; either may be None."""
    if x.size == 0:
        return
    if on_cuda(x):
        _, parts, grid = _gradient_sums(x, dy, rows, found, None, features, work)
        launch(FILE, "scale_gradient", features.count, x, parts, grid[1], dscale, dbias)
        return
    see, rest = features.see, work[x.size :]
    if dscale is not None:
        y = normalise(x, rows, found, None, work[: x.size].reshape(x.shape))
        channels.add_products(see(dy), see(y), dscale.reshape(-1), rest)
    if dbias is not None:
        channels.add_sums(see(dy), dbias.reshape(-1), rest)


def normalise_gradient(
    x: Any,
    dy: Any,
    rows: Rows,
    norm: Norm | None,
    found: Statistics,
    affine: Affine | None,
    out: Any,
    work: Any,
) -> Any:
    """dx = rate (g - mean of g - normalised x (mean of g normalised x)), g = dy scale.

    The means are sums, and that of g is left out, where the kind is length; the last term is where it is
    mean. Without a `norm` the statistics are constants, and dx = rate g; `out` may then be dy itself.
    """
    if x.size == 0:
        return out
    if on_cuda(x):
        means = None
        if norm is not None:
            means, parts, grid = _gradient_sums(x, dy, rows, found, affine, rows, work)
            kind, eps = KINDS.index(norm.kind), found.rate.dtype.type(norm.eps)
            sizes = grid[1], rows.length, kind, eps
            launch(FILE, "gradient_means", rows.count, x, parts, *sizes, found.rate, means)
        scale, _, features, places = _learned(affine)
        given = x, dy, scale, features, places, found.mean, found.rate, *rows.seen
        launch(FILE, "normalise_gradient", x.size, out, *given, rows.count, means, out)
        return out
    g = rows.of(dy)
    if affine is not None and affine.scale is not None:
        channels.scale(affine.see(dy), affine.scale.reshape(-1), None, affine.see(out))
        g = rows.of(out)
    if norm is None:
        arrays.multiply(g, rows.each(found.rate), rows.of(out))
        return out
    numbers = KINDS.index(norm.kind), found.rate.dtype.type(norm.eps)
    if rows.run("gradient", x, g, rows.seen, *numbers, found.mean, found.rate, out):
        return out
    ends = work[2 * x.size : 2 * (x.size + rows.count)].reshape(2, -1)
    part, sums = ends
    _part_of_y(rows, norm, found, part)
    of_ones = 0.0 if norm.kind == "length" else 1 / rows.length
    y, product = (rows.of(work[i * x.size : (i + 1) * x.size]) for i in (0, 1))
    normalise(x, rows, found, None, y)
    np.multiply(g, y, out=product)
    part *= rows.sum(product, sums, work).reshape(-1)
    np.multiply(y, rows.each(part), out=y)
    rows.sum(g, sums, work)
    sums *= of_ones
    np.add(y, rows.each(sums), out=y)
    np.subtract(g, y, out=rows.of(out))
    np.multiply(rows.of(out), rows.each(found.rate), out=rows.of(out))
    return out


def _part_of_y(rows: Rows, norm: Norm, found: Statistics, out: Any) -> None:
    """What of (sum of g y) y each row's gradient loses, y being normalised x."""
    if norm.kind == "deviation":  # its share of deviation + eps
        np.multiply(found.rate, -norm.eps, out=out)
        out += 1
        np.maximum(out, LEAST, out=out)
        np.divide(1 / rows.length, out, out=out)
    else:
        out.fill({"variance": 1 / rows.length, "mean": 0, "length": 1}[norm.kind])


def _learned(affine: Affine | None) -> tuple[Any, Any, int, int]:
    """Scale, bias, and how they are found, for a kernel."""
    if affine is None:
        return None, None, 1, 1
    return affine.scale, affine.bias, affine.rows.kept, affine.places


def _gradient_sums(
    x: Any, dy: Any, rows: Rows, found: Statistics, affine: Affine | None, over: Rows, work: Any
) -> tuple[Any, Any, tuple[int, int]]:
    means, parts, grid, wide = cut(over, work, x)
    scale, _, features, places = _learned(affine)
    given = x, dy, scale, features, places, found.mean, found.rate, *rows.seen
    launch_blocks(FILE, "gradient_sums", grid, (x,), over.count, *given, *over.seen, wide, parts)
    return means, parts, grid
