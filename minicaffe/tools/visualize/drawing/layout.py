"""Where boxes, arrows and labels lie. Sizes are in pixels.

Worked out for a net that runs down; one that runs to the right is the same with the axes exchanged. `across`
is along a rank, `deep` from rank to rank. An edge leaves a box and arrives as near to straight ahead as the
others there let it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from minicaffe.errors import SpecError
from minicaffe.tools.visualize.drawing.graph import LABEL, Edge, Graph, Node, slot, text_width
from minicaffe.tools.visualize.drawing.ranks import Ranks, coordinates, order, ranks

DIRECTIONS = ("TB", "LR")
MARGIN, GAP = 12.0, 26.0  # around all; between boxes
PASSING = 14.0  # the width of an edge that passes
DEEP = 46.0  # from rank to rank; more where edges go far aside
PAD = 11.0  # within a box beside its text
APART = 14.0  # arrows that arrive at one box
Point = tuple[float, float]
Port = tuple[int, int]  # of a node, by its number: the number of one of its tops


@dataclass(frozen=True)
class Way:
    """An arrow: points that it passes, straight ahead in each; its label, if it bears one, begins at `at`."""

    points: tuple[Point, ...]
    label: str = ""
    at: Point = (0.0, 0.0)


def ways(
    edges: Sequence[Edge], ranked: Ranks, spans: Sequence[Point], deeps: Sequence[Point], down: bool
) -> list[Way]:
    """The ways of edges between items that lie at `spans` along their ranks and at `deeps`."""
    middles = _middles(spans)
    starts = _starts(edges, ranked, spans, down)
    ends = _ends(edges, ranked, spans, starts)
    labels: dict[Port, str] = {}
    arrows = []
    for number, (edge, way) in enumerate(zip(edges, ranked.ways, strict=True)):
        first = (edge.source, edge.port) not in labels
        label = labels.setdefault((edge.source, edge.port), edge.text)
        start, deep = starts[edge.source, edge.port], deeps[edge.source][1]
        # As long as its label is beside it
        straight = 16.0 if down else text_width(label, LABEL) + 8
        points = [(start, deep), (start, deep + straight)]
        for item in way[1:-1]:
            points += [(middles[item], deeps[item][0]), (middles[item], deeps[item][1])]
        points.append((ends[number], deeps[edge.target][0]))
        if not down:
            points = [point[::-1] for point in points]
        x, y = points[0]
        place = (x + 5, y + 13) if down else (x + 5, y - 4)
        arrows.append(Way(tuple(points), label if first else "", place))
    return arrows


def _middles(spans: Sequence[Point]) -> list[float]:
    return [(left + right) / 2 for left, right in spans]


def _starts(
    edges: Sequence[Edge], ranked: Ranks, spans: Sequence[Point], down: bool
) -> dict[Port, float]:
    """Where along its box each port of each node is."""
    middles = _middles(spans)
    nexts: dict[int, dict[int, list[float]]] = {}
    slots: dict[tuple[int, int], float] = {}
    for edge, way in zip(edges, ranked.ways, strict=True):
        nexts.setdefault(edge.source, {}).setdefault(edge.port, []).append(middles[way[1]])
        slots.setdefault((edge.source, edge.port), slot(edge.text, down))
    starts = {}
    for node, ports in nexts.items():
        if len(ports) == 1:
            starts[node, next(iter(ports))] = middles[node]
            continue
        wanted = {port: sum(ends) / len(ends) for port, ends in ports.items()}
        order = sorted(ports, key=lambda port: (wanted[port], port))
        widths = [slots[node, port] for port in order]
        left, right = spans[node]
        low, high = (left + 8, right - widths[-1] + 8) if down else (left + 11, right - 4)
        places = spread([wanted[port] for port in order], widths[:-1], low, high)
        starts |= {(node, port): place for port, place in zip(order, places, strict=True)}
    return starts


def _ends(
    edges: Sequence[Edge], ranked: Ranks, spans: Sequence[Point], starts: dict[Port, float]
) -> list[float]:
    """Where along its target's box each edge arrives; edges that came together arrive together."""
    middles = _middles(spans)
    places: dict[int, dict[tuple[int, int], float]] = {}
    keys = []
    for edge, way in zip(edges, ranked.ways, strict=True):
        direct = len(way) == 2
        key = (edge.source, edge.port) if direct else (way[-2], -1)
        keys.append(key)
        before = starts[edge.source, edge.port] if direct else middles[way[-2]]
        places.setdefault(edge.target, {})[key] = before
    for node, wanted in places.items():
        left, right = spans[node]
        order = sorted(wanted, key=lambda key: (wanted[key], key))
        apart = min(APART, (right - left - 16) / max(1, len(order) - 1))
        found_at = [middles[node]]
        if len(order) > 1:
            gaps = [apart] * (len(order) - 1)
            found_at = spread([wanted[key] for key in order], gaps, left + 8, right - 8)
        places[node] = dict(zip(order, found_at, strict=True))
    return [places[edge.target][key] for edge, key in zip(edges, keys, strict=True)]


