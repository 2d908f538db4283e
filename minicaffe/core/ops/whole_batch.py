"""Channels normalised over a batch of which other ranks have the other samples: BatchNorm with `sync`.

Of rank r with N_r entries a channel, mean m_r and variance v_r, and N = sum of N_r over the ranks,

    m = sum of N_r m_r / N        v = sum of N_r (v_r + (m_r - m)^2) / N

    dx = rate (g - G / N - y H / N),  g = dy scale,  G and H the sums of g and of g y over all ranks

Source: C. Peng et al., MegDet: A Large Mini-Batch Object Detector, 2018; T. Chan et al. on joining variances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minicaffe.backends import aligned
from minicaffe.core.ops import arrays, channels
from minicaffe.core.ops.normalize import normalise
from minicaffe.core.ops.rows import Affine, Norm, Past, Rows, Statistics
from minicaffe.core.ops.statistics import recall, statistics


class Whole:
    """What is needed to normalise rows, channels of batch 1, with those of other ranks.

    `length` is the entries of a row in the whole batch, `add` sums an array over the ranks in place.
    """

    def __init__(
        self,
        xp: Any,
        shape: tuple[int, ...],
        dtype: Any,
        rows: Rows,
        length: int,
        add: Callable[[Any], Any],
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
        rate = self.c
        arrays.copy(stats.rate, rate)
        if affine is not None and affine.scale is not None:
            arrays.multiply(rate, affine.scale.reshape(-1), rate)
        for here in (products, sums):
            self.add(here)
            arrays.multiply(arrays.scale(here, -1 / self.length, here), rate, here)
        channels.scale(see(y), products, sums, see(y))
        channels.scale(see(dy), rate, None, see(out))
        return arrays.add(y, out)
