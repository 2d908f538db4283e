"""Neighbouring rows of compiled loops that go over the same entries, as one: memory is passed once.

In inference a BatchNorm goes on to a Scale, and that to a ReLU, as does a sum of two blobs. Each entry is what
it was, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minicaffe.ops.loops import loops
from minicaffe.ops.row import Calls, Row, place

Told = tuple[str, Row | Calls]  # what a row is of, and the row


def joined(rows: Sequence[Told]) -> list[Told]:
    """The rows, some of them as one, which is told to be of the first layer to the last."""
    found: list[Told] = []
    for what, row in rows:
        one = _one(found[-1][1], row) if found else None
        if one is None:
            found.append((what, row))
        else:
            found[-1] = f"{found[-1][0].partition(' ')[0]} to {what}", one
    return found


def _one(row: Row | Calls, then: Row | Calls) -> Row | None:
    """A row and the one behind it as one, if they go together."""
    if isinstance(row, Row) and isinstance(then, Row):
        if (row.name, then.name) == ("normalize.normalise", "channels.scale"):
            return _scaled(row, then)
        if (row.name, then.name) == ("normalize.chain", "elementwise.ReLU_y"):
            *given, rectified, y = row.args
            if not rectified and _in_place(then, y, then.args[-1]):
                return Row(row.loop, (*given, True, y), row.n, row.slices)
        if (row.name, then.name) == ("arrays.add", "elementwise.ReLU_y"):
            return _rectified_sum(row, then)
    return None


def _scaled(row: Row, then: Row) -> Row | None:
    """A normalisation by channels, and a scale of the same."""
    (x, seen, mean, rate, y), (_, factor, term, whole, to, f, p) = row.args, then.args
    outer, kept, inner = seen
    alike = (f, p, row.n, then.n) == (kept, inner, kept, outer * kept)
    if whole or not alike or not (_in_place(row, x, y) and _in_place(then, y, to)):
        return None
    chain: Any = loops("normalize", y.dtype)
    return Row(chain.chain, (seen, mean, rate, factor, term, False, y), row.n, row.slices)


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
