"""Items on ranks moved to the middle of what they are linked to, what stands in a straight line as one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minicaffe.tools.visualize.drawing.ranks import Ranks

ROUNDS = 24


def settled(ranks: Ranks, places: list[float], widths: Sequence[float], gap: float) -> list[float]:
    """Lines moved, again and again, to the mean of what they are linked to, as far as neighbours let them."""
    line = list(range(len(places)))  # the first item of what already stands straight
    for rank in ranks.ranks:
        for item in rank:
            above = ranks.above[item]
            alone = len(above) == 1 and len(ranks.below[above[0]]) == 1
            if alone and abs(places[above[0]] - places[item]) < 0.5:
                line[item] = line[above[0]]
    lines: dict[int, list[int]] = {}
    for item, first in enumerate(line):
        lines.setdefault(first, []).append(item)
    beside: dict[int, tuple[int | None, int | None]] = {}
    for rank in ranks.ranks:
        for left, item, right in zip([None, *rank[:-1]], rank, [*rank[1:], None], strict=True):
            beside[item] = left, right
    links = {
        first: [o for i in items for o in (*ranks.above[i], *ranks.below[i]) if line[o] != first]
        for first, items in lines.items()
    }
    for turn in range(ROUNDS):
        order = list(lines) if turn % 2 == 0 else list(reversed(lines))
        for first in order:
            if links[first]:
                wanted = sum(places[other] for other in links[first]) / len(links[first])
                low, high = _room(lines[first], beside, places, widths, gap)
                for item in lines[first]:
                    places[item] = max(low, min(high, wanted))
    return places


def _room(
    items: Sequence[int],
    beside: dict[int, tuple[int | None, int | None]],
    places: Sequence[float],
    widths: Sequence[float],
    gap: float,
) -> tuple[float, float]:
    """Where a line may lie between its neighbours."""
    low, high = -math.inf, math.inf
    for item in items:
        left, right = beside[item]
        if left is not None:
            low = max(low, places[left] + (widths[left] + widths[item]) / 2 + gap)
        if right is not None:
            high = min(high, places[right] - (widths[right] + widths[item]) / 2 - gap)
    return low, high
