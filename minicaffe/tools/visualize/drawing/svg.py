"""A layout as SVG: no script, no ids, nothing from elsewhere.

Within a page it takes the page's colour of text, and its variable --paper, if there is one, is what labels
stand on; alone it brings both, for light and dark.
"""

from __future__ import annotations

import itertools

from minicaffe.tools.visualize.drawing import text
from minicaffe.tools.visualize.drawing.graph import COLOURS
from minicaffe.tools.visualize.drawing.layout import Box, Layout
from minicaffe.tools.visualize.drawing.ways import Point, Way

FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
ALONE = (
    "<style>.net-drawing{color:#1b1f24;--paper:#fff;background:var(--paper)}"
    "@media(prefers-color-scheme:dark){.net-drawing{color:#e6e8eb;--paper:#15181c}}</style>"
)
HEAD = 5.0  # an arrow's


def svg(laid: Layout, alone: bool = False) -> str:
    """The text of an <svg>: of a file of its own, or to stand in a page.

    Each box is a <g class="layer FAMILY" data-layer=NAME> whose <title> tells all of it.

    >>> from minicaffe.tools.visualize.drawing.graph import Graph, Node
    >>> from minicaffe.tools.visualize.drawing.layout import layout
    >>> print(svg(layout(Graph("a < b", [Node(("data",))])))[:59])
    <svg xmlns="http://www.w3.org/2000/svg" class="net-drawing"
    """
    width, height = f"{laid.width:.0f}", f"{laid.height:.0f}"
    title = escape(laid.graph.title)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="net-drawing" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" role="group" aria-label="{title}" '
        f'style="max-width:100%;height:auto" font-family="{FONT}" font-size="12" fill="currentColor">'
    )
    drawn: set[tuple[Point, Point]] = set()
    ways = "".join(_way(way, laid.direction == "TB", drawn) for way in laid.ways)
    ways = f'<g aria-hidden="true">{ways}</g>\n' if ways else ""
    boxes = "\n".join(_box(laid, i, box) for i, box in enumerate(laid.boxes))
    labels = "".join(_label(way) for way in laid.ways if way.label)
    style = ALONE if alone else ""
    named = f"<title>{title}</title>" if alone else ""
    return f"{head}{named}{style}\n{ways}{boxes}\n{_labels(labels)}</svg>\n"


def _labels(labels: str) -> str:
    if not labels:
        return ""
    return (
        f'<g aria-hidden="true" font-size="{text.LABEL}" stroke="var(--paper, none)" '
        f'stroke-width="3" stroke-linejoin="round" paint-order="stroke">{labels}</g>\n'
    )


def _box(laid: Layout, number: int, box: Box) -> str:
    node = laid.graph.nodes[number]
    colour = COLOURS[node.family]
    folded = f' data-folded="{escape(" ".join(node.folded))}"' if node.folded else ""
    x, y = (
        box.x + box.width / 2,
        box.y + 5 + (box.height - 11 - sum(text.heights(len(node.lines)))) / 2,
    )
    lines = []
    for i, (line, high) in enumerate(zip(node.lines, text.heights(len(node.lines)), strict=True)):
        y += high
        told = ' font-size="13" font-weight="bold"' if i == 0 else ""
        told = ' font-size="11" opacity=".75"' if i > 1 else told
        lines.append(f'<text x="{x:.1f}" y="{y - 3:.1f}"{told}>{escape(text.shown(line))}</text>')
    return (
        f'<g class="layer {node.family}" data-layer="{escape(node.name)}"{folded} role="img" '
        f'text-anchor="middle"><title>{escape(node.title or node.name)}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="6" fill="{colour}" fill-opacity=".14" stroke="{colour}" stroke-width="1.4"/>'
        f"{''.join(lines)}</g>"
    )


def curve(points: tuple[Point, ...], down: bool) -> list[tuple[Point, Point, Point, Point]]:
    """A way as Bezier curves, from each of its points to the next, straight ahead in both."""
    made = []
    for (x, y), (u, v) in itertools.pairwise(points):
        a, b = (
            ((x, (y + v) / 2), (u, (y + v) / 2)) if down else (((x + u) / 2, y), ((x + u) / 2, v))
        )
        made.append(((x, y), a, b, (u, v)))
    return made


def head(way: Way, down: bool) -> list[Point]:
    """The corners of the arrow's head at the end of a way."""
    x, y = way.points[-1]
    if down:
        return [(x, y), (x - 0.7 * HEAD, y - 1.4 * HEAD), (x + 0.7 * HEAD, y - 1.4 * HEAD)]
    return [(x, y), (x - 1.4 * HEAD, y - 0.7 * HEAD), (x - 1.4 * HEAD, y + 0.7 * HEAD)]


def _way(way: Way, down: bool, drawn: set[tuple[Point, Point]]) -> str:
    """An arrow, but for what others have `drawn` of its way."""
    path, at = "", None
    for start, a, b, end in curve(way.points, down):
        if (start, end) not in drawn:
            drawn.add((start, end))
            straight = abs(start[0] - end[0]) < 0.05 or abs(start[1] - end[1]) < 0.05
            turns = (end,) if straight else (a, b, end)
            path += "" if at == start else f"M{start[0]:.1f} {start[1]:.1f}"
            path += ("L" if straight else "C") + " ".join(f"{u:.1f} {v:.1f}" for u, v in turns)
            at = end
    corners = "L".join(f"{u:.1f} {v:.1f}" for u, v in head(way, down))
    return (
        f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity=".55" stroke-width="1.3"/>'
        f'<path d="M{corners}Z" fill-opacity=".75"/>'
    )


def _label(way: Way) -> str:
    x, y = way.at
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(way.label)}</text>'


def escape(said: str) -> str:
    """A text as it stands in XML, also within quotes; what XML has no place for is a question mark.

    >>> escape('<a & "b">\\x00')
    '&lt;a &amp; &quot;b&quot;&gt;?'
    """
    said = "".join(c if c in "\n\t" or c.isprintable() else "?" for c in said)
    for character, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        said = said.replace(character, name)
    return said
