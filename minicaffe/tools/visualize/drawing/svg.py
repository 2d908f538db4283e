"""A layout as SVG (no script, no ids, nothing from elsewhere), as PNG by Pillow, and a graph in DOT.

Within a page an SVG takes the page's colour of text, and its variable --paper, if there is one, is what labels
stand on; alone it brings both, for light and dark.
"""

import io
import itertools
from collections.abc import Sequence
from typing import Any
from xml.sax import saxutils

from minicaffe.errors import DataError, ShapeError, SpecError, needed, pip_install
from minicaffe.tools.visualize.drawing.graph import COLOURS, LABEL, Graph
from minicaffe.tools.visualize.drawing.layout import DIRECTIONS, Box, Layout, Point, Way

FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
ALONE = (
    "<style>.net-drawing{color:#1b1f24;--paper:#fff;background:var(--paper)}"
    "@media(prefers-color-scheme:dark){.net-drawing{color:#e6e8eb;--paper:#15181c}}</style>"
)
HEAD = 5.0  # an arrow's
SCALE = 2  # pixels for one of the layout's
MOST = 1 << 26  # pixels
INK, LINE, FAINT = (27, 31, 36), (124, 127, 131), (84, 88, 94)
ESCAPES = {"\n": "\\n", '"': '\\"', "\\": "\\\\"}  # of DOT


def svg(laid: Layout, alone: bool = False) -> str:
    """An <svg>, for a page or a file; a box is a <g class="layer FAMILY" data-layer=NAME> with a <title>."""
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
    labels = "".join(
        f'<text x="{way.at[0]:.1f}" y="{way.at[1]:.1f}">{escape(way.label)}</text>'
        for way in laid.ways
        if way.label
    )
    if labels:
        labels = (
            f'<g aria-hidden="true" font-size="{LABEL}" stroke="var(--paper, none)" '
            f'stroke-width="3" stroke-linejoin="round" paint-order="stroke">{labels}</g>\n'
        )
    own = f"<title>{title}</title>{ALONE}" if alone else ""
    return f"{head}{own}\n{ways}{boxes}\n{labels}</svg>\n"


def _texts(laid: Layout, number: int) -> list[tuple[str, float, Point]]:
    """Returns the lines in a box: each text, its size, and the middle of its baseline."""
    node, box = laid.graph.nodes[number], laid.boxes[number]
    heights = [height for *_, height in node.texts]
    x, y = box.x + box.width / 2, box.y + 5 + (box.height - 11 - sum(heights)) / 2
    lines = zip(node.texts, list(itertools.accumulate(heights, initial=y))[1:], strict=True)
    return [(line, size, (x, end - 3)) for (line, size, _), end in lines]


def _box(laid: Layout, number: int, box: Box) -> str:
    node = laid.graph.nodes[number]
    colour = COLOURS[node.family]
    folded = f' data-folded="{escape(" ".join(node.folded))}"' if node.folded else ""
    lines = []
    for i, (line, _, (x, y)) in enumerate(_texts(laid, number)):
        style = ' font-size="13" font-weight="bold"' if i == 0 else ""
        style = ' font-size="11" opacity=".75"' if i > 1 else style
        lines.append(f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(line)}</text>')
    return (
        f'<g class="layer {node.family}" data-layer="{escape(node.name)}"{folded} role="img" '
        f'text-anchor="middle"><title>{escape(node.title or node.name)}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="6" fill="{colour}" fill-opacity=".14" stroke="{colour}" stroke-width="1.4"/>'
        f"{''.join(lines)}</g>"
    )


def curve(points: tuple[Point, ...], down: bool) -> list[tuple[Point, Point, Point, Point]]:
    """A way as Bezier curves, from each of its points to the next, straight ahead in both."""
    curves = []
    for (x, y), (u, v) in itertools.pairwise(points):
        middle = (y + v) / 2 if down else (x + u) / 2
        a, b = ((x, middle), (u, middle)) if down else ((middle, y), (middle, v))
        curves.append(((x, y), a, b, (u, v)))
    return curves


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


def escape(said: str) -> str:
    """A text as it stands in XML, also within quotes; what XML has no place for is a question mark.

    >>> escape('<a & "b">\\x00')
    '&lt;a &amp; &quot;b&quot;&gt;?'
    """
    said = "".join(c if c in "\n\t" or c.isprintable() else "?" for c in said)
    return saxutils.escape(said, {'"': "&quot;"})


