"""Pictures and the boxes in them, in files that a list names, as SSD's create_annoset takes them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from minicaffe.errors import DataError, did_you_mean
from minicaffe.storage import lists
from minicaffe.tools.data import picture_files
from minicaffe.tools.data.augment import bilinear
from minicaffe.tools.data.reader.picture_set import PictureSet

LARGEST = 1 << 26  # bytes of an annotation
# What is told of boxes that contradict their picture, before how often
CLIPPED = "boxes beyond their picture's edge, cut off there"
SCALED = "pictures of another size than their annotation says, whose boxes are scaled with them"
TURNED = (
    "pictures annotated before EXIF's orientation turned them, whose boxes are turned with them"
)
# What comes of damaged annotations, beside ElementTree's own error
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
Box = tuple[float, float, float, float]
# (w, h) of the picture, if the file says it, and the boxes
Annotation = tuple[tuple[float, float] | None, list[tuple[str, Box, bool]]]


class BoxListSet(PictureSet):
    """The pictures of a list, a picture and its annotation in each line, with the boxes (k, 7) in them.

    An annotation is .xml as PASCAL VOC has it, .json as SSD's scripts make it of COCO's (`annotation`: a list
    of `category_id`, `bbox` x, y, width, height), or .txt with a line a box: class, x0, y0, x1, y1, and 1 if
    it is difficult. Sides are in pixels of the upright picture, or of the size that the annotation says:
    boxes are divided by that, as SSD does, and are turned with a picture that was annotated before EXIF's
    orientation turned it. `labels` are the numbers of classes that have a name. Rows are as in datum.py;
    instances count the boxes of a class in a picture; `remarks` counts what was changed in those read so far.
    """

    unit = "pictures"

    def __init__(self, path: Path, name: str, labels: Mapping[str, int], *how: Any, **keys: Any):
        super().__init__(path, name, *how, **keys)
        self.list, self.numbers = path, dict(labels)
        self.paths, self.annotations = lists.pairs(path)
        self.remarks: Counter[str] = Counter()

    def __getitem__(self, i: int) -> Any:
        picture = picture_files.read(self.place(i), self.colour)
        rows = self.rows(i, *picture.shape[:2])
        if self.size is not None:
            picture = bilinear(picture, *self.size)
        return picture.transpose(2, 0, 1), rows

    def rows(self, i: int, h: int, w: int) -> np.ndarray:
        """The boxes in the i-th picture, of h x w."""
        path = Path(self.found(self.annotations[i]))
        kinds = {".xml": _voc, ".json": _coco, ".txt": _text}
        kind = kinds.get(path.suffix.lower())
        if kind is None:
            raise DataError(f"{path}: expected an annotation in .xml, .json or .txt")
        try:
            if os.path.getsize(path) > LARGEST:
                raise DataError(
                    f"{path}: an annotation of more than {LARGEST >> 20} MiB is not read"
                )
            size, boxes = kind(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except (*_DAMAGE, ElementTree.ParseError) as error:
            said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise DataError(f"{path}: is not an annotation that can be read: {said}") from None
        turn = 1
        if size is None:
            size = (w, h)
        elif size != (w, h):
            turn = picture_files.orientation(self.place(i)) if size == (h, w) else 1
            self.remarks[TURNED if turn in picture_files.TURNS else SCALED] += 1
        wide, high = size
        counts: dict[int, int] = {}
        rows = []
        for name, box, difficult in boxes:
            label = self._label(name, path)
            sides = ", ".join(map(str, box))
            below = max(box[2] - box[0], box[3] - box[1]) < 1 or max(box) <= 1
            if below and min(size) > 1:
                raise DataError(
                    f"{path}: a box of {name[:60]!r} is smaller than a pixel: {sides}; expected x0, y0, x1, y1"
                    " in pixels: are these fractions, or YOLO's centre, width and height?"
                )
            if not np.isfinite(box).all() or box[2] <= box[0] or box[3] <= box[1]:
                raise DataError(f"{path}: a box of {name[:60]!r} has no area: {sides}")
            if box[0] >= wide or box[1] >= high or box[2] <= 0 or box[3] <= 0:
                raise DataError(
                    f"{path}: a box of {name[:60]!r} is beside its picture of {wide:g} x {high:g}: {sides}"
                )
            fractions = np.array(box) / np.array([wide, high, wide, high])
            inside = fractions.clip(0, 1)
            if (inside != fractions).any():
                self.remarks[CLIPPED] += 1
            fractions = picture_files.turned_box(inside, turn)
            rows.append([label, counts.get(label, 0), *fractions, difficult])
            counts[label] = counts.get(label, 0) + 1
        return np.array(rows, np.float64).reshape(-1, 7)

    def _label(self, name: str, path: Path) -> int:
        if name in self.numbers:
            return self.numbers[name]
        if name.isdecimal() and len(name) < 20 and int(name) < 2**31:
            return int(name)
        shown = repr(name[:60])
        if not self.numbers:
            raise DataError(f"{path}: the class {shown} has no number: --label-map FILE says it")
        hint = did_you_mean(name, self.numbers)
        raise DataError(f"{path}: the label map has no class {shown}{hint}")


def _size(width: Any, height: Any) -> tuple[float, float] | None:
    """Returns the size that an annotation says; None where it says none, or zeros."""
    size = float(width or 0), float(height or 0)
    return size if min(size) > 0 and max(size) < float("inf") else None


def _voc(data: bytes) -> Annotation:
    """PASCAL VOC's: size, and objects with name, bndbox (xmin, ymin, xmax, ymax), difficult."""
    boxes = []
    root = ElementTree.fromstring(data)
    for one in root.iter("object"):
        sides = [one.find(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
        name = (one.findtext("name") or "").strip()
        if not name or None in sides:
            raise ValueError("an object has no name, or no bndbox of xmin, ymin, xmax, ymax")
        x0, y0, x1, y1 = (float(side.text or "") for side in sides if side is not None)
        boxes.append((name, (x0, y0, x1, y1), (one.findtext("difficult") or "0").strip() == "1"))
    return _size(root.findtext("size/width"), root.findtext("size/height")), boxes


def _coco(data: bytes) -> Annotation:
    """A picture's part of COCO's: its `image` and its `annotation` list; crowds (iscrowd) are difficult."""
    boxes = []
    whole = json.loads(data)
    for one in whole["annotation"]:
        x, y, w, h = map(float, one["bbox"])
        boxes.append((str(one["category_id"]), (x, y, x + w, y + h), bool(one.get("iscrowd"))))
    image = whole.get("image") or {}
    return _size(image.get("width"), image.get("height")), boxes


def _text(data: bytes) -> Annotation:
    """A line a box: class, x0, y0, x1, y1, and 1 if it is difficult."""
    boxes = []
    for number, line in enumerate(data.decode("utf-8-sig").splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words:
            continue
        if len(words) not in (5, 6):
            raise ValueError(f"line {number}: expected class, x0, y0, x1, y1, got {line[:60]!r}")
        x0, y0, x1, y1 = map(float, words[1:5])
        boxes.append((words[0], (x0, y0, x1, y1), words[5:] == ["1"]))
    return None, boxes
