"""An answer of `predict` as a line and as rows of a table; and what classes are called."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.tree import load
from minicaffe.core.net.sources import with_classes
from minicaffe.errors import DataError, MinicaffeError
from minicaffe.interop.caffe.label_map import is_label_map, names_in
from minicaffe.storage import checkpoint, lists
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.deploy import label_names

COLUMNS = {
    "classes": ("image", "rank", "class", "name", "probability", "done", "unsure"),
    "boxes": ("image", "rank", "class", "name", "score", "x0", "y0", "x1", "y1"),
    "pixels": ("image", "rank", "class", "name", "share"),
}


def text(answer: Mapping[str, Any], kind: str) -> str:
    """An answer of a kind as a line.

    >>> dog = {"class": 1, "name": "dog", "probability": 0.75}
    >>> notes = {"done": ["inverted"], "unsure": ["faint ink"]}
    >>> text({"image": "a.png", "classes": [dog], **notes}, "classes")
    'a.png: dog (75.00 %) [inverted] [unsure: faint ink]'
    >>> cat = {"class": 1, "name": "cat", "score": 0.9, "box": [4, 0, 20, 20]}
    >>> text({"image": "a.png", "boxes": [cat]}, "boxes")
    'a.png: cat (90.00 %) at 4,0-20,20'
    """
    score, parts = COLUMNS[kind][4], []
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


def csv_rows(answer: Mapping[str, Any], kind: str) -> list[list[object]]:
    """An answer of a kind as rows of the table, one a class or box."""
    score = COLUMNS[kind][4]
    notes = ["; ".join(answer[key]) for key in ("done", "unsure") if key in answer]
    return [
        [
            *(answer["image"], rank, one["class"], one["name"] or "", f"{one[score]:.6f}"),
            *(*one.get("box", ()), *notes),
        ]
        for rank, one in enumerate(answer[kind], 1)
    ]


def write_csv(
    path: str, rows: Sequence[Sequence[object]], columns: Sequence[str] = COLUMNS["classes"]
) -> None:
    """Write the table, atomically, what a spreadsheet would compute led by '. Raises CheckpointError."""
    table, texts = io.StringIO(newline=""), re.compile(r"[=+@\s]|-(?![\d.]+$)")
    writer = csv.writer(table)
    for row in (columns, *rows):
        writer.writerow(
            f"'{one}" if isinstance(one, str) and texts.match(one) else one for one in row
        )
    data = table.getvalue().encode("utf-8", "surrogateescape")
    checkpoint.replace(path, lambda file: file.write(data))


def detects(model: NetSpec) -> bool:
    """Whether a model's answer is boxes."""
    return any(layer.type == "DetectionOutput" for layer in model.layers)


def class_names(labels: str | None, count: int, model: NetSpec, data: Pictures) -> Sequence[str]:
    """What the classes are called: as --labels says, else the model, else the data set; () if none does."""
    if labels is not None:
        return lines_of(labels, count)
    return with_classes(model, [data]).classes


def lines_of(path: str, count: int) -> list[str]:
    """The names in a file, one a line, or of a label map. Raises MinicaffeError for another number of them."""
    text = lists.text(Path(path))
    if is_label_map(text):
        names = names_in(text, path)
        if set(names) != set(range(count)):
            raise MinicaffeError(
                f"--labels {path}: names {len(names)} classes, from {min(names)} to {max(names)}; "
                f"the net has classes 0 to {count - 1}"
            )
        return [names[label] for label in range(count)]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != count:
        raise MinicaffeError(
            f"--labels {path}: has {len(lines)} names; the net has {count} classes"
        )
    for line in lines:
        if not line.isprintable():
            raise DataError(f"{path}: is not a text with a name in each line: found {line[:40]!r}")
    return lines


def box_names(labels: str | None, model: NetSpec, beside: Path | None) -> dict[int, str]:
    """A detector's classes: those of --labels, a label map or a name a line, else of the model's label map."""
    if labels is not None:
        file, text_ = load(labels, "text", own=True)
        if is_label_map(text_):
            return names_in(text_, file)
        lines = [line.strip() for line in text_.splitlines() if line.strip()]
        if not lines or not all(line.isprintable() for line in lines):
            raise MinicaffeError(f"--labels {labels}: expected a label map, or a name in each line")
        return dict(enumerate(lines))
    return label_names(model, beside)
