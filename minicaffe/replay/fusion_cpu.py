"""Fusion of neighbouring compiled loops over the same entries: memory is read and written once.

In inference a BatchNorm is fused with a Scale, and both with a ReLU; so is the sum of two blobs with a ReLU.
The results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minicaffe.cpu import loops, no_bias
from minicaffe.replay.command import Calls, Row, place

Told = tuple[str, Row | Calls]  # the name of a command's layer, and the command


def joined(rows: Sequence[Told]) -> list[Told]:
    """The commands, some of them fused; a fused one has the names of its first and last layer."""
    fused: list[tuple[str, str, Row | Calls]] = []  # the first layer, the last, and the command
    for what, row in rows:
        one = _one(fused[-1][2], row) if fused else None
        if one is None:
            fused.append((what, what, row))
        else:
            fused[-1] = fused[-1][0], what, one
    return [(_told(first, last), row) for first, last, row in fused]


def _told(first: str, last: str) -> str:
    """The name of a command: its layers, then the direction."""
    return last if first == last else f"{first.rpartition(' ')[0]} to {last}"


def _one(row: Row | Calls, then: Row | Calls) -> Row | None:
    """A command fused with the one after it; None if no rule fits."""
    if isinstance(row, Row) and isinstance(then, Row):
        join = JOINS.get((row.name, then.name))
        return join and join(row, then)
    return None


def _normalised(row: Row, then: Row) -> Row | None:
    """The remembered statistics of a BatchNorm, and the normalisation of each channel by them."""
    *_, mean_out, _, rate = row.args
    x, (outer, kept, inner), mean, many, y = then.args
    known = place(mean_out) == place(mean) and place(rate) == place(many)
    if not (known and row.n == then.n == kept and _in_place(then, x, y)):
        return None
    running: Any = loops("running", y.dtype)
    none = no_bias(y.dtype)
    more_args = (outer, kept, inner), False, none, none, False, y
    return Row(running.chain, (*row.args, *more_args), row.n, then.slices)


def _scaled(row: Row, then: Row) -> Row | None:
    """The same, with a scale of the same channels."""
    *past, (outer, kept, inner), scales, _, _, _, y = row.args
    _, factor, term, whole, to, f, p = then.args
    alike = (f, p, then.n) == (kept, inner, outer * kept)
    if scales or whole or not alike or not _in_place(then, y, to):
        return None
    more_args = (outer, kept, inner), True, factor, term, False, y
    return Row(row.loop, (*past, *more_args), row.n, row.slices)


def _rectified(row: Row, then: Row) -> Row | None:
    """The same, with a ReLU."""
    *first_args, scales, factor, term, rectified, y = row.args
    if rectified or not scales or not _in_place(then, y, then.args[-1]):
        return None
    return Row(row.loop, (*first_args, True, factor, term, True, y), row.n, row.slices)


def _rectified_sum(row: Row, then: Row) -> Row | None:
    """A sum of whole arrays, and its ReLU."""
    a, *of_a, b, of_b, sizes, y, of_y = row.args
    whole = (*of_a, of_b, of_y, sizes) == ((1,), (1,), (1,), (row.n,))
    apart = place(y) not in (place(a), place(b))
    if not (whole and apart and _in_place(then, y, then.args[-1]) and then.n == row.n):
        return None
    compiled: Any = loops("arrays", y.dtype)
    return Row(compiled.rectified_sum, (a, b, y), row.n, row.slices)


def _in_place(row: Row, x: Any, y: Any) -> bool:
    """Whether a command's first argument is x, and y has the same memory."""
    return place(row.args[0]) == place(x) == place(y)


JOINS: dict[tuple[str, str], Callable[[Row, Row], Row | None]] = {
    ("running.recall", "normalize.normalise"): _normalised,
    ("running.chain", "channels.scale"): _scaled,
    ("running.chain", "elementwise.ReLU_y"): _rectified,
    ("arrays.add", "elementwise.ReLU_y"): _rectified_sum,
}
