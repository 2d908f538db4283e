"""A line chart as SVG, for a picture where matplotlib is not installed."""

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

import numpy as np

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS = ("#9aa5b1", "#1f6feb", "#d1495b", "#2a9d5c")


def line_chart(
    x: Sequence[float] | np.ndarray,
    lines: Mapping[str, Sequence[float] | np.ndarray],
    title: str,
    x_name: str,
    mark: float | None = None,
    *,
    logarithmic: bool = True,
    alone: bool = True,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    colours: Sequence[str] = COLOURS,
) -> str:
    """Lines over an x axis that rises, as the text of an SVG file; `mark` is an x drawn as a vertical line.

    A line joins its finite numbers; one number alone is a dot. The picture is readable on a light and a dark
    ground: if it is a file, `alone`, it has a ground of its own, else it takes its colours from the page.
    """
    width, height = size
    axis = np.asarray(x)
    across = np.log10(axis) if logarithmic else np.asarray(axis, float)
    start, end = float(across[0]), float(across[-1])
    end = end if end > start else start + 1
    drawn = {name: np.asarray(line, float) for name, line in lines.items()}
    values = np.concatenate(list(drawn.values()))
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    ink = "#111111" if alone else "currentColor"
    grid = f'stroke="{ink}" stroke-opacity=".12"'

    def at(place: float) -> float:
        return LEFT + (place - start) / (end - start) * (width - LEFT - RIGHT)

    def up(value: float) -> float:
        return height - BOTTOM - (value - low) / (high - low) * (height - TOP - BOTTOM)

    floor = height - BOTTOM
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="sans-serif" font-size="13" fill="{ink}"'
        f' style="max-width:100%" role="img">',
        *([ground] if alone else []),
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    whole = axis.dtype.kind in "iu"
    powers = range(math.ceil(start), math.floor(end) + 1)
    for place in powers if logarithmic else ticks(start, end, 1 if whole else 0):
        label = f"{10.0**place:g}" if logarithmic else f"{place:g}"
        parts.append(
            f'<path d="M{at(place):.1f} {TOP}V{floor}" {grid}/>'
            f'<text x="{at(place):.1f}" y="{floor + 18}" text-anchor="middle">{label}</text>'
        )
    for value in ticks(low, high):
        parts.append(
            f'<path d="M{LEFT} {up(value):.1f}H{width - RIGHT}" {grid}/>'
            f'<text x="{LEFT - 8}" y="{up(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for i, line in enumerate(drawn.values()):
        colour, finite = colours[i % len(colours)], np.isfinite(line)
        places = zip(across[finite], line[finite], strict=True)
        points = [f"{at(place):.1f},{up(value):.1f}" for place, value in places]
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        for cx, _, cy in (point.partition(",") for point in points if len(points) == 1):
            parts.append(f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}"/>')
    names = "&#8195;".join(
        f'<tspan fill="{colours[i % len(colours)]}">{escape(name)}</tspan>'
        for i, name in enumerate(drawn)
    )
    parts.append(f'<text x="{width - RIGHT}" y="24" text-anchor="end">{names}</text>')
    marked = math.inf if mark is None else math.log10(mark) if logarithmic else mark
    if mark is not None and start <= marked <= end:
        parts.append(
            f'<path d="M{at(marked):.1f} {TOP}V{floor}" stroke="#d1495b" stroke-dasharray="5 4"/>'
            f'<text x="{at(marked) + 5:.1f}" y="{TOP + 14}" fill="#d1495b">{mark:.2g}</text>'
        )
    below = f'x="{(LEFT + width - RIGHT) / 2}" y="{height - 12}"'
    parts.append(f'<text {below} text-anchor="middle">{escape(x_name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def ticks(low: float, high: float, least: float = 0.0) -> list[float]:
    """Some five round numbers from `low` to `high`, at least `least` apart.

    >>> ticks(0.13, 2.3), ticks(0, 300), ticks(0, 2, least=1)
    ([0.5, 1.0, 1.5, 2.0], [0.0, 100.0, 200.0, 300.0], [0.0, 1.0, 2.0])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(power * by for by in (1, 2, 5, 10) if power * by * 5 >= high - low)
    step = max(step, least)
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [round(float(step * n), 12) for n in numbers]


def thinned(lines: Mapping[str, np.ndarray], most: int = 500) -> np.ndarray:
    """Which points to draw of long lines over one x axis: about `most` of each, with all its highs and lows.

    >>> thinned({"loss": np.arange(6.0)}, most=4)
    array([0, 2, 3, 5])
    """
    chosen = [np.array([], int)]
    for line in lines.values():
        finite = np.flatnonzero(np.isfinite(line))
        if len(finite) > most:
            parts = np.array_split(finite, most // 2)
            finite = np.concatenate([p[[line[p].argmin(), line[p].argmax()]] for p in parts])
        chosen.append(finite)
    return np.unique(np.concatenate(chosen))
