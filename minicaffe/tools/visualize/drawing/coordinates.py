"""Where on its rank each item lies: long edges straight, nodes in the middle of their neighbours.

Four times, from either side and from either end, items are put in line with the middle one of their neighbours
and the lines pushed together as far as they go; of the four places of an item the mean of the middle two is
taken. Source: U. Brandes, B. Koepf, Fast and Simple Horizontal Coordinate Assignment, 2001. Then all settle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from minicaffe.tools.visualize.drawing.ranks import Ranks

ROUNDS = 24  # of settling
Links = Sequence[Sequence[int]]


def coordinates(ranks: Ranks, widths: Sequence[float], gap: float) -> list[float]:
    """The middle of each item, `widths` wide, at least `gap` from its neighbours on the rank.

    >>> from minicaffe.tools.visualize.drawing.graph import Edge
    >>> from minicaffe.tools.visualize.drawing.ranks import ranks
    >>> coordinates(ranks(3, [Edge(0, 1), Edge(0, 2)]), [10, 10, 10], 2)
    [11.0, 5.0, 17.0]
    """
    if not ranks.count:
        return []
    crossed = _crossed(ranks)
    found = []
    for down in (True, False):
        rows = ranks.ranks if down else ranks.ranks[::-1]
        neighbours = ranks.above if down else ranks.below
        for left in (True, False):
            turned = [list(row) if left else list(row)[::-1] for row in rows]
            lines = _lines(turned, neighbours, crossed)
            places = _pushed(turned, lines, widths, gap)
            found.append(places if left else [-place for place in places])
    places = settled(ranks, _merged(found, widths), widths, gap)
    least = min(x - w / 2 for x, w in zip(places, widths, strict=True))
    return [x - least for x in places]


def _crossed(ranks: Ranks) -> set[tuple[int, int]]:
    """Links that would bend a long edge: those that cross one between two points of its."""
    found: set[tuple[int, int]] = set()
    place = {item: i for rank in ranks.ranks for i, item in enumerate(rank)}
    for upper in ranks.ranks:
        links = [(item, other) for item in upper for other in ranks.below[item]]
        long = [(a, b) for a, b in links if min(a, b) >= ranks.nodes]
        for a, b in links:
            if min(a, b) < ranks.nodes:
                cross = ((place[a] - place[c]) * (place[b] - place[d]) < 0 for c, d in long)
                if any(cross):
                    found |= {(a, b), (b, a)}
    return found


def _lines(
    rows: Sequence[Sequence[int]], neighbours: Links, crossed: set[tuple[int, int]]
) -> list[int]:
    """The first item of the line that each item is in."""
    place = {item: i for row in rows for i, item in enumerate(row)}
    root = list(range(len(place)))
    taken = set[int]()
    for row in rows:
        last = -1
        for item in row:
            others = sorted(neighbours[item], key=place.__getitem__)
            middle = {(len(others) - 1) // 2, len(others) // 2} if others else set[int]()
            for other in (others[i] for i in sorted(middle)):
                free = root[item] == item and other not in taken and place[other] > last
                if free and (item, other) not in crossed:
                    root[item], last = root[other], place[other]
                    taken.add(other)
    return root


def _pushed(
    rows: Sequence[Sequence[int]], root: Sequence[int], widths: Sequence[float], gap: float
) -> list[float]:
    """Each line as far to the left as those beside it let it, then back to the right as far as is free."""
    before: dict[int, list[tuple[int, float]]] = {line: [] for line in root}
    after: dict[int, list[tuple[int, float]]] = {line: [] for line in root}
    for row in rows:
        for a, b in itertools.pairwise(row):
            apart = (widths[a] + widths[b]) / 2 + gap
            before[root[b]].append((root[a], apart))
            after[root[a]].append((root[b], apart))
    turn = _in_turn(before, after)
    place: dict[int, float] = {}
    for line in turn:
        place[line] = max((place[other] + apart for other, apart in before[line]), default=0.0)
    for line in reversed(turn):
        free = min((place[other] - apart for other, apart in after[line]), default=place[line])
        place[line] = max(place[line], free)
    return [place[line] for line in root]


def _in_turn(
    before: dict[int, list[tuple[int, float]]], after: dict[int, list[tuple[int, float]]]
) -> list[int]:
    """Lines, each after those to the left of it."""
    waiting = {line: len(others) for line, others in before.items()}
    ready = [line for line, count in waiting.items() if not count]
    for line in ready:
        for other, _ in after[line]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    assert len(ready) == len(waiting), "lines cross"
    return ready


def _merged(found: list[list[float]], widths: Sequence[float]) -> list[float]:
    """The four made to fit the narrowest, at its left or right edge; then the mean of the middle two."""
    edges = [
        (
            min(x - w / 2 for x, w in zip(places, widths, strict=True)),
            max(x + w / 2 for x, w in zip(places, widths, strict=True)),
        )
        for places in found
    ]
    low, high = min(edges, key=lambda edge: edge[1] - edge[0])
    moved = []
    for number, (places, edge) in enumerate(zip(found, edges, strict=True)):
        by = low - edge[0] if number % 2 == 0 else high - edge[1]
        moved.append([place + by for place in places])
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*moved, strict=True)]


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
        for first in filter(links.__getitem__, order):
            wanted = sum(places[other] for other in links[first]) / len(links[first])
            low, high = -math.inf, math.inf  # where the line may lie between its neighbours
            for item in lines[first]:
                left, right = beside[item]
                if left is not None:
                    low = max(low, places[left] + (widths[left] + widths[item]) / 2 + gap)
                if right is not None:
                    high = min(high, places[right] - (widths[right] + widths[item]) / 2 - gap)
            for item in lines[first]:
                places[item] = max(low, min(high, wanted))
    return places