def spread(wanted: Sequence[float], gaps: Sequence[float], low: float, high: float) -> list[float]:
    """Places as near as can be to those wanted, with gaps between them, from `low` to `high`.

    The least sum of squares, by pooling neighbours that are in each other's way.

    >>> spread([5, 5, 30], [4, 4], 0, 20)
    [3.0, 7.0, 20]
    """
    offsets = [sum(gaps[:i]) for i in range(len(wanted))]
    blocks: list[tuple[float, int]] = []  # the mean of several, and how many
    for place, offset in zip(wanted, offsets, strict=True):
        blocks.append((place - offset, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (b, m), (a, n) = blocks.pop(), blocks.pop()
            blocks.append(((a * n + b * m) / (n + m), n + m))
    most = max(low, high - offsets[-1])
    flat = [min(max(mean, low), most) for mean, count in blocks for _ in range(count)]
    return [place + offset for place, offset in zip(flat, offsets, strict=True)]


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
    """Lay a graph out from top to bottom (TB) or left to right (LR); boxes do not meet. Raises SpecError."""
    if direction not in DIRECTIONS:
        raise SpecError(f"direction: expected {' or '.join(DIRECTIONS)}, got {direction!r}")
    down = direction == "TB"
    ranked = ranks(len(graph.nodes), graph.edges)
    order(ranked)
    labels = _labels(graph)
    sizes = [_size(node, own, down) for node, own in zip(graph.nodes, labels, strict=True)]
    items = [size if down else size[::-1] for size in sizes]
    items += [(PASSING, 0.0)] * (ranked.count - len(items))
    middles = [at + MARGIN for at in coordinates(ranked, [across for across, _ in items], GAP)]
    long = [0.0 if down else max([0.0, *(text_width(one, LABEL) for one in own)]) for own in labels]
    deeps = _deeps(ranked, middles, [deep for _, deep in items], long)
    wide = zip(middles, (across for across, _ in items), strict=True)
    spans = [(at - across / 2, at + across / 2) for at, across in wide]
    across = max((right for _, right in spans), default=MARGIN) + MARGIN
    deep = max((last for _, last in deeps), default=MARGIN) + MARGIN
    corners = zip((left for left, _ in spans), (first for first, _ in deeps), strict=True)
    places = zip(corners, sizes, strict=False)
    boxes = [Box(*(corner if down else corner[::-1]), *size) for corner, size in places]
    size = (across, deep) if down else (deep, across)
    return Layout(graph, direction, *size, boxes, ways(graph.edges, ranked, spans, deeps, down))


def _labels(graph: Graph) -> list[list[str]]:
    labels: list[dict[int, str]] = [{} for _ in graph.nodes]
    for edge in graph.edges:
        labels[edge.source].setdefault(edge.port, edge.text)
    return [list(ports.values()) for ports in labels]


def _size(node: Node, labels: Sequence[str], down: bool) -> Point:
    """A box's width and height: its text fits in, and so do the labels of its ports along its edge."""
    wide = [text_width(line, size) for line, size, _ in node.texts]
    width = max([1.08 * wide[0], *wide[1:]]) + 2 * PAD  # the name is bold
    height = sum(height for *_, height in node.texts) + 11
    slots = [slot(label, down) for label in labels]
    if not down:
        return width, max(height, sum(slots))
    return max(width, 2 * slots[0] - 12 if len(slots) == 1 else sum(slots)), height


def _deeps(
    ranked: Ranks, middles: Sequence[float], deeps: Sequence[float], long: Sequence[float]
) -> list[Point]:
    """Where each item begins and ends, boxes mid-rank; labels of a node reach `long` towards the next."""
    places: list[Point] = [(0.0, 0.0)] * ranked.count
    at = MARGIN
    for rank in ranked.ranks:
        deep = max(deeps[item] for item in rank)
        for item in rank:
            own = deeps[item] if item < ranked.nodes else deep
            places[item] = at + (deep - own) / 2, at + (deep + own) / 2
        aside = [abs(middles[a] - middles[b]) for a in rank for b in ranked.below[a]]
        reach = max((long[item] for item in rank if item < ranked.nodes), default=0.0)
        at += deep + DEEP + reach + min(48.0, 0.12 * max(aside, default=0.0))
    return places
