"""The order of items on their ranks in which few edges cross.

Sweeps down and up put each item at the mean place of its neighbours on the rank before; then neighbours change
places where that helps. Source: K. Sugiyama, S. Tagawa, M. Toda, Methods for Visual Understanding of
Hierarchical System Structures, 1981; E. Gansner et al., A Technique for Drawing Directed Graphs, 1993.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence

from minicaffe.tools.visualize.drawing.ranks import Ranks

SWEEPS = 12


def order(ranks: Ranks) -> None:
    """Reorder the ranks in place: the best that is found from several orders to begin with."""
    best, fewest = [list(rank) for rank in ranks.ranks], math.inf
    for links, backwards in itertools.product((ranks.below, ranks.above), (False, True)):
        _begin(ranks, links, backwards)
        for sweep in range(SWEEPS):
            if sweep:
                _sweep(ranks, sweep % 2 == 1)
            if (now := crossings(ranks)) < fewest:
                best, fewest = [list(rank) for rank in ranks.ranks], now
            if not fewest:
                break
    nodes = [[item for item in rank if item < ranks.nodes] for rank in best]
    turns = [a > b for rank in nodes for a, b in itertools.pairwise(rank)]
    turned = sum(turns) > len(turns) / 2  # rather from left to right in the order of the nodes
    ranks.ranks[:] = [rank[::-1] for rank in best] if turned else best


def _sweep(ranks: Ranks, down: bool) -> None:
    """Each rank ordered by the one before it, going down or up; then neighbours change places."""
    numbers = range(1, len(ranks.ranks)) if down else range(len(ranks.ranks) - 2, -1, -1)
    for number in numbers:
        fixed = ranks.ranks[number - 1 if down else number + 1]
        _sort(ranks.ranks[number], fixed, ranks.above if down else ranks.below)
    _transpose(ranks)


def crossings(ranks: Ranks) -> int:
    """How many pairs of links cross."""
    return sum(
        _between(upper, lower, ranks.below)
        for upper, lower in zip(ranks.ranks, ranks.ranks[1:], strict=False)
    )


def _between(upper: Sequence[int], lower: Sequence[int], below: Sequence[Sequence[int]]) -> int:
    """How often the links of two ranks cross: pairs in the wrong order."""
    place = {item: i for i, item in enumerate(lower)}
    found, seen = 0, list[int]()
    for item in upper:
        ends = sorted(place[other] for other in below[item])
        found += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
        for end in ends:
            bisect.insort(seen, end)
    return found


def _begin(ranks: Ranks, links: Sequence[Sequence[int]], backwards: bool) -> None:
    """The order in which a walk along links finds the items, which keeps chains together."""
    place: dict[int, int] = {}
    for first in sorted(itertools.chain(*ranks.ranks), reverse=links is ranks.above):
        waiting = [first]
        while waiting:
            item = waiting.pop()
            if item not in place:
                place[item] = -len(place) if backwards else len(place)
                waiting += reversed(links[item])
    for rank in ranks.ranks:
        rank.sort(key=place.__getitem__)


def _sort(rank: list[int], fixed: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
    """By the mean place of neighbours; an item without any keeps its own."""
    place = {item: i for i, item in enumerate(fixed)}
    wanted = {
        item: sum(place[other] for other in neighbours[item]) / len(neighbours[item])
        if neighbours[item]
        else i
        for i, item in enumerate(rank)
    }
    rank.sort(key=wanted.__getitem__)


def _transpose(ranks: Ranks) -> None:
    """Let items that stand side by side change places as long as fewer links cross."""
    place = {item: i for rank in ranks.ranks for i, item in enumerate(rank)}
    for _ in range(8):
        better = False
        for rank in ranks.ranks:
            for i in range(len(rank) - 1):
                left, right = rank[i], rank[i + 1]
                gain = 0
                for links in (ranks.above, ranks.below):
                    ours, theirs = ([place[o] for o in links[item]] for item in (left, right))
                    gain += sum((a > b) - (a < b) for a in ours for b in theirs)
                if gain > 0:
                    rank[i], rank[i + 1] = right, left
                    place[left], place[right] = i + 1, i
                    better = True
        if not better:
            break
