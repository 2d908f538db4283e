"""A new user's first minutes: install minicaffe, train on own pictures, let it answer, write the report.

    python examples/benchmarks/newcomer.py            some 5 minutes, with a network for pip
    python examples/benchmarks/newcomer.py --quick    a few pictures, one epoch, this interpreter

A wheel of this checkout is installed into a fresh virtual environment, once plain and once with the extra
`cpu`. In an empty folder the three commands of README's "Your own pictures" are run as they stand there, on
600 drawn JPEGs, a sixth of which this script keeps: it compares the accuracy that the training printed, of the
part it held out itself, with the share of right answers on those it never saw. The two must agree within
2.5 standard errors. Goes to results/newcomer.json.
"""

import argparse
import csv
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import describe, free_environment, warn_if_busy
from measure import ROOT, digits, write

HERE = Path(__file__).resolve().parent
CLASSES = ("discs", "stars", "triangles")
EACH = 200  # pictures of a class
KEPT = 6  # one of so many is kept
SIDES = (120, 241)  # pixels, of JPEGs
ERRORS = 2.5  # standard errors
FILES = ("model.yaml", "log.jsonl", "*_best.npz", "report.html")  # of the run's folder
EXTRAS = {"plain NumPy": "image", "[cpu]": "cpu,image"}
OTHERS = ("PYTHON", "MINICAFFE_", "PIP_FIND_LINKS", "VIRTUAL_ENV")  # what a new user has not set


def commands() -> list[list[str]]:
    """The three commands of README, word by word."""
    text = (ROOT / "README.md").read_text()
    (page,) = re.findall(r"## Your own pictures, in three commands\n(.*?)\n## ", text, re.S)
    block = re.findall(r"```\w*\n(.*?)```", page, re.S)[0]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]


def draw(kind: str, random: np.random.Generator) -> "Image.Image":  # noqa: F821
    """A dark disc, star or triangle on light ground: anywhere, turned, blurred, with noise."""
    from PIL import Image, ImageDraw, ImageFilter

    w, h = (int(side) for side in random.integers(*SIDES, 2))
    ground, ink = random.integers(120, 256, 3), random.integers(0, 100, 3)
    image = Image.new("RGB", (w, h), tuple(map(int, ground)))
    r, turn = min(w, h) * random.uniform(0.25, 0.4), random.uniform(0, 2 * np.pi)
    x, y = random.uniform(r, w - r), random.uniform(r, h - r)
    if kind == "discs":
        ImageDraw.Draw(image).ellipse([x - r, y - r, x + r, y + r], tuple(map(int, ink)))
    else:
        count = {"triangles": 3, "stars": 10}[kind]
        reach = [r if count == 3 or i % 2 == 0 else 0.4 * r for i in range(count)]
        angles = [turn + 2 * np.pi * i / count for i in range(count)]
        corners = [
            (x + a * np.cos(b), y + a * np.sin(b)) for a, b in zip(reach, angles, strict=True)
        ]
        ImageDraw.Draw(image).polygon(corners, tuple(map(int, ink)))
    image = image.filter(ImageFilter.GaussianBlur(random.uniform(0, 1.5)))
    noise = random.normal(0, random.uniform(0, 12), (h, w, 3))
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))


def pictures(folder: Path, each: int, seed: int) -> dict[str, str]:
    """Draw photos/CLASS/*.jpg and new_pictures/*.jpg; returns the classes of the latter, by name."""
    random = np.random.default_rng(seed)
    kept = each * len(CLASSES) // KEPT
    places = random.permutation(each * len(CLASSES))
    answers = {}
    for place, name in zip(places, CLASSES * each, strict=True):
        file = folder / "photos" / name / f"{place:04d}.jpg"
        if place < kept:
            file = folder / "new_pictures" / f"{place:04d}.jpg"
            answers[file.name] = name
        file.parent.mkdir(parents=True, exist_ok=True)
        draw(name, random).save(file, quality=85)
    return answers


def wheel(folder: Path) -> Path:
    """A wheel of this checkout, built from a copy, which leaves nothing behind."""
    copy = folder / "clone"
    for name in ("minicaffe", "models"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignore)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(copy)]
    subprocess.run(build, check=True)
    shutil.rmtree(copy)
    return next(folder.glob("*.whl"))


def environment(home: Path) -> dict[str, str]:
    """That of a new user: nothing of this checkout's, and a cache folder of its own, pip's too."""
    own = {k: v for k, v in free_environment().items() if not k.startswith(OTHERS)}
    own |= {"XDG_CACHE_HOME": str(home / "cache"), "MINICAFFE_OFFLINE": "1"}
    return own | {"PATH": f"{home / 'venv' / 'bin'}{os.pathsep}{own['PATH']}"}


