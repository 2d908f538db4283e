"""What the seven teaching examples share: options, digits, a trained LeNet, pictures, the last line."""

import argparse
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np

import minicaffe
from minicaffe.tools.data import datasets

LENET = Path(__file__).parent.parent / "models" / "lenet.yaml"
CPU = {
    "device": "cpu",
    "deterministic": True,
}  # blobs are NumPy arrays; a run gives what the last gave


def options(
    doc: str, iterations: int, small: int, draws: bool = True, **more: object
) -> argparse.Namespace:
    """The options of an example: `doc` begins with what it does, `small` is its --iterations with --small.

    `more` are further counts, numbers or texts, by name, with their defaults; --out is for those that draw.
    """
    parser = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    parser.add_argument("--iterations", type=count, help=f"of training (default {iterations})")
    parser.add_argument("--small", action="store_true", help="few iterations, few digits: a glance")
    if draws:
        parser.add_argument(
            "--out", type=Path, default=Path(), help="its picture's folder (default .)"
        )
    for name, value in more.items():
        several = isinstance(value, tuple)
        kind = type(value[0] if several else value)
        kind, nargs = count if kind is int else kind, "+" if several else None
        parser.add_argument(
            f"--{name}", type=kind, nargs=nargs, default=value, help=f"default {value}"
        )
    given = parser.parse_args()
    given.iterations = given.iterations or (small if given.small else iterations)
    return given


def count(text: str) -> int:
    """A number of at least 1, for an option."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def digits(split: str, count: int, classes: range = range(10)) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` digits of some classes: images (count, 1, 28, 28) from 0 to 1, labels (count,).

    Of MNIST; where it is not to be had, of the drawn digits, which is said once.
    """
    found = datasets.load("mnist", split)
    tell(found)
    wanted = np.flatnonzero(np.isin(found.labels, classes))[:count]
    return found.images[wanted] / np.float32(256), found.labels[wanted].astype(int)


def tell(found: datasets.Dataset) -> None:
    """Say once which digits these are."""
    if not _told:
        print(f"digits: {found.warning or 'MNIST'}")
        _told.append(found.name)


_told: list[str] = []


def lenet(iterations: int) -> dict[str, np.ndarray]:
    """LeNet's weights, by name, after so many iterations on the digits."""
    solver = minicaffe.Solver(LENET, display=0, test_interval=0, **CPU)
    tell(solver.net.layers["mnist"].dataset)
    solver.step(iterations)
    accuracy = np.mean([solver.test_net.forward()["accuracy"] for _ in range(10)])
    print(f"LeNet after {iterations} iterations: accuracy {accuracy:.3f} on 1000 test digits")
    return solver.net.weights()


def pyplot():
    """matplotlib's pyplot, drawing into files; None, and a line that says so, where it is missing."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: it needs matplotlib: pip install -e '.[pictures]'", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9, "savefig.dpi": 80})
    from matplotlib import pyplot

    return pyplot


def save(figure, folder: Path, name: str) -> None:
    """Write a figure as a PNG of 128 colours, which is small, and say so."""
    from matplotlib import pyplot
    from PIL import Image  # comes with matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / name, bbox_inches="tight", pad_inches=0.05)
    pyplot.close(figure)
    with Image.open(folder / name) as picture:
        picture.convert("RGB").quantize(128).save(folder / name, optimize=True)
    print(f"drew {name}")


def show(axes, image: np.ndarray, title: str = "", **more: object) -> None:
    """A picture (h, w) or (h, w, 3) without ticks."""
    axes.imshow(image, **{"cmap": "gray", "interpolation": "nearest"} | more)
    axes.set_title(title, fontsize=9)
    axes.set(xticks=[], yticks=[])


def table(head: list[str], rows: list[list[object]]) -> None:
    """Print rows under a head; numbers with three places."""
    cells = [[f"{c:.3f}" if isinstance(c, float) else str(c) for c in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *rest in cells:
        line = [
            first.ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True)),
        ]
        print("  ".join(line))


def end() -> None:
    """The last line: what it took, the same beside other work as alone, and on what."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    seconds = time.process_time()
    print(
        f"{seconds:.0f} s of processor time; {name}, {os.cpu_count()} cores, NumPy {np.__version__}"
    )
