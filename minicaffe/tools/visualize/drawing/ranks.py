"""Which rank each node stands on, what lies on the ranks that long edges pass, and where on its rank it lies.

rank 0    data ----------+        an edge that passes a rank has a point there, which takes part in
     1    conv1          .        the order of the rank as a node does
     2    ip1            .
     3    loss <---------+        edges of one source and port share their points

The order on the ranks is one in which few edges cross: sweeps down and up put each item at the mean place of
its neighbours on the rank before; then neighbours change places where that helps. Source: K. Sugiyama,
S. Tagawa, M. Toda, Methods for Visual Understanding of Hierarchical System Structures, 1981; E. Gansner
et al., A Technique for Drawing Directed Graphs, 1993.

Long edges are straight, nodes in the middle of their neighbours: four times, from either side and either end,
items are put in line with the middle one of their neighbours and the lines pushed together as far as they go;
of the four places of an item the mean of the middle two is taken, and then all settle. Source: U. Brandes,
B. Koepf, Fast and Simple Horizontal Coordinate Assignment, 2001.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from minicaffe.tools.visualize.drawing.graph import Edge

SWEEPS = 12


@dataclass
class Ranks:
    """Items on ranks, from the left to the right, and links from each rank to the next.

    Items are numbers: nodes first, then the points of edges that pass. `ways` has each edge's items, from its
    source to its target.
    """

    ranks: list[list[int]]
    ways: list[list[int]]
    nodes: int
    above: list[list[int]] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many items there are."""
        return len(self.above)


def ranks(count: int, edges: Sequence[Edge]) -> Ranks:
    """`count` nodes and their edges on ranks, each rank in the order of the nodes.

    >>> found = ranks(3, [Edge(0, 1), Edge(1, 2), Edge(0, 2)])
    >>> found.ranks, found.ways
    ([[0], [1, 3], [2]], [[0, 1], [1, 2], [0, 3, 2]])
    """
    rank = _rank(count, edges)
    ranked = Ranks([[] for _ in range(max(rank, default=-1) + 1)], [], count)
    for node, at in enumerate(rank):
        ranked.ranks[at].append(node)
    links: set[tuple[int, int]] = set()
    points: dict[tuple[int, int, int], int] = {}
    items = count
    for edge in edges:
        way = [edge.source]
        for at in range(rank[edge.source] + 1, rank[edge.target]):
            key = edge.source, edge.port, at
            if key not in points:
                points[key] = items
                ranked.ranks[at].append(items)
                items += 1
            way.append(points[key])
        ranked.ways.append([*way, edge.target])
        links |= set(itertools.pairwise(ranked.ways[-1]))
    ranked.above, ranked.below = [[] for _ in range(items)], [[] for _ in range(items)]
    for upper, lower in sorted(links):
        ranked.below[upper].append(lower)
        ranked.above[lower].append(upper)
    return ranked


def _rank(count: int, edges: Sequence[Edge]) -> list[int]:
    """As high as edges allow; but what feeds few, such as labels, comes down to who reads it."""
    into: list[set[int]] = [set() for _ in range(count)]
    out: list[set[int]] = [set() for _ in range(count)]
    for edge in edges:
        into[edge.target].add(edge.source)
        out[edge.source].add(edge.target)
    rank = [0] * count
    for node in range(count):
        rank[node] = max((rank[source] + 1 for source in into[node]), default=0)
    loose = [False] * count  # with all that leads to it a chain of its own
    for node in range(count):
        loose[node] = len(out[node]) == 1 and all(loose[source] for source in into[node])
    for node in reversed(range(count)):
        if out[node] and (len(out[node]) > len(into[node]) or loose[node]):
            rank[node] = min(rank[target] for target in out[node]) - 1
    least = min(rank, default=0)
    return [at - least for at in rank]


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
    """Order ranks, down or up, by the mean place of an item's neighbours on the one before, if any."""
    for number in range(1, len(ranks.ranks)) if down else range(len(ranks.ranks) - 2, -1, -1):
        rank, fixed = ranks.ranks[number], ranks.ranks[number - 1 if down else number + 1]
        place = {item: i for i, item in enumerate(fixed)}
        wanted: dict[int, float] = {item: i for i, item in enumerate(rank)}
        for item in rank:
            if others := (ranks.above if down else ranks.below)[item]:
                wanted[item] = sum(place[other] for other in others) / len(others)
        rank.sort(key=wanted.__getitem__)
    _transpose(ranks)


def crossings(ranks: Ranks) -> int:
    """How many pairs of links cross: those whose ends are in the wrong order."""
    count = 0
    for upper, lower in itertools.pairwise(ranks.ranks):
        place, seen = {item: i for i, item in enumerate(lower)}, list[int]()
        for item in upper:
            ends = sorted(place[other] for other in ranks.below[item])
            count += sum(len(seen) - bisect.bisect_right(seen, end) for end in ends)
            for end in ends:
                bisect.insort(seen, end)
    return count


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


ROUNDS = 24  # of settling
Links = Sequence[Sequence[int]]


def coordinates(ranks: Ranks, widths: Sequence[float], gap: float) -> list[float]:
    """The middle of each item, `widths` wide, at least `gap` from its neighbours on the rank."""
    if not ranks.count:
        return []
    crossed = _crossed(ranks)
    passes = []
    for down in (True, False):
        rows = ranks.ranks if down else ranks.ranks[::-1]
        neighbours = ranks.above if down else ranks.below
        for left in (True, False):
            turned = [list(row) if left else list(row)[::-1] for row in rows]
            places = _pushed(turned, _lines(turned, neighbours, crossed), widths, gap)
            passes.append(places if left else [-place for place in places])
    places = settled(ranks, _merged(passes, widths), widths, gap)
    least = min(x - w / 2 for x, w in zip(places, widths, strict=True))
    return [x - least for x in places]


def _crossed(ranks: Ranks) -> set[tuple[int, int]]:
    """Links that would bend a long edge: those that cross one between two points of its."""
    crossed: set[tuple[int, int]] = set()
    place = {item: i for rank in ranks.ranks for i, item in enumerate(rank)}
    for upper in ranks.ranks:
        links = [(item, other) for item in upper for other in ranks.below[item]]
        long = [(a, b) for a, b in links if min(a, b) >= ranks.nodes]
        for a, b in links:
            cross = ((place[a] - place[c]) * (place[b] - place[d]) < 0 for c, d in long)
            if min(a, b) < ranks.nodes and any(cross):
                crossed |= {(a, b), (b, a)}
    return crossed


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
    lefts = {line: {other for other, _ in others} for line, others in before.items()}
    turn = list(TopologicalSorter(lefts).static_order())  # each after those to the left of it
    place: dict[int, float] = {}
    for line in turn:
        place[line] = max((place[other] + apart for other, apart in before[line]), default=0.0)
    for line in reversed(turn):
        free = min((place[other] - apart for other, apart in after[line]), default=place[line])
        place[line] = max(place[line], free)
    return [place[line] for line in root]


def _merged(passes: list[list[float]], widths: Sequence[float]) -> list[float]:
    """The four made to fit the narrowest, at its left or right edge; then the mean of the middle two."""
    edges = [
        (
            min(x - w / 2 for x, w in zip(places, widths, strict=True)),
            max(x + w / 2 for x, w in zip(places, widths, strict=True)),
        )
        for places in passes
    ]
    low, high = min(edges, key=lambda edge: edge[1] - edge[0])
    moved = []
    for number, (places, edge) in enumerate(zip(passes, edges, strict=True)):
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
