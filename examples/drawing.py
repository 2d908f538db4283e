"""Cells with numbers, frames and arrows: what im2col_walkthrough.py draws with (extra `pictures`).

The unit of a picture is a cell; x goes to the right, y down. matplotlib is imported when it is first
used.
"""

import numpy as np

PALE, DARK = "#f4f4f4", "#333333"
MINUS = "\N{MINUS SIGN}"


def canvas(width: float, height: float, title: str):
    """A figure whose unit is a cell, y downwards."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(0.46 * width, 0.46 * height))
    figure.subplots_adjust(0, 0, 1, 1)
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.axis("off")
    text(axes, width / 2, 0.4, title, 13, weight="bold")
    return figure, axes


def text(axes, x: float, y: float, what: object, size: float, ha: str = "center", **more) -> None:
    axes.text(x, y, str(what), fontsize=size, ha=ha, va="center", **{"color": DARK} | more)


def cell(axes, x: float, y: float, size: float, value: object, colour: str, strong: bool) -> None:
    """A square with a number."""
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle((x, y), size, size, facecolor=colour, edgecolor="#999999", linewidth=0.7)
    )
    shown = str(value).replace("-", MINUS)
    text(
        axes, x + size / 2, y + size / 2, shown, 11 * size**0.5, color=DARK if strong else "#aaaaaa"
    )


def frame(axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=3))


def grid(
    axes, x: float, y: float, values: np.ndarray, colours, size: float = 1, title: str = ""
) -> None:
    """A matrix of cells, of one colour or one each."""
    colours = np.broadcast_to(colours, values.shape)
    for (i, j), value in np.ndenumerate(values):
        cell(axes, x + j * size, y + i * size, size, value, colours[i, j], True)
    text(axes, x + values.shape[1] * size / 2, y - 0.3, title, 10)


def arrow(axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "lw": 2})
