"""Where boxes, arrows and labels lie. Sizes are in pixels.

Worked out for a net that runs down; one that runs to the right is the same with the axes exchanged. `across`
is along a rank, `deep` from rank to rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minicaffe.errors import SpecError
from minicaffe.tools.visualize.drawing import text
from minicaffe.tools.visualize.drawing.coordinates import coordinates
from minicaffe.tools.visualize.drawing.crossings import order
from minicaffe.tools.visualize.drawing.graph import Graph, Node
from minicaffe.tools.visualize.drawing.ranks import Ranks, ranks
from minicaffe.tools.visualize.drawing.ways import Point, Way, ways

DIRECTIONS = ("TB", "LR")
MARGIN, GAP, PASSING = (
    12.0,
    26.0,
    14.0,
)  # around all; between boxes; the width of an edge that passes
DEEP = 46.0  # from rank to rank; more where edges go far aside
PAD = 11.0  # within a box beside its text


@dataclass(frozen=True)
class Box:
    """A node's place: its left and top, width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """A picture's size, and the place of each node and edge of its graph, in their order."""

    graph: Graph
    direction: str
    width: float
    height: float
    boxes: list[Box]
    ways: list[Way]


def layout(graph: Graph, direction: str = "TB") -> Layout:
    """Lay a graph out from the top to the bottom (TB) or from left to right (LR). Raises SpecError.

    No two boxes meet, and each edge goes only forward.

    >>> from minicaffe.tools.visualize.drawing.graph import Edge
    >>> laid = layout(Graph("net", [Node(("data",)), Node(("ip",))], [Edge(0, 1, "64x10")]))
    >>> laid.boxes[0].y + laid.boxes[0].height < laid.boxes[1].y
    True
    """
    if direction not in DIRECTIONS:
        raise SpecError(f"direction: expected {' or '.join(DIRECTIONS)}, got {direction!r}")
    down = direction == "TB"
    found = ranks(len(graph.nodes), graph.edges)
    order(found)
    labels = _labels(graph)
    sizes = [_size(node, own, down) for node, own in zip(graph.nodes, labels, strict=True)]
    items = [size if down else size[::-1] for size in sizes]
    items += [(PASSING, 0.0)] * (found.count - len(items))
    middles = [at + MARGIN for at in coordinates(found, [across for across, _ in items], GAP)]
    long = [
        0.0 if down else max((text.width(one, text.LABEL) for one in own), default=0.0)
        for own in labels
    ]
    deeps = _deeps(found, middles, [deep for _, deep in items], long)
    spans = [
        (at - across / 2, at + across / 2) for at, (across, _) in zip(middles, items, strict=True)
    ]
    across = max((right for _, right in spans), default=MARGIN) + MARGIN
    deep = max((last for _, last in deeps), default=MARGIN) + MARGIN
    corners = [_turned((spans[i][0], deeps[i][0]), down) for i in range(len(sizes))]
    boxes = [Box(*corner, *size) for corner, size in zip(corners, sizes, strict=True)]
    size = _turned((across, deep), down)
    return Layout(graph, direction, *size, boxes, ways(graph.edges, found, spans, deeps, down))


def _turned(point: Point, down: bool) -> Point:
    return point if down else point[::-1]


def _labels(graph: Graph) -> list[list[str]]:
    """The label of each node's ports."""
    found: list[dict[int, str]] = [{} for _ in graph.nodes]
    for edge in graph.edges:
        found[edge.source].setdefault(edge.port, text.shown(edge.label))
    return [list(ports.values()) for ports in found]


def _size(node: Node, labels: Sequence[str], down: bool) -> Point:
    """A box's width and height: its text fits in, and so do the labels of its ports along its edge."""
    lines = [text.shown(line) for line in node.lines]
    wide = [
        text.width(line, size) for line, size in zip(lines, text.sizes(len(lines)), strict=True)
    ]
    width = max([1.08 * wide[0], *wide[1:]]) + 2 * PAD  # the name is bold
    height = sum(text.heights(len(lines))) + 11
    slots = [text.slot(label, down) for label in labels]
    if not down:
        return width, max(height, sum(slots))
    return max(width, 2 * slots[0] - 12 if len(slots) == 1 else sum(slots)), height


def _deeps(
    found: Ranks, middles: Sequence[float], deeps: Sequence[float], long: Sequence[float]
) -> list[Point]:
    """Where each item begins and ends: boxes in the middle of their rank, what passes it all through.

    `long` is how far the labels of each node reach towards the next rank.
    """
    places: list[Point] = [(0.0, 0.0)] * found.count
    at = MARGIN
    for rank in found.ranks:
        deep = max(deeps[item] for item in rank)
        for item in rank:
            own = deeps[item] if item < found.nodes else deep
            places[item] = at + (deep - own) / 2, at + (deep + own) / 2
        aside = [abs(middles[a] - middles[b]) for a in rank for b in found.below[a]]
        reach = max((long[item] for item in rank if item < found.nodes), default=0.0)
        at += deep + DEEP + reach + min(48.0, 0.12 * max(aside, default=0.0))
    return places
