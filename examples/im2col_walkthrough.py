"""Draw how a convolution becomes a product of matrices: image, windows, columns, product, and back.

    python examples/im2col_walkthrough.py [FOLDER]        default: ./im2col_walkthrough

Writes PNG pictures (extra `pictures`: matplotlib). Every number in them is minicaffe's own, and has been
checked against loops that do nothing but follow the definition.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
from drawing import DARK, MINUS, PALE, arrow, canvas, cell, frame, grid, text

import minicaffe

CHANNELS = ("#cfe3f7", "#fbe0c4")  # cells of channel 0 and 1
SAMPLES = ("#d8efd3", "#ecd9f2")
WINDOWS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd")  # one colour a window
KERNEL = 3
X = np.array(
    [
        [
            [[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8], [9, 7, 9, 3]],
            [[2, 7, 1, 8], [2, 8, 1, 8], [2, 8, 4, 5], [9, 0, 4, 5]],
        ]
    ]
)
WEIGHT = np.array(
    [
        [[[1, 0, -1], [1, 0, -1], [1, 0, -1]], [[0, 1, 0], [1, -4, 1], [0, 1, 0]]],
        [[[0, 0, 0], [0, 1, 0], [0, 0, 0]], [[1, 1, 1], [0, 0, 0], [-1, -1, -1]]],
    ]
)
PLACES = list(itertools.product(range(2), range(2)))  # of the windows: (oy, ox)
ROWS = list(itertools.product(range(2), range(KERNEL), range(KERNEL)))  # of the columns: (c, i, j)


def main(folder: Path) -> int:
    try:
        import matplotlib
    except ImportError:
        print("the pictures need matplotlib: pip install -e '.[pictures]'", file=sys.stderr)
        return 2
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.family": "DejaVu Sans", "savefig.dpi": 110})
    columns = minicaffe.im2col(X, KERNEL)[0]
    product = WEIGHT.reshape(2, -1) @ columns
    check(columns, product)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "1_image_and_filters": image_and_filters,
        "2_windows": windows,
        "3_columns": lambda: columns_of(columns, 1),
        "4_product": lambda: falk(columns, product, 1, 2),
        "5_back": back,
        "6_layouts": layouts,
    }
    from matplotlib import pyplot

    for name, draw in pictures.items():
        figure = draw()
        figure.savefig(folder / f"{name}.png")
        pyplot.close(figure)
        print(folder / f"{name}.png")
    return 0


def check(columns: np.ndarray, product: np.ndarray) -> None:
    """Raise unless im2col and the product are what the definitions say."""
    for r, (c, i, j) in enumerate(ROWS):
        for p, (oy, ox) in enumerate(PLACES):
            same(columns[r, p], X[0, c, oy + i, ox + j], f"im2col row {r}, column {p}")
    for f, (p, (oy, ox)) in itertools.product(range(2), enumerate(PLACES)):
        direct = 0
        for c, i, j in ROWS:
            direct += WEIGHT[f, c, i, j] * X[0, c, oy + i, ox + j]
        same(product[f, p], direct, f"filter {f} at ({oy}, {ox})")


def same(got: object, wanted: object, what: str) -> None:
    if not np.array_equal(got, wanted):
        raise SystemExit(f"{what}: minicaffe gives {got}, the definition {wanted}")


def image_and_filters():
    figure, axes = canvas(19, 7.4, "An image x (2, 4, 4) and two filters (2, 3, 3)")
    for c in range(2):
        grid(axes, 0.6 + 5 * c, 2.4, X[0, c], CHANNELS[c], title=f"x, channel {c}")
    for f, c in itertools.product(range(2), range(2)):
        title = f"filter {f}, channel {c}"
        grid(axes, 11.6 + 3.8 * c, 1.7 + 2.9 * f, WEIGHT[f, c], CHANNELS[c], 0.7, title)
    return figure


def windows():
    figure, axes = canvas(
        22.4, 11.6, "The window slides: at each place it sees 3 x 3 pixels of every channel"
    )
    for p, (oy, ox) in enumerate(PLACES):
        text(axes, 4 + 5.2 * p, 1.5, f"window {p}: oy = {oy}, ox = {ox}", 11, color=WINDOWS[p])
        for c in range(2):
            pixels(axes, 2 + 5.2 * p, 2 + 4.8 * c, c, p)
    for c in range(2):
        text(axes, 1.7, 4 + 4.8 * c, f"channel {c}", 10, ha="right")
    return figure


def columns_of(columns: np.ndarray, shown: int):
    figure, axes = canvas(
        20.5, 20.4, "im2col: every window becomes a column of 2 x 3 x 3 = 18 numbers"
    )
    for c in range(2):
        middle = 1.6 + 9 * c + 4.5
        pixels(axes, 0.6, middle - 2, c, shown)
        text(axes, 2.6, middle - 2.4, f"window {shown}, channel {c}", 11)
        arrow(axes, (4.9, middle), (6.6, middle), WINDOWS[shown])
        axes.plot(
            [7, 6.8, 6.8, 7], middle + np.array([-4.4, -4.4, 4.4, 4.4]), color=WINDOWS[shown], lw=2
        )
    matrix(axes, 9.9, 1.6, columns, shown)
    for r, (c, i, j) in enumerate(ROWS):
        text(axes, 9.7, 2.1 + r, f"c={c} i={i} j={j}", 9, ha="right")
    notes = ["row r = (c · 3 + i) · 3 + j", "column p = oy · 2 + ox", "holds x[c, oy + i, ox + j]"]
    for k, line in enumerate(notes):
        text(axes, 14.4, 9.6 + k, line, 11, ha="left")
    return figure


def falk(columns: np.ndarray, product: np.ndarray, f: int, p: int):
    figure, axes = canvas(
        29.5, 25.2, "weight x columns = output: a number is one row times one column"
    )
    for c in range(2):
        pixels(axes, 3 + 6 * c, 3, c, p)
        text(axes, 5 + 6 * c, 2.5, f"window {p}, channel {c}", 12)
        title = f"filter {f}, channel {c}"
        grid(axes, 3.5 + 6 * c, 12.6, WEIGHT[f, c], CHANNELS[c], title=title)
    arrow(axes, (13.6, 5), (21.2, 5), WINDOWS[p])
    text(axes, 17, 4.5, "im2col", 12)
    arrow(axes, (8, 16), (8, 19.2), DARK)
    text(axes, 8.3, 17.4, "a filter, one row", 12, ha="left")
    matrix(axes, 21.6, 1.6, columns, p)
    text(axes, 21.3, 10.6, "columns (18, 4)", 12, ha="right")
    for g, q in itertools.product(range(2), range(4)):
        colour = "#fff2a8" if (g, q) == (f, p) else PALE
        cell(axes, 21.6 + q, 20.2 + g, 1, product[g, q], colour, True)
    for g, (r, (c, _, _)) in itertools.product(range(2), enumerate(ROWS)):
        value = WEIGHT[g].flat[r]
        cell(axes, 2.6 + r, 20.2 + g, 1, value, CHANNELS[c] if g == f else PALE, g == f)
    frame(axes, 2.6, 20.2 + f, 18, 1, WINDOWS[p])
    frame(axes, 21.6 + p, 20.2 + f, 1, 1, WINDOWS[p])
    for g in range(2):
        text(axes, 2.4, 20.7 + g, f"filter {g}", 11, ha="right")
        grid(axes, 26.8, 18.2 + 3.2 * g, product[g].reshape(2, 2), PALE, title=f"y, filter {g}")
    text(axes, 11.6, 22.7, "weight (2, 18)", 12)
    text(axes, 23.6, 22.7, "output (2, 4)", 12)
    arrow(axes, (25.7, 21.2), (26.6, 20.8), DARK)
    pairs = zip(WEIGHT[f].flat, columns[:, p], strict=True)
    terms = " + ".join(f"{w} · {value}" for w, value in pairs if w)
    formula = f"filter {f}, window {p}:   {terms} = {product[f, p]}"
    text(axes, 2.6, 24.3, formula.replace("+ -", "- ").replace("-", MINUS), 13, ha="left")
    return figure


def back():
    counts = minicaffe.col2im(np.ones((1, 18, 4), int), X.shape, KERNEL)[0, 0]
    for y, x in itertools.product(range(4), range(4)):
        seen = sum(oy <= y < oy + KERNEL and ox <= x < ox + KERNEL for oy, ox in PLACES)
        same(counts[y, x], seen, f"windows over pixel ({y}, {x})")
    figure, axes = canvas(15.6, 7, "col2im adds each entry to the pixel it came from")
    grid(axes, 0.6, 2.2, np.full((4, 4), "", object), "white", title="four windows over the pixels")
    for p, (oy, ox) in enumerate(PLACES):
        shift = 0.06 * p - 0.09
        frame(axes, 0.6 + ox + shift, 2.2 + oy + shift, KERNEL, KERNEL, WINDOWS[p])
        text(axes, 5.3, 3 + 0.8 * p, f"window {p}", 11, ha="left", color=WINDOWS[p])
    arrow(axes, (8, 4.2), (10, 4.2), DARK)
    grid(axes, 10.8, 2.2, counts, CHANNELS[0], title="col2im of ones: how many see it")
    return figure


def layouts():
    x = np.arange(1, 25).reshape(2, 1, 3, 4)
    found = {name: minicaffe.im2col(x, 2, layout=name) for name in ("caffe", "columns", "rows")}
    elements, places = itertools.product(range(2), range(2)), itertools.product(range(2), range(3))
    for s, (r, (i, j)), (p, (oy, ox)) in itertools.product(
        range(2), enumerate(elements), enumerate(places)
    ):
        pixel = x[s, 0, oy + i, ox + j]
        same(found["caffe"][s, r, p], pixel, "layout caffe")
        same(found["columns"][r, 6 * s + p], pixel, "layout columns")
        same(found["rows"][6 * s + p, r], pixel, "layout rows")
    figure, axes = canvas(
        34, 15.4, "Two images (1, 3, 4), window 2 x 2: the same columns in three layouts"
    )
    for s in range(2):
        grid(axes, 0.6, 3 + 5.4 * s, x[s, 0], SAMPLES[s], title=f"image {s}")
        grid(axes, 6.4, 2.5 + 5.4 * s, found["caffe"][s], SAMPLES[s])
    colours = np.repeat(SAMPLES, 6)
    grid(axes, 14.2, 5.2, found["columns"], np.tile(colours, (4, 1)))
    grid(axes, 28.2, 1.6, found["rows"], np.tile(colours[:, None], (1, 4)))
    for left, name, what in (
        (9.4, "caffe: (n, R, P)", "a matrix an image"),
        (20.2, "columns: (R, n P)", "a column a window"),
        (30.2, "rows: (n P, R)", "a row a window"),
    ):
        text(axes, left, 14.1, name, 12, weight="bold")
        text(axes, left, 14.8, what, 11)
    return figure


def pixels(axes, x: float, y: float, c: int, p: int) -> None:
    """A channel with what window p sees of it."""
    oy, ox = PLACES[p]
    for (i, j), value in np.ndenumerate(X[0, c]):
        seen = oy <= i < oy + KERNEL and ox <= j < ox + KERNEL
        cell(axes, x + j, y + i, 1, value, CHANNELS[c] if seen else PALE, seen)
    frame(axes, x + ox, y + oy, KERNEL, KERNEL, WINDOWS[p])


def matrix(axes, x: float, y: float, columns: np.ndarray, shown: int) -> None:
    """The column matrix, one column of it framed."""
    for (r, p), value in np.ndenumerate(columns):
        cell(axes, x + p, y + r, 1, value, CHANNELS[ROWS[r][0]] if p == shown else PALE, p == shown)
    frame(axes, x + shown, y, 1, len(columns), WINDOWS[shown])
    for p in range(columns.shape[1]):
        text(axes, x + p + 0.5, y - 0.3, f"p={p}", 9, color=WINDOWS[p])


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:]) if sys.argv[1:] else Path("im2col_walkthrough")))
