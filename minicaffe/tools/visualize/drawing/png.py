"""A layout as PNG, drawn by Pillow, on white."""

from __future__ import annotations

import io
from typing import Any

from minicaffe.errors import DataError, ShapeError
from minicaffe.tools.visualize.drawing import text
from minicaffe.tools.visualize.drawing.graph import COLOURS
from minicaffe.tools.visualize.drawing.layout import Layout
from minicaffe.tools.visualize.drawing.svg import curve, head
from minicaffe.tools.visualize.drawing.ways import Point

SCALE = 2  # pixels for one of the layout's
MOST = 1 << 26  # pixels
INK, LINE, FAINT = (27, 31, 36), (124, 127, 131), (84, 88, 94)


def png(laid: Layout, scale: int = SCALE) -> bytes:
    """The bytes of a PNG file. Raises DataError without Pillow, ShapeError for a picture that is too large."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise DataError(
            "a PNG needs Pillow: pip install 'minicaffe[image]'; SVG and DOT need nothing"
        ) from None
    size = round(laid.width * scale), round(laid.height * scale)
    if size[0] * size[1] > MOST:
        if scale > 1:
            return png(laid, scale - 1)
        raise ShapeError(
            f"a PNG of {size[0]} x {size[1]} pixels is too large; SVG has no such limit"
        )
    image = Image.new("RGB", size, "white")
    _lines(image, laid, scale)
    draw = ImageDraw.Draw(image)
    for number in range(len(laid.boxes)):
        _box(draw, laid, number, scale)
    for way in laid.ways:
        if way.label:
            halo: dict[str, Any] = {"stroke_width": scale, "stroke_fill": "white"}
            font = _font(text.LABEL * scale)
            draw.text(_scaled(way.at, scale), _plain(way.label), INK, font, "ls", **halo)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _lines(image: Any, laid: Layout, scale: int) -> None:
    """Arrows, each drawn twice as large on a mask of its own size and made smaller: their edges are smooth."""
    from PIL import Image, ImageDraw

    for way in laid.ways:
        points = [
            _scaled(point, scale)
            for one in curve(way.points, laid.direction == "TB")
            for point in _along(*one)
        ]
        corners = [_scaled(point, scale) for point in head(way, laid.direction == "TB")]
        xs, ys = zip(*points, *corners, strict=True)
        left, top = int(min(xs)) - 4, int(min(ys)) - 4
        size = int(max(xs)) - left + 5, int(max(ys)) - top + 5
        mask = Image.new("L", (2 * size[0], 2 * size[1]))
        draw = ImageDraw.Draw(mask)
        moved = [[(2 * (x - left), 2 * (y - top)) for x, y in one] for one in (points, corners)]
        draw.line(moved[0], 255, round(2.6 * scale), joint="curve")
        draw.polygon(moved[1], 255)
        image.paste(LINE, (left, top), mask.reduce(2))


def _box(draw: Any, laid: Layout, number: int, scale: int) -> None:
    node, box = laid.graph.nodes[number], laid.boxes[number]
    colour = COLOURS[node.family]
    hue = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    pale = tuple(round(255 - 0.14 * (255 - part)) for part in hue)
    corners = (
        _scaled((box.x, box.y), scale),
        _scaled((box.x + box.width, box.y + box.height), scale),
    )
    draw.rounded_rectangle(corners, 6 * scale, pale, colour, round(1.4 * scale))
    heights = text.heights(len(node.lines))
    x, y = box.x + box.width / 2, box.y + 5 + (box.height - 11 - sum(heights)) / 2
    for i, (line, size, high) in enumerate(
        zip(node.lines, text.sizes(len(heights)), heights, strict=True)
    ):
        y += high
        bold = {"stroke_width": 0.35 * scale, "stroke_fill": INK} if i == 0 else {}
        at, said = _scaled((x, y - 3), scale), _plain(text.shown(line))
        draw.text(at, said, FAINT if i > 1 else INK, _font(size * scale), "ms", **bold)


def _font(size: float) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _plain(said: str) -> str:
    """In characters that the font has."""
    said = said.replace("…", "...")
    return said.encode("ascii", "replace").decode()


def _scaled(point: Point, scale: int) -> Point:
    return point[0] * scale, point[1] * scale


def _along(start: Point, a: Point, b: Point, end: Point) -> list[Point]:
    """Points of a Bezier curve."""
    found = []
    for i in range(17):
        t = i / 16
        parts = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
        xy = [
            sum(p * one[axis] for p, one in zip(parts, (start, a, b, end), strict=True))
            for axis in (0, 1)
        ]
        found.append((xy[0], xy[1]))
    return found
