"""Neighbouring rows of compiled loops that go over the same entries, as one: memory is passed once.

In inference a BatchNorm goes on to a Scale, and that to a ReLU, as does a sum of two blobs. Each entry is what
it was, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minicaffe.cpu import loops, no_bias
from minicaffe.replay.command import Calls, Row, place

Told = tuple[str, Row | Calls]  # what a row is of, and the row


def joined(rows: Sequence[Told]) -> list[Told]:
    """The rows, some of them as one, which is told to be of the first layer to the last."""
    found: list[tuple[str, str, Row | Calls]] = []  # of the first layer, of the last, and the row
    for what, row in rows:
        one = _one(found[-1][2], row) if found else None
        if one is None:
            found.append((what, what, row))
        else:
            found[-1] = found[-1][0], what, one
    return [(_told(first, last), row) for first, last, row in found]


def _told(first: str, last: str) -> str:
    """What a row is of: the layers, and the direction behind them."""
    return last if first == last else f"{first.rpartition(' ')[0]} to {last}"


def _one(row: Row | Calls, then: Row | Calls) -> Row | None:
    """A row and the one behind it as one, if they go together."""
    if isinstance(row, Row) and isinstance(then, Row):
        join = JOINS.get((row.name, then.name))
        return join and join(row, then)
    return None


def _normalised(row: Row, then: Row) -> Row | None:
    """What a BatchNorm remembers, and how it normalises each channel by that."""
    *_, found, _, rate = row.args
    x, (outer, kept, inner), mean, many, y = then.args
    known = place(found) == place(mean) and place(rate) == place(many)
    if not (known and row.n == then.n == kept and _in_place(then, x, y)):
        return None
    fast: Any = loops("running", y.dtype)
    none = no_bias(y.dtype)
    told = (outer, kept, inner), False, none, none, False, y
    return Row(fast.chain, (*row.args, *told), row.n, then.slices)


def _scaled(row: Row, then: Row) -> Row | None:
    """The same, and a scale of the same channels."""
    *past, (outer, kept, inner), scales, _, _, _, y = row.args
    _, factor, term, whole, to, f, p = then.args
    alike = (f, p, then.n) == (kept, inner, outer * kept)
    if scales or whole or not alike or not _in_place(then, y, to):
        return None
    told = (outer, kept, inner), True, factor, term, False, y
    return Row(row.loop, (*past, *told), row.n, row.slices)


def _rectified(row: Row, then: Row) -> Row | None:
    """The same, and a ReLU."""
    *given, scales, factor, term, rectified, y = row.args
    if rectified or not scales or not _in_place(then, y, then.args[-1]):
        return None
    return Row(row.loop, (*given, True, factor, term, True, y), row.n, row.slices)


def _rectified_sum(row: Row, then: Row) -> Row | None:
    """A sum of whole arrays, and its ReLU."""
    a, *of_a, b, of_b, sizes, y, of_y = row.args
    whole = (*of_a, of_b, of_y, sizes) == ((1,), (1,), (1,), (row.n,))
    apart = place(y) not in (place(a), place(b))
    if not (whole and apart and _in_place(then, y, then.args[-1]) and then.n == row.n):
        return None
    fast: Any = loops("arrays", y.dtype)
    return Row(fast.rectified_sum, (a, b, y), row.n, row.slices)


def _in_place(row: Row, x: Any, y: Any) -> bool:
    """Whether what a row reads first is x, and y lies there."""
    return place(row.args[0]) == place(x) == place(y)


JOINS: dict[tuple[str, str], Callable[[Row, Row], Row | None]] = {
    ("running.recall", "normalize.normalise"): _normalised,
    ("running.chain", "channels.scale"): _scaled,
    ("running.chain", "elementwise.ReLU_y"): _rectified,
    ("arrays.add", "elementwise.ReLU_y"): _rectified_sum,
}
