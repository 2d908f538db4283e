"""Rows normalised by their statistics, then scaled and shifted feature by feature; and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.core.ops import arrays, channels
from minicaffe.core.ops.rows import Affine, Norm, Past, Rows, Statistics
from minicaffe.core.ops.statistics import statistics

LEAST = 1e-7  # the share of a deviation in itself and eps, at the least


@op(traced=False)
def normalise(
    x: Any,
    rows: Rows,
    stats: Statistics,
    affine: Affine | None,
    out: Any,
    norm: Norm | None = None,
    work: Any = None,
    past: Past | None = None,
) -> Any:
    """y = (x - mean) rate scale + bias; `out` may be x itself.

    With a `norm` the statistics are computed first, and `past` remembers them.
    """
    if norm is not None:
        statistics(x, rows, norm, stats, work, past)
    if not x.size:
        return
    normalised(x, rows, stats, out)
    if affine is not None:
        y = affine.rows.see(out)
        channels.scale(y, *affine.flat(), y)


@op(replays=False)
def normalised(x: Any, rows: Rows, stats: Statistics, out: Any) -> Any:
    """out = (x - mean) rate."""
    y = rows.of(out)
    np.subtract(rows.of(x), rows.each(stats.mean), out=y)
    np.multiply(y, rows.each(stats.rate), out=y)


@op(traced=False)
def gradients(
    x: Any,
    dy: Any,
    rows: Rows,
    norm: Norm | None,
    stats: Statistics,
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
    if not x.size:
        return
    if affine is not None:
        (dscale, dbias), rest = learnt, work[x.size :]
        if dscale is not None:
            y = normalised(x, rows, stats, work[: x.size].reshape(x.shape))
            channels.add_products(affine.rows.see(dy), affine.rows.see(y), dscale.reshape(-1), rest)
        if dbias is not None:
            channels.add_sums(affine.rows.see(dy), dbias.reshape(-1), rest)
    if out is None:
        return
    g = dy
    if affine is not None and affine.scale is not None:
        channels.scale(affine.rows.see(dy), affine.scale.reshape(-1), None, affine.rows.see(out))
        g = out
    if norm is None:
        arrays.multiply(rows.of(g), rows.each(stats.rate), rows.of(out))
    else:
        through(x, g, rows, norm, stats, out, work)


@op(replays=False)
def through(x: Any, g: Any, rows: Rows, norm: Norm, stats: Statistics, out: Any, work: Any) -> Any:
    """dx of the normalisation alone: rate (g - mean of g - y (mean of g y))."""
    g = rows.of(g)
    part, sums = work[2 * x.size : 2 * (x.size + rows.count)].reshape(2, -1)
    _part_of_y(rows, norm, stats, part)
    of_ones = 0.0 if norm.kind == "length" else 1 / rows.length
    y, product = (rows.of(work[i * x.size : (i + 1) * x.size]) for i in (0, 1))
    np.subtract(rows.of(x), rows.each(stats.mean), out=y)
    np.multiply(y, rows.each(stats.rate), out=y)
    np.multiply(g, y, out=product)
    part *= rows.sum(product, sums, work).reshape(-1)
    np.multiply(y, rows.each(part), out=y)
    rows.sum(g, sums, work)
    sums *= of_ones
    np.add(y, rows.each(sums), out=y)
    np.subtract(g, y, out=rows.of(out))
    np.multiply(rows.of(out), rows.each(stats.rate), out=rows.of(out))


def _part_of_y(rows: Rows, norm: Norm, stats: Statistics, out: Any) -> None:
    """What of (sum of g y) y each row's gradient loses, y being normalised x."""
    if norm.kind == "deviation":  # its share of deviation + eps
        np.multiply(stats.rate, -norm.eps, out=out)
        out += 1
        np.maximum(out, LEAST, out=out)
        np.divide(1 / rows.length, out, out=out)
    else:
        out.fill({"variance": 1 / rows.length, "mean": 0, "length": 1}[norm.kind])
