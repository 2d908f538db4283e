"""SSD's AnnotatedDatum, a picture and the boxes of the objects in it; and a database of these.

Boxes are rows (k, 7): class, instance, x0, y0, x1, y1 as fractions of the picture, whether it is difficult.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage import wire
from minicaffe.storage.file_kinds import reading
from minicaffe.tools.data import datum
from minicaffe.tools.data.datum import Datum, LmdbSet

LABEL, INSTANCE, BOX, DIFFICULT = 0, 1, slice(2, 6), 6
MOST = 100_000  # boxes of a picture
PLAIN = b"\x08"  # how Caffe's Datum begins, and no AnnotatedDatum


def read(data: memoryview) -> tuple[Datum, np.ndarray]:
    """The picture of a message, and its boxes. Raises ValueError."""
    picture: Datum | None = None
    rows: list[list[float]] = []
    for number, kind, value in wire.fields(data):
        if number == 1:
            picture = datum.read(wire.message(kind, value))
        elif number == 2 and wire.integer(kind, value) != 0:
            raise ValueError("its annotations are no boxes")
        elif number == 3:
            _group(wire.message(kind, value), rows)
    if picture is None:
        raise ValueError("it holds no picture")
    return picture, np.array(rows, np.float64).reshape(-1, 7)


def _group(data: memoryview, rows: list[list[float]]) -> None:
    """Append the boxes of an AnnotationGroup, which are of one class."""
    label, first = 0, len(rows)
    for number, kind, value in wire.fields(data):
        if number == 1:
            label = wire.integer(kind, value)
        elif number == 2:
            if len(rows) >= MOST:
                raise ValueError(f"it holds more than {MOST} boxes")
            rows.append(_annotation(wire.message(kind, value)))
    for row in rows[first:]:
        row[LABEL] = label


def _annotation(data: memoryview) -> list[float]:
    """The row of an Annotation."""
    row = [0.0] * 7
    for number, kind, value in wire.fields(data):
        if number == 1:
            row[INSTANCE] = wire.integer(kind, value)
        elif number == 2:
            for field, of, given in wire.fields(wire.message(kind, value)):
                if 1 <= field <= 4:
                    row[1 + field] = float(wire.floats(of, given, "<f4")[-1])
                elif field == 6:
                    row[DIFFICULT] = float(wire.integer(of, given) != 0)
    if not np.isfinite(row).all():
        raise ValueError("a box has a side that is not finite")
    return row


def write(picture: bytes, rows: np.ndarray) -> bytes:
    """The message of a Datum's message and its boxes, a group for each class."""
    parts: list[wire.Part] = [*wire.put(1, [picture]), wire.put_integer(2, 0)]
    for label in dict.fromkeys(rows[:, LABEL].astype(int).tolist()):
        group: list[wire.Part] = [wire.put_integer(1, label)]
        for row in rows[rows[:, LABEL] == label]:
            sides = row[BOX].astype("<f4")
            box: list[wire.Part] = [
                bytes([(1 + i) << 3 | wire.FIXED32]) + side.tobytes()
                for i, side in enumerate(sides)
            ]
            box.append(wire.put_integer(6, int(row[DIFFICULT])))
            group += wire.put(2, [wire.put_integer(1, int(row[INSTANCE])), *wire.put(2, box)])
        parts += wire.put(3, group)
    return b"".join(bytes(part) for part in parts)


class AnnotatedSet(LmdbSet):
    """The pictures of a database of AnnotatedDatums, and their boxes (k, 7)."""

    unit = "pictures"
    counted: ClassVar[dict[tuple[Any, ...], int]] = {}  # what `boxes` has found, by file

    def __getitem__(self, i: int) -> Any:
        picture, rows = self._annotated(i)
        return self._pixels(picture, self.place(i)), rows

    def label(self, i: int) -> Any:
        """The boxes of an entry."""
        return self._annotated(i)[1]

    def boxes(self, skip: bool = False) -> int:
        """The most boxes of a picture, of those that can be read with `skip`.

        Reads the whole database, once for all nets of a program, while its file stays the same.
        """
        file = os.stat(self.records.path)
        key = (str(self.records.path), file.st_ino, file.st_mtime_ns, file.st_size, skip)
        if key not in self.counted:
            self.counted[key] = self._count(skip)
        return self.counted[key]

    def _count(self, skip: bool) -> int:
        most = 0
        for i in range(len(self)):
            try:
                most = max(most, len(self.label(i)))
            except DataError:
                if not skip:
                    raise
        return most

    def _annotated(self, i: int) -> tuple[Datum, np.ndarray]:
        with reading(self.place(i), "AnnotatedDatum"):
            record = self.records[i]
            if record[:1] == PLAIN:
                raise ValueError("it is a picture without boxes, which the layer Data reads")
            return read(record)
