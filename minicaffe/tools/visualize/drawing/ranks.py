"""Which rank each node stands on, and what lies on the ranks that long edges pass.

rank 0    data ----------+        an edge that passes a rank has a point there, which takes part in
     1    conv1          .        the order of the rank as a node does
     2    ip1            .
     3    loss <---------+        edges of one source and port share their points
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from minicaffe.tools.visualize.drawing.graph import Edge


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
    found = Ranks([[] for _ in range(max(rank, default=-1) + 1)], [], count)
    for node, at in enumerate(rank):
        found.ranks[at].append(node)
    links: set[tuple[int, int]] = set()
    points: dict[tuple[int, int, int], int] = {}
    items = count
    for edge in edges:
        way = [edge.source]
        for at in range(rank[edge.source] + 1, rank[edge.target]):
            key = edge.source, edge.port, at
            if key not in points:
                points[key] = items
                found.ranks[at].append(items)
                items += 1
            way.append(points[key])
        found.ways.append([*way, edge.target])
        links |= set(zip(found.ways[-1], found.ways[-1][1:], strict=False))
    found.above, found.below = [[] for _ in range(items)], [[] for _ in range(items)]
    for upper, lower in sorted(links):
        found.below[upper].append(lower)
        found.above[lower].append(upper)
    return found


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
