"""Caffe's Datum, one picture and its label, and SSD's AnnotatedDatum, with boxes; and databases of these.

Boxes are rows (k, 7): class, instance, x0, y0, x1, y1 as fractions of the picture, whether it is difficult.
"""

import os
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage import wire
from minicaffe.storage.file_kinds import reading
from minicaffe.tools.data import lmdb_file, picture_files
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader.base import Entry, Reader


@dataclass
class Datum:
    """A label; `pixels` (c, h, w), uint8 or float32, or else `encoded`, the bytes of a picture's file."""

    label: int
    pixels: np.ndarray | None
    encoded: memoryview | None = None


def read(data: memoryview) -> Datum:
    """The picture of a message; its pixels lie in `data`. Raises ValueError if it is not whole."""
    sizes, label, encoded = {1: 0, 2: 0, 3: 0}, 0, False
    bytes_: memoryview | None = None
    floats: list[np.ndarray] = []
    for number, kind, value in wire.fields(data):
        if number in sizes:
            sizes[number] = wire.integer(kind, value)
        elif number == 4:
            bytes_ = wire.message(kind, value)
        elif number == 5:
            label = wire.integer(kind, value)
        elif number == 6:
            floats.append(wire.floats(kind, value, "<f4"))
        elif number == 7:
            encoded = bool(wire.integer(kind, value))
    if encoded:
        if not bytes_:
            raise ValueError("it says its picture is encoded, and holds none")
        return Datum(label, None, bytes_)
    shape = tuple(sizes.values())
    if bytes_:
        pixels = np.frombuffer(bytes_, np.uint8)
    else:
        pixels = np.concatenate(floats) if len(floats) != 1 and floats else (floats or [_NONE])[0]
    if min(shape) < 1 or pixels.size != shape[0] * shape[1] * shape[2]:
        raise ValueError(f"a picture of shape {shape} holds {pixels.size} pixels")
    return Datum(label, pixels.reshape(shape))


_NONE = np.empty(0, np.float32)


def write(pixels: np.ndarray, label: int) -> bytes:
    """The message of a picture (c, h, w): uint8 as bytes, all else as floats; in Caffe's order."""
    sizes = [wire.put_integer(1 + i, size) for i, size in enumerate(pixels.shape)]
    if pixels.dtype == np.uint8:
        body = b"".join(bytes(part) for part in wire.put(4, [pixels.tobytes()]))
        return b"".join([*sizes, body, wire.put_integer(5, label)])
    body = b"".join(b"\x35" + number.tobytes() for number in pixels.astype("<f4").ravel())
    return b"".join([*sizes, wire.put_integer(5, label), body])


def encoded(file: bytes, label: int) -> bytes:
    """The message of a picture that stays as its file has it."""
    body = b"".join(bytes(part) for part in wire.put(4, [file]))
    return b"".join([body, wire.put_integer(5, label), wire.put_integer(7, 1)])


ANNOTATED, PLAIN = b"\x0a", b"\x08"  # how an AnnotatedDatum begins, and how a Datum does


class LmdbSet(Reader):
    """The pictures of a database, of any sizes, blue before green before red; encoded ones in `colour`."""

    blue_first = in_order = True

    def __init__(self, folder: Path, name: str, colour: Colour | None = None):
        self.name, self.colour = name, colour
        self.records = lmdb_file.Lmdb(folder)
        self.origin = str(self.records.path)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, i: int) -> Entry:
        datum = self._datum(i)
        return self._pixels(datum, self.place(i)), datum.label

    def _pixels(self, datum: Datum, place: str) -> np.ndarray:
        if datum.encoded is None:
            if self.colour not in (None, "as it is"):
                raise DataError(f"{place}: force_color and force_gray are for encoded images")
            assert datum.pixels is not None
            return datum.pixels
        picture = picture_files.decode(datum.encoded, place, self.colour or "as it is")
        return picture.transpose(2, 0, 1)

    def label(self, i: int) -> int:
        """Returns the label of an entry."""
        return self._datum(i).label

    def _datum(self, i: int) -> Datum:
        with reading(self.place(i), "Datum"):
            record = self.records[i]
            if record[:1] == ANNOTATED:
                raise ValueError("it is a picture with boxes, which the layer AnnotatedData reads")
            return read(record)


LABEL, INSTANCE, BOX, DIFFICULT = 0, 1, slice(2, 6), 6
MOST = 100_000  # boxes of a picture


def read_annotated(data: memoryview) -> tuple[Datum, np.ndarray]:
    """The picture of a message, and its boxes. Raises ValueError."""
    picture: Datum | None = None
    rows: list[list[float]] = []
    for number, kind, value in wire.fields(data):
        if number == 1:
            picture = read(wire.message(kind, value))
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
    row = [0.0] * 7
    for number, kind, value in wire.fields(data):
        if number == 1:
            row[INSTANCE] = wire.integer(kind, value)
        elif number == 2:
            for field, of, side in wire.fields(wire.message(kind, value)):
                if 1 <= field <= 4:
                    row[1 + field] = float(wire.floats(of, side, "<f4")[-1])
                elif field == 6:
                    row[DIFFICULT] = float(wire.integer(of, side) != 0)
    if not np.isfinite(row).all():
        raise ValueError("a box has a side that is not finite")
    return row


def write_annotated(picture: bytes, rows: np.ndarray) -> bytes:
    """The message of a Datum's message and its boxes, a group for each class."""
    parts: list[wire.Part] = [*wire.put(1, [picture]), wire.put_integer(2, 0)]
    for label in dict.fromkeys(rows[:, LABEL].astype(int).tolist()):
        group: list[wire.Part] = [wire.put_integer(1, label)]
        for row in rows[rows[:, LABEL] == label]:
            box: list[wire.Part] = []
            for number, side in enumerate(row[BOX].astype("<f4"), 1):
                box.append(bytes([number << 3 | wire.FIXED32]) + side.tobytes())
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
            most = 0
            for i in range(len(self)):
                with suppress(DataError) if skip else nullcontext():
                    most = max(most, len(self.label(i)))
            self.counted[key] = most
        return self.counted[key]

    def _annotated(self, i: int) -> tuple[Datum, np.ndarray]:
        with reading(self.place(i), "AnnotatedDatum"):
            record = self.records[i]
            if record[:1] == PLAIN:
                raise ValueError("it is a picture without boxes, which the layer Data reads")
            return read_annotated(record)
