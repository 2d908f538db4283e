"""A line chart as SVG, for a picture where matplotlib is not installed."""

from __future__ import annotations

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
) -> str:
    """Lines over a logarithmic x axis, as the text of an SVG file; `mark` is an x drawn as a vertical line.

    It is readable on a light and a dark ground: the picture has a ground of its own.

    >>> chart = line_chart([0.1, 1.0], {"loss": [2.0, 1.0]}, "a & b", "rate")
    >>> chart.startswith("<svg"), "a &amp; b" in chart
    (True, True)
    """
    across = np.log10(np.asarray(x, float))
    values = np.concatenate([np.asarray(line, float) for line in lines.values()])
    low, high = float(values.min()), float(values.max())
    low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
    start, end = float(across[0]), float(across[-1])
    end = end if end > start else start + 1

    def at(place: float) -> float:
        return LEFT + (place - start) / (end - start) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    floor = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"'
        f' height="{HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" fill="#111111">{escape(title)}</text>',
    ]
    for power in range(math.ceil(start), math.floor(end) + 1):
        parts.append(
            f'<path d="M{at(power):.1f} {TOP}V{floor}" stroke="#e3e7eb"/>'
            f'<text x="{at(power):.1f}" y="{floor + 18}" text-anchor="middle">{10.0**power:g}</text>'
        )
    for share in range(5):
        value = low + (high - low) * share / 4
        parts.append(
            f'<path d="M{LEFT} {up(value):.1f}H{WIDTH - RIGHT}" stroke="#e3e7eb"/>'
            f'<text x="{LEFT - 8}" y="{up(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        )
    for i, (name, line) in enumerate(lines.items()):
        points = " ".join(
            f"{at(a):.1f},{up(float(v)):.1f}" for a, v in zip(across, line, strict=True)
        )
        colour = COLOURS[i % len(COLOURS)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{WIDTH - RIGHT}" y="{TOP + 16 * (i + 1)}" text-anchor="end" fill="{colour}">'
            f"{escape(name)}</text>"
        )
    if mark is not None and start <= math.log10(mark) <= end:
        place = at(math.log10(mark))
        parts.append(
            f'<path d="M{place:.1f} {TOP}V{floor}" stroke="#d1495b" stroke-dasharray="5 4"/>'
            f'<text x="{place + 5:.1f}" y="{TOP + 14}" fill="#d1495b">{mark:.2g}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_name)}</text>'
    )
    return "\n".join([*parts, "</svg>", ""])
