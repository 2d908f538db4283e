"""What `predict` says of a picture in which a detector found boxes: as a line, as JSON, as rows of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.config.tree import load
from minicaffe.errors import MinicaffeError
from minicaffe.interop.caffe.label_map import is_label_map, names_in
from minicaffe.tools.deploy import in_pixels, label_names

COLUMNS = ("image", "rank", "class", "name", "score", "x0", "y0", "x1", "y1")


def detects(model: NetSpec) -> bool:
    """Whether a model's answer is boxes."""
    return any(layer.type == "DetectionOutput" for layer in model.layers)


@dataclass
class Found:
    """The boxes (k, 6) in a picture of h x w: class, score, x0, y0, x1, y1 as fractions."""

    path: str
    boxes: np.ndarray
    size: tuple[int, int]
    names: Mapping[int, str]

    def name(self, row: np.ndarray) -> str:
        """The class of a box as it is called."""
        return self.names.get(int(row[0]), str(int(row[0])))

    def pixels(self, row: np.ndarray) -> list[int]:
        """The sides of a box in pixels: x0, y0, x1, y1."""
        return in_pixels(row[2:6], self.size)


def text(found: Found) -> str:
    """What was found as a line.

    >>> text(Found("a.png", np.array([[1, 0.9, 0.1, 0, 0.5, 1]]), (20, 40), {1: "cat"}))
    'a.png: cat (90.00 %) at 4,0-20,20'
    """
    told = [
        f"{found.name(row)} ({100 * row[1]:.2f} %) at {x0},{y0}-{x1},{y1}"
        for row in found.boxes
        for x0, y0, x1, y1 in [found.pixels(row)]
    ]
    return f"{found.path}: {'; '.join(told) or 'nothing found'}"


def json_line(found: Found) -> str:
    """What was found as JSON, in a line; boxes in pixels."""
    boxes = [
        {
            "class": int(row[0]),
            "name": found.names.get(int(row[0])),
            "score": float(row[1]),
            "box": found.pixels(row),
        }
        for row in found.boxes
    ]
    return json.dumps({"image": found.path, "boxes": boxes})


def csv_rows(found: Found) -> list[list[object]]:
    """What was found as rows of the table, one a box."""
    return [
        [
            *(found.path, rank, int(row[0]), found.names.get(int(row[0]), ""), f"{row[1]:.6f}"),
            *found.pixels(row),
        ]
        for rank, row in enumerate(found.boxes, 1)
    ]


def class_names(labels: str | None, model: NetSpec, beside: Path | None) -> dict[int, str]:
    """The names of classes: those of --labels, a label map or a name a line, else of the model's label map."""
    if labels is not None:
        file, text_ = load(labels, "text", own=True)
        if is_label_map(text_):
            return names_in(text_, file)
        lines = [line.strip() for line in text_.splitlines() if line.strip()]
        if not lines or not all(line.isprintable() for line in lines):
            raise MinicaffeError(f"--labels {labels}: expected a label map, or a name in each line")
        return dict(enumerate(lines))
    return label_names(model, beside)
