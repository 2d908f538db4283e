"""Fusion of BatchNorm, Scale and ReLU in training: each channel passes all of them in the cache, and back.

Neighbouring rows are joined one by one, as far as they go. They then run channel by channel instead of one
after the other: so two arrays are either one, or do not overlap. The results are equal to the bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe.cpu import loops, no_bias
from minicaffe.replay.command import Row, arrays, place

Join = Callable[[Row, Row], Row | None]


def may_go_before(row: Any, then: Any) -> bool:
    """Whether a row may as well run before the one in front of it, which then meets others.

    What fills the gradients of parameters with zeros stands between the slope of a ReLU and its sums.
    """
    if not (isinstance(row, Row) and isinstance(then, Row)):
        return False
    if (row.name, then.name) != ("elementwise.ReLU_slope", "arrays.copy"):
        return False
    pairs = itertools.product(arrays(row.args), arrays(then.args))
    return not any(np.may_share_memory(a, b) for a, b in pairs)


def _remembered(row: Row, then: Row) -> Row | None:
    """Statistics of channels, and the running sums that they are added to."""
    x, seen, *_, mean, spread, _ = row.args
    added, sums, *numbers = then.args
    if seen[1] != row.n or place((added, sums)) != place((mean, spread)) or then.n != row.n:
        return None
    none = no_bias(x.dtype)
    return _row(x, "forward", 0, (row.args, tuple(numbers), none, (none, none, none)), row, then)


def _normalised(row: Row, then: Row) -> Row | None:
    """The same, and the normalisation by them."""
    steps, statistics, past, _, none = row.args
    x, seen, *_, mean, _, rate = statistics
    *read, hat = then.args
    if steps or place(tuple(read)) != place((x, seen, mean, rate)):
        return None
    return _row(x, "forward", _steps(x).NORMALISES, (statistics, past, hat, none), row, then)


def _scaled(row: Row, then: Row) -> Row | None:
    """The same, and a factor and a term of each channel."""
    steps, statistics, past, hat, _ = row.args
    x, factors, terms, whole, y, f, p = then.args
    outer, kept, inner = statistics[1]
    alike = (f, p, then.n) == (kept, inner, outer * kept) and place(x) == place(hat)
    if steps != _steps(x).NORMALISES or whole or not alike:
        return None
    return _row(
        x,
        "forward",
        steps | _steps(x).SCALES,
        (statistics, past, hat, (factors, terms, y)),
        row,
        then,
    )


def _rectified(row: Row, then: Row) -> Row | None:
    """The same, and a ReLU in place."""
    steps, *parts = row.args
    x, _, y = then.args
    scales = _steps(y).NORMALISES | _steps(y).SCALES
    if steps != scales or not place(parts[-1][2]) == place(x) == place(y):
        return None
    return _row(y, "forward", steps | _steps(y).RECTIFIES, tuple(parts), row, then)


def _slopes_and_sums(row: Row, then: Row) -> Row | None:
    """The slope of a ReLU, and the sums of what comes of it."""
    dy, x, _, _, g = row.args
    steps, _, summed, *more = _sums(then)
    if not steps or place(summed[0]) != place(g) or g.size != row.n:
        return None
    return _row(g, "backward", steps | _steps(g).SLOPES, ((dy, x, g), summed, *more), then, row)


def _both_sums(row: Row, then: Row) -> Row | None:
    """Sums for the terms, and sums for the factors."""
    before, sloped, (g, _, sizes, terms, _), *more = _sums(row)
    steps, _, (of, x, others, _, factors), *_ = _sums(then)
    if before & ~_steps(g).SLOPES != _steps(g).TERMS or steps != _steps(g).FACTORS:
        return None
    if place((g, sizes)) != place((of, others)):
        return None
    summed = g, x, sizes, terms, factors
    return _row(g, "backward", before | steps, (sloped, summed, *more), row, then)


def _gradient_scaled(row: Row, then: Row) -> Row | None:
    """The same, and the gradient times each channel's factor."""
    steps, sloped, summed, (known, _), back = _sums(row)
    x, factors, terms, whole, y, f, p = then.args
    g, _, sizes, *_ = summed
    unscaled = not known.size
    alike = place(x) == place(g) and (f, p, then.n) == (*sizes[:2], sizes[0] * sizes[2])
    if not (steps and unscaled) or whole or len(terms) or not len(factors) or not alike:
        return None
    steps |= _steps(g).SCALES_BACK
    return _row(g, "backward", steps, (sloped, summed, (factors, y), back), row, then)


def _gradient_normalised(row: Row, then: Row) -> Row | None:
    """The same, and what the normalisation makes of it."""
    steps, sloped, summed, scaled, _ = row.args
    _, g, (outer, kept, inner), *_ = then.args
    alike = place(g) == place(scaled[1]) and (kept, inner, outer) == summed[2]
    if not (steps & _steps(g).SCALES_BACK and alike and then.n == kept):
        return None
    steps |= _steps(g).NORMALISES_BACK
    return _row(g, "backward", steps, (sloped, summed, scaled, then.args), row, then)


def _sums(row: Row) -> tuple[Any, ...]:
    """The arguments of `backward` for a row: its own, or those of sums alone; without steps for other sums."""
    if row.name == "batch_norm.backward":
        return row.args
    g, x, way, f, p, n, sums = row.args
    none = no_bias(g.dtype)
    steps = {0: _steps(g).TERMS, 1: _steps(g).FACTORS}.get(way, 0) if p > 1 else 0
    summed = (g, x, (f, p, n), sums, none) if way == 0 else (g, x, (f, p, n), none, sums)
    number = g.dtype.type(0)
    back = none, none, (1, 1, 1), 0, number, none, none, none
    return steps, (none, none, none), summed, (none, none), back


def _row(x: Any, name: str, steps: int, parts: tuple[Any, ...], row: Row, other: Row) -> Row | None:
    """The row of a loop over the channels of `row`; None if two of its arrays overlap that are not one.

    Nor if there are fewer channels than slices of the other row: threads would wait.
    """
    if other.slices > row.n:
        return None
    for a, b in itertools.combinations([array for array in arrays(parts) if array.size], 2):
        if place(a) != place(b) and np.may_share_memory(a, b):
            return None
    return Row(getattr(_steps(x), name), (steps, *parts), row.n, row.slices)


def _steps(x: Any) -> Any:
    """The module of the loops, which names their steps."""
    return loops("batch_norm", x.dtype)


TRAINING: dict[tuple[str, str], Join] = {
    ("normalize.statistics", "running.remember"): _remembered,
    ("batch_norm.forward", "normalize.normalise"): _normalised,
    ("batch_norm.forward", "channels.scale"): _scaled,
    ("batch_norm.forward", "elementwise.ReLU_y"): _rectified,
    ("elementwise.ReLU_slope", "channels.add_sums"): _slopes_and_sums,
    ("channels.add_sums", "channels.add_sums"): _both_sums,
    ("batch_norm.backward", "channels.add_sums"): _both_sums,
    ("batch_norm.backward", "channels.scale"): _gradient_scaled,
    ("batch_norm.backward", "normalize.gradient"): _gradient_normalised,
}
