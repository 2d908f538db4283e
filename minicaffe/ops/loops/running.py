"""The running sums of channels' statistics: added to, and read as averages, for channels first..last."""

from __future__ import annotations

from typing import Any

from minicaffe.ops.loops import compiled
from minicaffe.ops.loops.normalize import rate_of


@compiled
def remember(
    found: Any,
    spread: Any,
    fraction: Any,
    correction: Any,
    mean: Any,
    variance: Any,
    batches: Any,
    first: int,
    last: int,
) -> None:
    """sum = fraction sum + what is found, of means, of corrected variances, and of batches."""
    for k in range(first, last):
        mean[k] = mean[k] * fraction + found[k]
        variance[k] = variance[k] * fraction + spread[k] * correction
    if first == 0:
        batches[0] = batches[0] * fraction + 1


@compiled
def recall(
    mean: Any,
    variance: Any,
    batches: Any,
    eps: Any,
    found: Any,
    spread: Any,
    rate: Any,
    first: int,
    last: int,
) -> None:
    """The averages of running sums, 0 where nothing is remembered."""
    for k in range(first, last):
        share = 1 / batches[0] if batches[0] != 0 else batches[0]
        found[k] = mean[k] * share
        spread[k] = variance[k] * share
        rate[k] = rate_of(spread[k], 0, eps)