def png(laid: Layout, scale: int = SCALE) -> bytes:
    """The bytes of a PNG file. Raises DataError without Pillow, ShapeError for a picture that is too large."""
    remedy = f"{pip_install('image')}; SVG and DOT need nothing"
    with needed(DataError(f"a PNG needs Pillow: {remedy}")):
        from PIL import Image, ImageDraw
    width, height = round(laid.width * scale), round(laid.height * scale)
    if width * height > MOST:
        if scale > 1:
            return png(laid, scale - 1)
        raise ShapeError(f"a PNG of {width} x {height} pixels is too large; SVG has no such limit")
    image = Image.new("RGB", (width, height), "white")
    _arrows(image, laid, scale)
    draw = ImageDraw.Draw(image)
    for number in range(len(laid.boxes)):
        _node(draw, laid, number, scale)
    for way in laid.ways:
        if way.label:
            halo: dict[str, Any] = {"stroke_width": scale, "stroke_fill": "white"}
            font = _font(LABEL * scale)
            draw.text(_scaled(way.at, scale), _plain(way.label), INK, font, "ls", **halo)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _arrows(image: Any, laid: Layout, scale: int) -> None:
    """Arrows, each drawn twice as large on a mask of its own size and made smaller: their edges are smooth."""
    from PIL import Image, ImageDraw

    down = laid.direction == "TB"
    for way in laid.ways:
        along = (point for one in curve(way.points, down) for point in _along(*one))
        points = [_scaled(point, scale) for point in along]
        corners = [_scaled(point, scale) for point in head(way, down)]
        xs, ys = zip(*points, *corners, strict=True)
        left, top = int(min(xs)) - 4, int(min(ys)) - 4
        size = int(max(xs)) - left + 5, int(max(ys)) - top + 5
        mask = Image.new("L", (2 * size[0], 2 * size[1]))
        draw = ImageDraw.Draw(mask)
        moved = [[(2 * (x - left), 2 * (y - top)) for x, y in one] for one in (points, corners)]
        draw.line(moved[0], 255, round(2.6 * scale), joint="curve")
        draw.polygon(moved[1], 255)
        image.paste(LINE, (left, top), mask.reduce(2))


def _node(draw: Any, laid: Layout, number: int, scale: int) -> None:
    node, box = laid.graph.nodes[number], laid.boxes[number]
    colour = COLOURS[node.family]
    hue = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    pale = tuple(round(255 - 0.14 * (255 - part)) for part in hue)
    end = box.x + box.width, box.y + box.height
    corners = _scaled((box.x, box.y), scale), _scaled(end, scale)
    draw.rounded_rectangle(corners, 6 * scale, pale, colour, round(1.4 * scale))
    for i, (line, size, at) in enumerate(_texts(laid, number)):
        bold = {"stroke_width": 0.35 * scale, "stroke_fill": INK} if i == 0 else {}
        ink, font = FAINT if i > 1 else INK, _font(size * scale)
        draw.text(_scaled(at, scale), _plain(line), ink, font, "ms", **bold)


def _font(size: float) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _plain(said: str) -> str:
    """In characters that the font has."""
    return said.replace("…", "...").encode("ascii", "replace").decode()


def _scaled(point: Point, scale: int) -> Point:
    return point[0] * scale, point[1] * scale


def _along(start: Point, a: Point, b: Point, end: Point) -> list[Point]:
    points, axes = [], list(zip(start, a, b, end, strict=True))
    for i in range(17):
        t = i / 16
        parts = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
        x, y = (sum(p * one for p, one in zip(parts, axis, strict=True)) for axis in axes)
        points.append((x, y))
    return points


def dot(graph: Graph, direction: str = "TB") -> str:
    """A graph in DOT, for Graphviz to lay out. Raises SpecError.

    >>> from minicaffe.tools.visualize.drawing.graph import Edge, Node
    >>> nodes = [Node(("data", "Input"), "data"), Node(("ip", "InnerProduct"), "product")]
    >>> print(dot(Graph("net", nodes, [Edge(0, 1, "64x10")])))
    digraph "net" {
      rankdir="TB"
      node [shape="box" style="rounded,filled" fontname="Helvetica"]
      n0 [label="data\\nInput" tooltip="data" color="#64748b" fillcolor="#64748b24"]
      n1 [label="ip\\nInnerProduct" tooltip="ip" color="#9b59d0" fillcolor="#9b59d024"]
      n0 -> n1 [label="64x10"]
    }
    <BLANKLINE>
    """
    if direction not in DIRECTIONS:
        raise SpecError(f"direction: expected {' or '.join(DIRECTIONS)}, got {direction!r}")
    style = with_keys("node", shape="box", style="rounded,filled", fontname="Helvetica")
    lines = [f"rankdir={quoted(direction)}", style]
    for i, node in enumerate(graph.nodes):
        colour = COLOURS[node.family]
        colours = {"color": colour, "fillcolor": f"{colour}24"}
        texts = {"label": "\n".join(node.lines), "tooltip": node.title or node.name}
        lines.append(with_keys(f"n{i}", **texts, **colours))
    for edge in graph.edges:
        label = {"label": edge.label} if edge.label else {}
        lines.append(with_keys(f"n{edge.source} -> n{edge.target}", **label))
    return digraph(graph.name or "net", lines)


def digraph(name: str, lines: Sequence[str]) -> str:
    """A graph of a name that holds these lines."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"digraph {quoted(name)} {{\n{body}}}\n"


def with_keys(what: str, **keys: str) -> str:
    """A node or an edge with what is told of it."""
    listed = " ".join(f"{key}={quoted(value)}" for key, value in keys.items())
    return f"{what} [{listed}]" if listed else what


def quoted(text: str) -> str:
    """A text in quotes as DOT reads it; what cannot be printed is a question mark."""
    return '"' + "".join(ESCAPES.get(c, c if c.isprintable() else "?") for c in text) + '"'
