"""A running mean: one pass over it and what it follows, from entry first to last."""

from __future__ import annotations

from minicaffe.backends.cpu import at, compiled


@compiled
def average(x, share, skip, mean, first, last):
    """mean += share (x - mean), unless `skip` says no."""
    if skip[0]:
        return
    part = mean.dtype.type(share[0])
    for i in range(first, last):
        m = mean[at(i)]
        mean[at(i)] = m + part * (x[at(i)] - m)
