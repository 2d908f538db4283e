"""An LMDB database of Caffe's Datums, raw or encoded, which stays on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage.file_kinds import reading
from minicaffe.tools.data import datum, lmdb_file, picture_files
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader.base import Entry, Reader

ANNOTATED = b"\x0a"  # how SSD's AnnotatedDatum begins, and no Datum


class LmdbSet(Reader):
    """The pictures of a database; those that are encoded are given in `colour`, else as they are.

    Sizes may vary; three channels are blue, green, red.
    """

    blue_first = in_order = True

    def __init__(self, folder: Path, name: str, colour: Colour | None = None):
        super().__init__(folder, name, colour)
        self.name, self.colour = name, colour
        self.records = lmdb_file.Lmdb(folder)
        self.origin = str(self.records.path)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, i: int) -> Entry:
        found = self._datum(i)
        return self._pixels(found, self.place(i)), found.label

    def _pixels(self, found: datum.Datum, place: str) -> np.ndarray:
        """The picture (c, h, w) of a Datum."""
        if found.encoded is None:
            if self.colour not in (None, "as it is"):
                raise DataError(f"{place}: force_color and force_gray are for encoded images")
            assert found.pixels is not None
            return found.pixels
        picture = picture_files.decode(found.encoded, place, self.colour or "as it is")
        return picture.transpose(2, 0, 1)

    def label(self, i: int) -> int:
        return self._datum(i).label

    def _datum(self, i: int) -> datum.Datum:
        with reading(self.place(i), "Datum"):
            record = self.records[i]
            if record[:1] == ANNOTATED:
                raise ValueError("it is a picture with boxes, which the layer AnnotatedData reads")
            return datum.read(record)
