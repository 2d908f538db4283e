"""Rows normalised by their statistics, then scaled and shifted feature by feature; and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cuda.launch import launch_blocks
from minicaffe.backends.device import on_cuda
from minicaffe.core.ops import arrays, channels, moments
from minicaffe.core.ops.moments import FILE
from minicaffe.core.ops.rows import KINDS, Affine, Norm, Past, Rows, Statistics, spread
from minicaffe.core.ops.statistics import statistics

LEAST = 1e-7  # the share of a deviation in itself and eps, at the least


def normalise(
    x: Any,
    rows: Rows,
    found: Statistics,
    affine: Affine | None,
    out: Any,
    norm: Norm | None = None,
    work: Any = None,
    past: Past | None = None,
) -> Any:
    """y = (x - mean) rate scale + bias; `out` may be x itself.

    With a `norm` the statistics are first found, and `past` remembers them.
    """
    if not on_cuda(x) or x.size == 0:
        if norm is not None:
            statistics(x, rows, norm, found, work, past)
        return out if x.size == 0 else _normalise(x, rows, found, affine, out)
    then = moments.ends(affine, out)
    if norm is None or not moments.moments(x, rows, norm, found, work, past, then):
        grid, wide = spread(rows)
        args = rows.count, x, found.mean, found.rate, *rows.seen, wide, *then
        launch_blocks(FILE, "normalise", grid, (out,), *args)
    return out


def _normalise(x: Any, rows: Rows, found: Statistics, affine: Affine | None, out: Any) -> Any:
    if not rows.run("normalise", x, rows.seen, found.mean, found.rate, out):
        y = rows.of(out)
        np.subtract(rows.of(x), rows.each(found.mean), out=y)
        np.multiply(y, rows.each(found.rate), out=y)
    if affine is not None:
        y = affine.see(out)
        channels.scale(y, *affine.flat(), y)
    return out


def gradients(
    x: Any,
    dy: Any,
    rows: Rows,
    norm: Norm | None,
    found: Statistics,
    affine: Affine | None,
    learnt: tuple[Any, Any],
    out: Any,
    work: Any,
) -> Any:
    """dscale += sum of dy y, dbias += sum of dy, feature by feature; then `out`, where y = (x - mean) rate,

        dx = rate (g - mean of g - y (mean of g y)),  g = dy scale

    The means are sums, and that of g is left out, where the kind is length; the last term is where it is
    mean. Without a `norm` the statistics are constants, and dx = rate g; `out` may then be dy itself.
    dscale and dbias, in `learnt`, and `out` may be None.
    """
    if x.size == 0:
        return out
    if on_cuda(x):
        return _on_cuda(x, dy, rows, norm, found, affine, learnt, out, work)
    if affine is not None:
        _scale_gradient(x, dy, rows, found, affine.rows, *learnt, work)
    return None if out is None else _gradient(x, dy, rows, norm, found, affine, out, work)


def _on_cuda(
    x: Any,
    dy: Any,
    rows: Rows,
    norm: Norm | None,
    found: Statistics,
    affine: Affine | None,
    learnt: tuple[Any, Any],
    out: Any,
    work: Any,
) -> Any:
    of, means = (rows, norm or Norm("mean", 0.0), found), None
    learns = affine is not None and any(sums is not None for sums in learnt)
    apart = norm is None or out is None or affine is None or affine.rows != rows
    if affine is not None and learns and apart:
        moments.gradients(x, dy, affine.rows, work, of, learnt=learnt)
        learnt = None, None
    if norm is not None and out is not None:
        part = moments.gradients(x, dy, rows, work, of, affine, learnt, dx=out)
        if part.whole:
            return out
        means = part.means
    if out is not None:
        scale, _, features, places = moments.learned(affine)
        grid, wide = spread(rows)
        args = x, dy, scale, features, places, found.mean, found.rate, *rows.seen, wide, means, out
        launch_blocks(FILE, "normalise_gradient", grid, (out,), rows.count, *args)
    return out


def _scale_gradient(
    x: Any,
    dy: Any,
    rows: Rows,
    found: Statistics,
    features: Rows,
    dscale: Any,
    dbias: Any,
    work: Any,
) -> None:
    see, rest = features.see, work[x.size :]
    if dscale is not None:
        y = _normalise(x, rows, found, None, work[: x.size].reshape(x.shape))
        channels.add_products(see(dy), see(y), dscale.reshape(-1), rest)
    if dbias is not None:
        channels.add_sums(see(dy), dbias.reshape(-1), rest)


def _gradient(
    x: Any,
    dy: Any,
    rows: Rows,
    norm: Norm | None,
    found: Statistics,
    affine: Affine | None,
    out: Any,
    work: Any,
) -> Any:
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
    _normalise(x, rows, found, None, y)
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
