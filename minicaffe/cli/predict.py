"""The command predict, and its answers as lines and as rows of a table."""

import csv
import functools
import io
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from minicaffe.backends import cpu
from minicaffe.backends.device import Device
from minicaffe.cli import options
from minicaffe.cli.parser import Arg, number
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net.sources import with_classes
from minicaffe.errors import DataError, note, raised_as, say
from minicaffe.storage import caches, checkpoint
from minicaffe.tools.data.pictures import Doubt, named, read
from minicaffe.tools.data.pictures.drawn import mask_image, with_boxes, with_mask, with_text
from minicaffe.tools.deploy import TOGETHER, Classifier, Deployed, Detector, answer_of
from minicaffe.tools.inference import for_test
from minicaffe.tools.training.folder import numbered

SCORES = {"classes": "probability", "boxes": "score", "pixels": "share"}
BOX = ("x0", "y0", "x1", "y1")


def text(answer: Mapping[str, Any], kind: str) -> str:
    """An answer of a kind as a line.

    >>> dog = {"class": 1, "name": "dog", "probability": 0.75}
    >>> notes = {"done": ["inverted"], "unsure": ["faint ink"]}
    >>> text({"image": "a.png", "classes": [dog], **notes}, "classes")
    'a.png: dog (75.00 %) [inverted] [unsure: faint ink]'
    """
    score, parts = SCORES[kind], []
    for one in answer[kind]:
        x0, y0, x1, y1 = one.get("box", [0] * 4)
        at = f" at {x0},{y0}-{x1},{y1}" if kind == "boxes" else ""
        parts.append(f"{one['name'] or one['class']} ({100 * one[score]:.2f} %){at}")
    if kind == "boxes":
        return f"{answer['image']}: {'; '.join(parts) or 'nothing found'}"
    if kind == "pixels":
        return f"{answer['image']}: {', '.join(parts)} of the pixels"
    done = f" [{', '.join(answer['done'])}]" if answer["done"] else ""
    unsure = f" [unsure: {', '.join(answer['unsure'])}]" if answer["unsure"] else ""
    return f"{answer['image']}: {', '.join(parts)}{done}{unsure}"


def csv_rows(answer: Mapping[str, Any], kind: str, most: int) -> list[dict[str, object]]:
    """An answer of a kind as rows of the table by column: a row with `most` classes, or one a box."""
    rows: list[dict[str, Any]] = []
    for one in answer[kind]:
        rows.append({"class": one["class"], "name": one["name"] or ""})
        rows[-1][SCORES[kind]] = f"{one[SCORES[kind]]:.6f}"
        rows[-1] |= dict(zip(BOX, one.get("box", ()), strict=False))
    if kind == "boxes":
        return [{"image": answer["image"], "rank": i} | row for i, row in enumerate(rows, 1)]
    whole: dict[str, object] = {"image": answer["image"]}
    for i, row in enumerate(rows[:most], 1):
        whole |= {key if i == 1 else f"{key}_{i}": value for key, value in row.items()}
    return [whole | {key: "; ".join(answer[key]) for key in ("done", "unsure") if answer.get(key)}]


