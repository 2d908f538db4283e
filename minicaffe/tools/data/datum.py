"""Caffe's Datum: one picture and its label, as its databases hold them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    flat = pixels.astype("<f4").ravel()
    body = b"".join(b"\x35" + number.tobytes() for number in flat)
    return b"".join([*sizes, wire.put_integer(5, label), body])


def encoded(file: bytes, label: int) -> bytes:
    """The message of a picture that stays as its file has it."""
    body = b"".join(bytes(part) for part in wire.put(4, [file]))
    return b"".join([body, wire.put_integer(5, label), wire.put_integer(7, 1)])


ANNOTATED = b"\x0a"  # how SSD's AnnotatedDatum begins, and no Datum


class LmdbSet(Reader):
    """The pictures of a database; those that are encoded are given in `colour`, else as they are.

    Sizes may vary; three channels are blue, green, red.
    """

    blue_first = in_order = True

    def __init__(self, folder: Path, name: str, colour: Colour | None = None):
        self.name, self.colour = name, colour
        self.records = lmdb_file.Lmdb(folder)
        self.origin = str(self.records.path)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, i: int) -> Entry:
        found = self._datum(i)
        return self._pixels(found, self.place(i)), found.label

    def _pixels(self, found: Datum, place: str) -> np.ndarray:
        """The picture (c, h, w) of a Datum."""
        if found.encoded is None:
            if self.colour not in (None, "as it is"):
                raise DataError(f"{place}: force_color and force_gray are for encoded images")
            assert found.pixels is not None
            return found.pixels
        picture = picture_files.decode(found.encoded, place, self.colour or "as it is")
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
