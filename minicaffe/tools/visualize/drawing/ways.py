"""The way of each edge: where it leaves a box, what it passes, where it arrives.

An edge leaves and arrives as near to straight ahead as the others at its box let it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minicaffe.tools.visualize.drawing import text
from minicaffe.tools.visualize.drawing.graph import Edge
from minicaffe.tools.visualize.drawing.ranks import Ranks

APART = 14.0  # arrows that arrive at one box
Point = tuple[float, float]


@dataclass(frozen=True)
class Way:
    """An arrow: points that it passes, straight ahead in each; its label, if it bears one, begins at `at`."""

    points: tuple[Point, ...]
    label: str = ""
    at: Point = (0.0, 0.0)


def ways(
    edges: Sequence[Edge], found: Ranks, spans: Sequence[Point], deeps: Sequence[Point], down: bool
) -> list[Way]:
    """The ways of edges between items that lie at `spans` along their ranks and at `deeps`."""
    middles = [(left + right) / 2 for left, right in spans]
    starts = _starts(edges, found, spans, middles, down)
    ends = _ends(edges, found, spans, middles, starts)
    labels: dict[tuple[int, int], str] = {}
    made = []
    for number, (edge, way) in enumerate(zip(edges, found.ways, strict=True)):
        first = (edge.source, edge.port) not in labels
        label = labels.setdefault((edge.source, edge.port), text.shown(edge.label))
        start, deep = starts[edge.source, edge.port], deeps[edge.source][1]
        points = [(start, deep), (start, deep + text.stub(label, down))]
        for item in way[1:-1]:
            points += [(middles[item], deeps[item][0]), (middles[item], deeps[item][1])]
        points.append((ends[number], deeps[edge.target][0]))
        if not down:
            points = [point[::-1] for point in points]
        x, y = points[0]
        place = (x + 5, y + 13) if down else (x + 5, y - 4)
        made.append(Way(tuple(points), label if first else "", place))
    return made


def _starts(
    edges: Sequence[Edge],
    found: Ranks,
    spans: Sequence[Point],
    middles: Sequence[float],
    down: bool,
) -> dict[tuple[int, int], float]:
    """Where along its box each port of each node is."""
    nexts: dict[int, dict[int, list[float]]] = {}
    slots: dict[tuple[int, int], float] = {}
    for edge, way in zip(edges, found.ways, strict=True):
        nexts.setdefault(edge.source, {}).setdefault(edge.port, []).append(middles[way[1]])
        slots.setdefault((edge.source, edge.port), text.slot(text.shown(edge.label), down))
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
    edges: Sequence[Edge],
    found: Ranks,
    spans: Sequence[Point],
    middles: Sequence[float],
    starts: dict[tuple[int, int], float],
) -> list[float]:
    """Where along its target's box each edge arrives; edges that came together arrive together."""
    places: dict[int, dict[tuple[int, int], float]] = {}
    keys = []
    for edge, way in zip(edges, found.ways, strict=True):
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
