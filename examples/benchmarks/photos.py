"""`minicaffe predict` on drawn photographs of digits: how often right, unsure, or wrong without a word.

    python examples/benchmarks/photos.py                       trains LeNet first, some 2 minutes
    python examples/benchmarks/photos.py --weights lenet_iter_10000.npz --each 50 --into /tmp

The digits are MNIST's test images, which the net has not been trained on. Sure and wrong: a wrong class with
a probability of at least 90 %, and no note that says unsure. Needs the extra `image`.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import photographs
from machine import describe, free_environment
from measure import ROOT, parsed, parser, write
from PIL import Image

MODEL = ROOT / "models" / "lenet.yaml"
COUNTS = ("pictures", "right", "unsure", "wrong_unsaid", "sure_and_wrong")
SEED, UNSEEN_SEED = 1, 2

Drawn = Sequence[tuple[str, Path]]  # condition, file


def draw(folder: Path, images: np.ndarray, labels: np.ndarray, each: int) -> Drawn:
    """`each` photographs of every condition as LABEL-NUMBER.png, twice as many of those in UNSEEN."""
    drawn = []
    for index, condition in enumerate(photographs.SCENES):
        unseen = condition in photographs.UNSEEN
        for i in range(2 * each if unseen else each):
            rng = np.random.default_rng([UNSEEN_SEED if unseen else SEED, index, i])
            k = int(rng.integers(len(images)))
            path = folder / f"{labels[k]}-{len(drawn)}.png"
            photographs.photograph(condition, images[k, 0], rng).save(path)
            drawn.append((condition, path))
    return drawn


def predict(weights: Path, drawn: Drawn) -> list[str]:
    """What `minicaffe predict` prints, a line a picture."""
    command = [sys.executable, "-m", "minicaffe", "predict", str(MODEL)]
    command += [str(path) for _, path in drawn]
    command += ["--weights", str(weights), "--device", "cpu"]
    environment = free_environment() | {"PYTHONPATH": str(ROOT)}
    here = drawn[0][1].parent
    return subprocess.check_output(command, env=environment, cwd=here, text=True).splitlines()


def count(drawn: Drawn, lines: Sequence[str]) -> dict[str, dict[str, int]]:
    """By condition, the sums of COUNTS.

    >>> count([("a sheet", Path("7-0.png"))], ["7-0.png: 1 (93.10 %), 7 (6.85 %) [inverted]"])
    {'a sheet': {'pictures': 1, 'right': 0, 'unsure': 0, 'wrong_unsaid': 1, 'sure_and_wrong': 1}}
    """
    counts: dict[str, dict[str, int]] = {}
    for (condition, path), line in zip(drawn, lines, strict=True):
        found = re.fullmatch(r".*?(\d)-\d+\.png: (\d) \(([\d.]+) %\)(.*)", line)
        assert found is not None and line.startswith(f"{path}: "), line
        right = found[1] == found[2] and condition not in photographs.NO_DIGIT
        unsure = "[unsure: " in found[4] or "nothing in it" in found[4]
        wrong = not right and not unsure
        values = (True, right, unsure, wrong, wrong and float(found[3]) >= 90)
        sums = counts.setdefault(condition, dict.fromkeys(COUNTS, 0))
        for name, value in zip(COUNTS, values, strict=True):
            sums[name] += value
    return counts


def look(drawn: Drawn, path: Path) -> None:
    """A sheet of the photographs, ten a row, each above what the net gets of it."""
    from minicaffe.tools.data.pictures import prepared, read

    rows = (len(drawn) + 9) // 10
    sheet = Image.new("RGB", (10 * 80, rows * 190))
    for i, (_, file) in enumerate(drawn):
        at = i % 10 * 80, i // 10 * 190
        sheet.paste(Image.open(file).resize((78, 104)), at)
        pixels, _ = prepared(read(str(file)), (1, 28, 28), True, str(file))
        sheet.paste(Image.fromarray(pixels[0]).resize((78, 78)), (at[0], at[1] + 106))
    sheet.save(path, quality=80)


def train(folder: Path) -> Path:
    """LeNet's weights, trained to the end."""
    words = ["-m", "minicaffe", "train", str(MODEL), "--run", "run"]
    subprocess.check_call([sys.executable, *words], cwd=folder)
    return folder / "run" / "lenet_iter_10000.npz"


def main() -> None:
    words = parser(__doc__)
    words.add_argument("--weights", type=Path, help="of models/lenet.yaml; default: train it")
    words.add_argument("--each", type=int, default=5, help="pictures a condition; default: 5")
    words.add_argument("--look", type=Path, metavar="JPG", help="save the pictures on one sheet")
    args = parsed(words)
    from minicaffe.tools.data import datasets

    digits = datasets.load("mnist", "test", beside=MODEL.parent)
    report = {"machine": describe(), "model": MODEL.name, "quick": args.quick}
    report["digits"] = "drawn" if digits.warning else "mnist"
    with tempfile.TemporaryDirectory() as scratch:
        weights = args.weights.resolve() if args.weights else train(Path(scratch))
        drawn = draw(Path(scratch), digits.images, digits.labels, args.each)
        if args.look:
            look(drawn, args.look)
        counts = count(drawn, predict(weights, drawn))
    for condition, sums in counts.items():
        print(f"{condition}: " + ", ".join(f"{sums[key]} {key}" for key in COUNTS))
    report["runs"] = {"now": {"conditions": counts}}
    write(args.into / "photos_cpu.json", report)


if __name__ == "__main__":
    main()
