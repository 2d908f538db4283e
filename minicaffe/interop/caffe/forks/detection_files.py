"""The files that SSD's DetectionOutput writes: the detections of a test as VOC, COCO and ILSVRC want them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.config.tree import load
from minicaffe.errors import DataError
from minicaffe.interop.caffe.label_map import names_in
from minicaffe.storage import checkpoint, lists


@dataclass
class DetectionFiles:
    """Detections of the pictures of a test, in the order of `names`, written when the last one is there."""

    folder: Path
    prefix: str
    format: str
    classes: dict[int, str]
    names: list[str]
    sizes: list[tuple[int, int]]  # height, width
    background: int
    passes: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)  # of a test, so far
    rows: list[tuple[str, int, float, np.ndarray]] = field(default_factory=list)

    @classmethod
    def opened(
        cls, folder: str, prefix: str, format: str, label_map: str, sizes: str, count: int, background: int
    ) -> DetectionFiles:  # fmt: skip
        """The files of SSD's SaveOutputParameter. Raises MinicaffeError for a list that is missing or none."""
        file, text = load(label_map, "prototxt", own=True)
        classes = names_in(text, file, shown=False)
        names, found = [], []
        for number, line in enumerate(lists.text(Path(sizes)).splitlines(), 1):
            words = line.split()
            if not words:
                continue
            if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
                raise DataError(
                    f"{sizes}:{number}: expected a name, a height and a width, got {line!r}"
                )
            names.append(words[0])
            found.append((int(words[1]), int(words[2])))
        if not 0 < (count or len(names)) <= len(names):
            raise DataError(
                f"save_output_param: num_test_image {count}: {sizes} names {len(names)} pictures"
            )
        count = count or len(names)
        return cls(Path(folder), prefix, format, classes, names[:count], found[:count], background)

    def add(self, number: int, images: int, rows: np.ndarray) -> bool:
        """Take the rows of a pass, the `number`-th of a test; returns whether files were written.

        The passes may come in any order. One that is there already begins a new test. Pictures that follow the
        last one named are not taken.
        """
        if number in self.passes:
            self.passes = {}
        self.passes[number] = images, rows
        if sum(count for count, _ in self.passes.values()) < len(self.names):
            return False
        first, self.rows = 0, []
        for count, found in (self.passes[n] for n in sorted(self.passes)):
            self._take(found, first)
            first += count
        self._write()
        self.passes = {}
        return True

    def _take(self, rows: np.ndarray, first: int) -> None:
        """Take the rows of pictures, the `first` of a test."""
        for row in rows:
            place = first + int(row[0])
            if row[1] < 0 or place >= len(self.names) or np.isnan(row).any():
                continue
            if int(row[1]) not in self.classes:
                raise DataError(f"save_output_param: label_map_file: has no class {int(row[1])}")
            h, w = self.sizes[place]
            box = row[3:7].clip(0, 1) * np.array([w, h, w, h])
            self.rows.append((self.names[place], int(row[1]), float(row[2]), box))

    def _write(self) -> None:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"save_output_param: output_directory {self.folder}: {error.strerror}"
            ) from None
        for name, text in self._texts().items():
            data = text.encode()
            checkpoint.replace(str(self.folder / name), partial(_put, data))

    def _texts(self) -> dict[str, str]:
        """What is written, by file."""
        whole = [(name, label, score, box.astype(int)) for name, label, score, box in self.rows]
        if self.format == "VOC":
            return {
                f"{self.prefix}{called}.txt": "".join(
                    f"{name} {score:.6g} {' '.join(map(str, box))}\n"
                    for name, own, score, box in whole
                    if own == label
                )
                for label, called in self.classes.items()
                if label != self.background
            }
        if self.format == "ILSVRC":
            lines = [
                f"{name} {label} {score:.6g} {' '.join(map(str, box))}\n"
                for name, label, score, box in whole
            ]
            return {f"{self.prefix}.txt": "".join(lines)}
        found = [
            {
                "image_id": _number(name),
                "category_id": _number(self.classes[label]),
                "bbox": [
                    round(float(v), 2) for v in (box[0], box[1], box[2] - box[0], box[3] - box[1])
                ],
                "score": round(score, 6),
            }
            for name, label, score, box in self.rows
        ]
        return {f"{self.prefix}.json": json.dumps(found, indent=1) + "\n"}


def _put(data: bytes, file: Any) -> None:
    file.write(data)


def _number(text: str) -> int | str:
    """A name that is a number, as COCO's are, as one."""
    return int(text) if text.isdigit() else text
