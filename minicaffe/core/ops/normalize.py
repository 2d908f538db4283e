"""Rows normalised by their statistics, then scaled and shifted feature by feature; and the way back."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.backends.dispatch import op
from minicaffe.core.ops import arrays, channels
from minicaffe.core.ops.geometry import Sizes
from minicaffe.core.ops.rows import Affine, Norm, Past, Rows, Statistics, recall, statistics

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
    """y = (x - mean) rate scale + bias; `out` may be x. With `norm`, statistics come first, also in `past`."""
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


class SyncBatch:
    """Channels normalised over a batch of which other ranks have the other samples: BatchNorm with `sync`.

    Of rank r with N_r entries a channel, mean m_r and variance v_r, and N = sum of N_r over the ranks,

        m = sum of N_r m_r / N        v = sum of N_r (v_r + (m_r - m)^2) / N

        dx = rate (g - G / N - y H / N),  g = dy scale,  G and H the sums of g and of g y over all ranks

    `rows` are channels of batch 1, `length` the entries of a row in the whole batch; `add` sums an array over
    the ranks. Source: C. Peng et al., MegDet, 2018; T. Chan et al. on joining variances.
    """

    def __init__(
        self, xp: Any, shape: Sizes, dtype: Any, rows: Rows, length: int, add: Callable[[Any], Any]
    ):
        self.rows, self.length, self.add = rows, length, add
        self.y = aligned.empty(xp, shape, dtype)
        self.a, self.b, self.c = (xp.empty(rows.count, dtype) for _ in range(3))
        self.one = xp.ones(1, dtype)

    def statistics(self, x: Any, norm: Norm, stats: Statistics, work: Any, past: Past) -> None:
        """The whole batch's statistics into `stats`; `past` remembers them."""
        statistics(x, self.rows, norm, stats, work)
        here, mean, spread = self.rows.length, self.a, self.b
        self.add(arrays.scale(stats.mean, here / self.length, mean))
        arrays.minus(stats.mean, mean, spread)
        arrays.multiply(spread, spread, spread)
        arrays.add(stats.spread, spread)
        self.add(arrays.scale(spread, here / self.length, spread))
        recall(Past(1.0, self.length, mean, spread, self.one), norm, stats)
        for sums, new in ((past.mean, mean), (past.variance, spread), (past.batches, self.one)):
            arrays.scale(sums, past.fraction, sums)
            if new is spread:
                new = arrays.scale(spread, past.correction, self.c)
            arrays.add(new, sums)

    def gradients(
        self,
        x: Any,
        dy: Any,
        stats: Statistics,
        affine: Affine | None,
        learnt: tuple[Any, Any],
        out: Any,
        work: Any,
    ) -> Any:
        """dscale += sum of dy y, dbias += sum of dy, of what is here; then dx into `out`, if there is one."""
        see, y = self.rows.see, normalise(x, self.rows, stats, None, self.y)
        sums, products = arrays.fill(self.a, 0), arrays.fill(self.b, 0)
        channels.add_sums(see(dy), sums, work)
        channels.add_products(see(dy), see(y), products, work)
        for gradient, here in zip(learnt, (products, sums), strict=True):
            if gradient is not None:
                arrays.add(here, gradient.reshape(-1))
        if out is None:
            return None
        rate = arrays.copy(stats.rate, self.c)
        if affine is not None and affine.scale is not None:
            arrays.multiply(rate, affine.scale.reshape(-1), rate)
        for here in (products, sums):
            self.add(here)
            arrays.multiply(arrays.scale(here, -1 / self.length, here), rate, here)
        channels.scale(see(y), products, sums, see(y))
        channels.scale(see(dy), rate, None, see(out))
        return arrays.add(y, out)
