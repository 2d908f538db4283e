"""What share of real files minicaffe reads: every prototxt of a folder of repositories, by kind.

python examples/caffe_models/share_read.py FOLDER [--own BVLC+caffe] [--into results/share_read.txt]

FOLDER holds a folder for each repository, with its prototxts where they lie there. Files that are equal to
another one, or to one of the repository --own, count once or not at all. A file is a solver, a net to train
(it has a loss, or layers of data), a net to deploy, or none of these: a label map, a template that a program
fills in, a part of a net. `read` means as it is: every type and key is known, and what Caffe passes over is
passed over; `converted` means that `minicaffe convert` writes it, with layers of unknown types as they are.
`built`: the shapes of a net to deploy are known, from its inputs to its outputs. A solver is read
with the net that it names, where that is in the repository.
"""

import argparse
import hashlib
import logging
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from minicaffe import Net, caffe
from minicaffe.core.config.model import model
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import MinicaffeError
from minicaffe.interop.caffe.model import read_text
from minicaffe.interop.caffe.unknown import with_unknown

KINDS = ("deploy", "train", "solver")
DATA = re.compile(r'type:\s*"?\w*(Data|DATA|_data)"?\s')
LOSS = re.compile(r'type:\s*"?\w*(Loss\w*|LOSS)"?\s')
SOLVER = re.compile(r"^\s*(base_lr|lr_policy|train_net|test_net|net)\s*:", re.MULTILINE)
LAYERS = re.compile(r"^\s*(layers?|input)\s*[:{]", re.MULTILINE)
FILLED = re.compile(r"\$\{?[A-Za-z_]+|\{\{|__[A-Z_]+__|<[A-Z_]+>|\bPATH_TO\b.*\{")


def kind_of(text: str) -> str:
    """A file's kind; "" for what is no net and no solver."""
    if not text.strip() or text.lstrip().startswith("item"):
        return ""
    if not LAYERS.search(text):
        return "solver" if SOLVER.search(text) else ""
    if FILLED.search(re.sub("#.*", "", text)):
        return ""
    return "train" if DATA.search(text) or LOSS.search(text) else "deploy"


def reason(error: str) -> str:
    """What kind of refusal an error is."""
    message = re.sub(r"^\S+?:\d+:\d+: ", "", error)
    for pattern, told in (
        (r"unknown layer type '(\w+)'|type '?(\w+)'? is not known", "a type: {}"),
        (r"(\w+) is no layer type|there is no layer type '(\w+)'", "a type: {}"),
        (r"unknown key '?(\w+)'?", "a key: {}"),
        (r"there is no file", "a solver whose net is not there"),
        (r"module (\w+).* is not imported|is not imported", "a Python layer that is not imported"),
    ):
        found = re.search(pattern, message)
        if found:
            return told.format(next((word for word in found.groups() if word), ""))
    return re.sub(r"'[^']*'|\d+", "...", message)[:70]


def told(count: int, whole: int) -> str:
    """A count, and its share of a whole."""
    return f"{count} ({100 * count / max(1, whole):.0f} %)"


def attempt(path: Path) -> tuple[object, str]:
    """The model in a file, and why there is none."""
    try:
        return caffe.read(path), ""
    except MinicaffeError as error:
        return None, str(error)


def converts(path: Path) -> bool:
    """Whether `minicaffe convert` writes a file's model, its layers of unknown types as they are."""
    try:
        root = read_text(path, REGISTRY).root
        model(root, with_unknown(root, REGISTRY))
    except MinicaffeError:
        return False
    return True


def builds(path: Path, spec: object) -> str:
    """Why a net's shapes are not known, in the phase in which it has layers; "" if they are."""
    said = ""
    for phase in ("TEST", "TRAIN"):
        try:
            net = Net(spec, phase, device="cpu", shapes_only=True)  # type: ignore[arg-type]
            if net.steps:
                return ""
        except MinicaffeError as error:
            said = said or str(error)
    return said or "no layer in either phase"


def opencv_reads(path: Path) -> bool:
    """Whether OpenCV 4 reads a net to deploy. It prints what it does not like, so it runs apart."""
    code = f"import cv2; cv2.dnn.readNetFromCaffe({str(path)!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def main() -> None:
    """Read all, and print a table, the refusals, the repositories."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--own", default="BVLC+caffe", help="the repository whose files do not count"
    )
    parser.add_argument("--into", type=Path, help="write what is printed to this file, too")
    parser.add_argument(
        "--opencv", action="store_true", help="count what OpenCV 4 (opencv-python<5) reads, too"
    )
    parser.add_argument("--each", action="store_true", help="print each file that is refused")
    args = parser.parse_args()
    logging.getLogger("minicaffe").setLevel(logging.ERROR)
    own = {
        hashlib.sha1(path.read_bytes()).hexdigest()
        for path in (args.folder / args.own).rglob("*")
        if path.is_file()
    }
    seen, counts, whys = set(own), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    repositories: dict[str, int] = {}
    start = Path.cwd()
    for repository in sorted(args.folder.iterdir()):
        if repository.name == args.own:
            continue
        os.chdir(repository)
        for path in sorted(Path().rglob("*")):
            if not path.is_file():
                continue
            data = path.read_bytes()
            digest = hashlib.sha1(data).hexdigest()
            kind = kind_of(data.decode("utf-8", "replace"))
            if digest in seen or not kind:
                continue
            seen.add(digest)
            repositories[repository.name] = repositories.get(repository.name, 0) + 1
            counts[kind, "files"] += 1
            counts[kind, "converted"] += converts(path)
            spec, why = attempt(path)
            if args.opencv and kind == "deploy":
                counts[kind, "by OpenCV 4"] += opencv_reads(path)
            if spec is not None:
                counts[kind, "read"] += 1
                if kind == "deploy":
                    why = builds(path, spec)
                    counts[kind, "built"] += not why
            if why:
                whys[kind, reason(why)] += 1
                if args.each:
                    print(f"{kind}: {repository.name}/{path}: {why[:300]}")
        os.chdir(start)
    lines = ["| kind | files | read | converted | built |", "|---|---|---|---|---|"]
    for kind in KINDS:
        files = counts[kind, "files"]
        shares = [told(counts[kind, what], files) for what in ("read", "converted")]
        made = told(counts[kind, "built"], files) if kind == "deploy" else ""
        lines.append(f"| {kind} | {files} | {' | '.join(shares)} | {made} |")
    if args.opencv:
        there = told(counts["deploy", "by OpenCV 4"], counts["deploy", "files"])
        lines.append(f"| deploy, by OpenCV 4 | | {there} | | |")
    files = sum(counts[kind, "files"] for kind in KINDS)
    shares = [
        told(sum(counts[kind, what] for kind in KINDS), files) for what in ("read", "converted")
    ]
    lines.append(f"| all | {files} | {' | '.join(shares)} | |")
    lines += ["", f"{len(repositories)} repositories. Why the others are not:", ""]
    lines += [f"{count:4} {kind}: {why}" for (kind, why), count in whys.most_common(60)]
    lines += ["", "Files of each repository:", ""]
    lines += [f"{count:4} {name.replace('+', '/')}" for name, count in sorted(repositories.items())]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.into is not None:
        args.into.write_text(text)


if __name__ == "__main__":
    main()