def install(home: Path, package: str) -> dict[str, str]:
    """Install into a fresh virtual environment; returns the versions of what is there."""
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    pip, given = [str(home / "venv" / "bin" / "python"), "-m", "pip"], environment(home)
    subprocess.run([*pip, "install", "-q", package], cwd=home, env=given, check=True)
    listed = [*pip, "list", "--format", "json"]
    text = subprocess.run(listed, cwd=home, env=given, stdout=subprocess.PIPE, check=True).stdout
    return {one["name"]: one["version"] for one in json.loads(text)}


def journey(folder: Path, words: list[list[str]], given: dict[str, str] | None) -> dict:
    """Run the three commands in a folder; their seconds, and what training said of itself."""
    seconds, printed = {}, ""
    for command in words:
        name = next(word for word in command if word in ("train", "predict", "report"))
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True)
        seconds[name] = digits(time.perf_counter() - start)
        if done.returncode:
            raise SystemExit(f"{shlex.join(command)}: exit code {done.returncode}: {done.stderr}")
        printed += done.stderr + done.stdout if name == "train" else ""
    said = re.search(r"^accuracy +([\d.]+)$", printed, re.M)
    held_out = re.search(r"(\d+) held out for tests", printed)
    if said is None or held_out is None:
        raise SystemExit(f"the training told no accuracy of pictures that it held out: {printed}")
    return {"seconds": seconds, "accuracy": float(said[1]), "held_out": int(held_out[1])}


def check(folder: Path, answers: dict[str, str]) -> float:
    """Look for the files; returns the share of right answers on pictures that the net never saw."""
    for name in FILES:
        if not any(path.stat().st_size for path in (folder / "runs" / "photos").glob(name)):
            raise SystemExit(f"runs/photos/{name} is missing or empty")
    with (folder / "answers.csv").open(newline="") as table:
        first = {
            Path(r["image"]).name: r["name"] for r in csv.DictReader(table) if r["rank"] == "1"
        }
    if first.keys() != answers.keys():
        raise SystemExit(f"answers.csv answers {len(first)} pictures, not {len(answers)}")
    return float(np.mean([first[name] == answers[name] for name in answers]))


def agree(shares: tuple[float, float], counts: tuple[int, int]) -> bool:
    """Whether two shares of right answers differ by no more than chance would have them.

    >>> agree((0.97, 0.95), (99, 100)), agree((0.97, 0.80), (99, 100))
    (True, False)
    """
    both = sum(s * n for s, n in zip(shares, counts, strict=True)) / sum(counts)
    error = math.sqrt(both * (1 - both) * sum(1 / n for n in counts))
    return abs(shares[0] - shares[1]) <= ERRORS * error + 1e-9


def measure(home: Path, extra: str | None, package: Path | None, each: int) -> dict:
    """A new user's whole way in an empty folder, from `pip install` on, pictures not counted."""
    folder = home / "work"
    folder.mkdir(parents=True)
    answers, words = pictures(folder, each, seed=1), commands()
    start = time.perf_counter()
    found: dict = {}
    if extra is None:
        words = [[sys.executable, "-m", *one] for one in words]
        words[0] += ["--epochs", "1"]
        given = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    else:
        found["versions"] = install(home, f"{package}[{extra}]")
        given = environment(home)
        words = [[str(home / "venv" / "bin" / one[0]), *one[1:]] for one in words]
    installed = digits(time.perf_counter() - start)
    found |= journey(folder, words, given)
    found["seconds"] = {"install": installed} | found["seconds"]
    found["seconds"]["all"] = digits(time.perf_counter() - start)
    found["never_seen"] = len(answers)
    found["accuracy"] = {"held_out": found["accuracy"], "never_seen": check(folder, answers)}
    shares = (found["accuracy"]["held_out"], found["accuracy"]["never_seen"])
    if not agree(shares, (found["held_out"], found["never_seen"])):
        raise SystemExit(f"{shares[0]} held out and {shares[1]} never seen are too far apart")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="does it work? keeps no result")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        if args.quick:
            print(json.dumps(measure(home, None, None, each=12)))
            return
        warn_if_busy()
        found = {"machine": describe(), "pictures": EACH * len(CLASSES), "runs": {}}
        package = wheel(home)
        for title, extra in EXTRAS.items():
            found["runs"][title] = measure(home / extra, extra, package, EACH)
            print(title, json.dumps(found["runs"][title]), flush=True)
    write(HERE / "results" / "newcomer.json", found)


if __name__ == "__main__":
    main()