def write_csv(path: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Write the table, atomically, what a spreadsheet would compute led by '. Raises CheckpointError."""
    table, texts = io.StringIO(newline=""), re.compile(r"[=+@\s]|-(?![\d.]+$)")
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["image", "class"]
    writer = csv.writer(table)
    for row in ({key: key for key in columns}, *rows):
        line = [row.get(key, "") for key in columns]
        writer.writerow(
            f"'{one}" if isinstance(one, str) and texts.match(one) else one for one in line
        )
    checkpoint.replace(path, table.getvalue().encode("utf-8", "surrogateescape"))


# Its path, the size (h, w) that its file has, and as the net takes it, with what is to be said of it
Picture = tuple[str, tuple[int, int], np.ndarray, list[str]]
FEW = 20  # pictures, which NumPy classifies sooner than loops are compiled


def _threshold(word: str) -> float:
    value = float(word)
    if math.isnan(value):
        raise ValueError
    return value


_threshold.__name__ = "float"  # what argparse says of other words


class Predict(options.Model, options.Weighted, options.OnDevice, options.Typed, options.Labelled):
    """Classify pictures, or find what is in them: the most probable classes, or boxes.

    Pictures are scaled to the net's size; a grey one with a light border is inverted, since MNIST's
    digits are white on black. For a net of MNIST, the digit is found in a picture of another size, such as
    a photograph of a sheet with shadows, lines, any ink on any paper; it is cropped, scaled and centred as
    MNIST's digits are. `[unsure: ...]` after the classes says why an answer may be wrong. PGM, PPM and .npy
    of the net's size need no extra, PNG and JPEG need the extra image. In a folder, all pictures at any
    depth are classified. A snapshot holds the text of its net, so as MODEL it needs no model file. A deploy
    net does not say how its pictures are prepared: --mean, --scale and --channels do. A net that ends in
    DetectionOutput, such as SSD's, returns boxes, in pixels. --save draws the answers on the pictures.

    example:
      minicaffe predict lenet_iter_10000.npz digit.png
      minicaffe predict lenet digit.png --weights lenet_iter_10000.caffemodel
      minicaffe predict runs/pets new_pictures/ --csv answers.csv
      minicaffe predict deploy.prototxt cat.jpg --weights net.caffemodel --mean 104,117,123 --labels words.txt
    """

    images: Annotated[
        Sequence[str],
        Arg("images", nargs="+"),
        "IMAGE",
        "a picture: PNG, JPEG, PGM, PPM, .npy; a folder of them; or a pattern, such as 'new/*.jpg'",
    ]
    top: Annotated[
        int | None, number(1), "classes shown, and in each row of --csv; default: 3 and 1"
    ] = None
    threshold: Annotated[
        float, _threshold, "detectors: boxes with a lower score are left out; default: 0.5"
    ] = 0.5
    csv: Annotated[str | None, Arg("-o", "--csv"), "write the answers as a table, too"] = None
    save: Annotated[
        str | None, "DIR", "draw the answers on the pictures, into this folder (PNG)"
    ] = None
    json: Annotated[bool, "print the answers as JSON, a line a picture"] = False

    def __call__(self) -> None:
        weights, spec = options.weights_of(self), for_test(self.read_model())
        paths = list(itertools.chain.from_iterable(map(named, self.images)))
        device = self.pick_device(spec)
        is_compiled = device.is_cuda or not cpu.available()
        if not is_compiled:
            from minicaffe.backends.cpu import compile_cache  # needs Numba

            is_compiled = compile_cache.folder().exists()  # else, on a new machine, no loop is
        if is_compiled or len(paths) > FEW:
            _answer(self, spec, weights, paths, device)
            return
        why = (
            caches.obstacle(caches.folder()) or "`minicaffe warm` compiles them for later commands"
        )
        self.tell(f"computed by NumPy, which takes less than compiling loops first; {why}")
        with cpu.by_numpy():
            _answer(self, spec, weights, paths, device)


def _answer(args: Predict, spec: NetSpec, weights: str, paths: list[str], device: Device) -> None:
    """Classify, or detect, with the loops that there are."""
    detects = any(layer.type == "DetectionOutput" for layer in spec.layers)
    net = (Detector if detects else Classifier)(spec, device=device, dtype=args.dtype)
    options.prepare(args, net.data, weights)
    for file, _ in options.load_weights(net.net, weights):
        if file != weights:  # of a run
            args.tell(f"weights: {file}")
    ready = {word: _ready(net, word) for word in args.images if word in paths}
    if args.save is not None:
        with raised_as(DataError, f"--save {args.save}"):
            os.makedirs(args.save, exist_ok=True)
    draw = functools.partial(_draw, Path(args.save or ""), set())
    kind, names = _classes(args, net, spec)
    rows: list[dict[str, object]] = []
    answered, most = 0, args.top or 3
    counts = Counter[str]()
    right: list[bool] = []  # of pictures in folders that have names of classes
    for batch in _batches(net, paths, ready):
        results = net.predict(np.stack([pixels for _, _, pixels, _ in batch]))
        for (path, size, _, notes), result in zip(batch, results, strict=True):
            answered += 1
            how: Any = functools.partial(tuple, size), names, most, args.threshold
            answer = answer_of(net, result, *how)
            mask, answer = answer.pop("mask", None), {"image": path, **answer}
            said = list(notes)
            if isinstance(net, Classifier) and kind == "classes":
                first, folder = answer[kind][0], Path(path).parent.name
                if first["probability"] < 0.5 and not net.several:
                    said.append(Doubt("no class has half of the probability"))
                counts[first["name"] or str(first["class"])] += not net.several
                right += [first["name"] == folder] if folder in names.values() else []
                answer["done"] = [str(one) for one in said if not isinstance(one, Doubt)]
                answer["unsure"] = [str(one) for one in said if isinstance(one, Doubt)]
            line = text(answer, kind)
            say(json.dumps(answer) if args.json else line)
            rows += csv_rows(answer, kind, args.top or 1)
            if args.save is None:
                continue
            if kind == "classes":
                draw(path, with_text(read(path), line.removeprefix(f"{path}: ")))
            elif kind == "boxes":
                boxes = result[result[:, 1] >= args.threshold][:, [0, 2, 3, 4, 5]]
                texts = [
                    f"{one['name'] or one['class']} {one['score']:.2f}" for one in answer[kind]
                ]
                draw(path, with_boxes(read(path), boxes, texts))
            else:
                draw(path, mask_image(mask))
                draw(path, with_mask(read(path), mask), "-drawn")
    if answered > 1 and counts.total():
        each = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        args.tell(f"{answered} pictures: {each}")
    if right:
        share = 100 * sum(right) / len(right)
        args.tell(f"right: {sum(right)} of {len(right)} in folders of classes ({share:.2f} %)")
    if args.csv is not None:
        write_csv(args.csv, rows)
        args.tell(f"answers: {args.csv}")
    if args.save is not None:
        args.tell(f"pictures: {args.save}")
    if answered < len(paths):
        raise DataError(f"{len(paths) - answered} of {len(paths)} pictures could not be read")


def _classes(args: Predict, net: Deployed, spec: NetSpec) -> tuple[str, dict[int, str]]:
    """Returns what a net tells of a picture, its classes, boxes or pixels, and what classes are called."""
    if isinstance(net, Detector):
        return "boxes", options.box_names(args.labels, spec, Path(args.model).parent)
    classes = net.net.blobs[net.output].shape[1:]
    names: Sequence[str] = with_classes(spec, [net.data]).classes
    if args.labels is not None:
        names = options.lines_of(args.labels, classes[0])
    kind = "classes" if classes[0] == np.prod(classes) else "pixels"
    return kind, {label: name for label, name in enumerate(names) if name}


def _draw(folder: Path, taken: set[str], path: str, image: Any, what: str = "") -> None:
    """Write the picture drawn of the one in `path` under its name; `what` comes behind that."""
    name = next(one for one in numbered(f"{Path(path).stem}{what}") if one not in taken)
    taken.add(name)
    checkpoint.replace(folder / f"{name}.png", lambda file: image.save(file, "PNG"))


def _ready(net: Deployed, path: str) -> Picture:
    pixels = read(path)
    return path, (pixels.shape[0], pixels.shape[1]), *net.ready(pixels, path)


def _batches(net: Deployed, paths: list[str], ready: dict[str, Picture]) -> Iterator[list[Picture]]:
    """Some pictures at a time; those that are not `ready`, of folders, are passed over if they are damaged."""
    for first in range(0, len(paths), TOGETHER):
        batch = []
        for path in paths[first : first + TOGETHER]:
            try:
                batch.append(ready[path] if path in ready else _ready(net, path))
            except DataError as error:
                note(f"minicaffe: {error}")
        if batch:
            yield batch
