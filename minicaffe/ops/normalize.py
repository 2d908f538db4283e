"""Rows normalised by their statistics, then scaled and shifted feature by feature; and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backend import launch, launch_blocks, on_cuda
from minicaffe.ops.rows import KINDS, Affine, Norm, Rows, Statistics, cut

FILE = "normalize.cu"
LEAST = 1e-7  # the share of a deviation in itself and eps, at the least


def normalise(x: Any, rows: Rows, found: Statistics, affine: Affine | None, out: Any) -> Any:
    """y = (x - mean) rate scale + bias; `out` may be x itself."""
    if on_cuda(x):
        shape = rows.outer, rows.kept, rows.inner
        learned = _learned(affine)
        numbers = found.mean, found.rate, *shape, *learned
        launch(FILE, "normalise", x.size, out, x, *numbers, out)
        return out
    y = rows.of(out)
    np.subtract(rows.of(x), rows.each(found.mean), out=y)
    np.multiply(y, rows.each(found.rate), out=y)
    if affine is not None:
        y = affine.rows.of(out)
        if affine.scale is not None:
            np.multiply(y, affine.rows.each(affine.scale), out=y)
        if affine.bias is not None:
            np.add(y, affine.rows.each(affine.bias), out=y)
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
    if on_cuda(x):
        _, parts, grid = _gradient_sums(x, dy, rows, found, None, features, work)
        launch(FILE, "scale_gradient", features.count, x, parts, grid[1], dscale, dbias)
        return
    sums = work[x.size : x.size + features.count]
    product = work[: x.size].reshape(x.shape)
    if dscale is not None:
        normalise(x, rows, found, None, product)
        np.multiply(product, dy, out=product)
    for values, gradient in ((product, dscale), (dy, dbias)):
        if gradient is not None:
            features.sum(values, sums)
            gradient += sums.reshape(gradient.shape)


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
    if on_cuda(x):
        means = None
        if norm is not None:
            means, parts, grid = _gradient_sums(x, dy, rows, found, affine, rows, work)
            kind, eps = KINDS.index(norm.kind), found.rate.dtype.type(norm.eps)
            sizes = grid[1], rows.length, kind, eps
            launch(FILE, "gradient_means", rows.count, x, parts, *sizes, found.rate, means)
        scale, _, features, places = _learned(affine)
        shape = rows.outer, rows.kept, rows.inner, rows.count
        given = x, dy, scale, features, places, found.mean, found.rate
        launch(FILE, "normalise_gradient", x.size, out, *given, *shape, means, out)
        return out
    g = rows.of(dy)
    if affine is not None and affine.scale is not None:
        scaled = affine.rows.of(out)
        np.multiply(affine.rows.of(dy), affine.rows.each(affine.scale), out=scaled)
        g = rows.of(out)
    if norm is not None:
        y, product = (rows.of(work[i * x.size : (i + 1) * x.size]) for i in (0, 1))
        ends = work[2 * x.size : 2 * (x.size + rows.count)].reshape(2, -1)
        mean, share = map(rows.each, ends)
        normalise(x, rows, found, None, y)
        np.multiply(g, y, out=product)
        rows.sum(product, mean)
        _part_of_y(mean, rows, norm, found, share)
        np.multiply(y, mean, out=y)
        if norm.kind != "length":
            rows.sum(g, mean)
            mean /= rows.length
            np.add(y, mean, out=y)
        g = np.subtract(g, y, out=rows.of(out))
    np.multiply(g, rows.each(found.rate), out=rows.of(out))
    return out


def _part_of_y(products: Any, rows: Rows, norm: Norm, found: Statistics, share: Any) -> None:
    """From sums of g times the normalised x, how much of that each row's gradient loses."""
    if norm.kind == "mean":
        products.fill(0)
    if norm.kind != "length":
        products /= rows.length
    if norm.kind == "deviation":  # of deviation + eps
        np.multiply(rows.each(found.rate), -norm.eps, out=share)
        share += 1
        np.maximum(share, LEAST, out=share)
        products /= share


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
    shapes = rows.outer, rows.kept, rows.inner, over.outer, over.kept, over.inner
    given = x, dy, scale, features, places, found.mean, found.rate
    launch_blocks(FILE, "gradient_sums", grid, (x,), over.count, *given, *shapes, wide, parts)
    return means, parts, grid
