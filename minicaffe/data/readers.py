"""From the `source` of a data layer to a reader: which kind of data set stands there."""

from __future__ import annotations

import os
from pathlib import Path

from minicaffe.data import datasets, lmdb_file
from minicaffe.data.datasets import Split
from minicaffe.data.known import KNOWN
from minicaffe.data.picture_files import Colour
from minicaffe.data.reader.base import Reader
from minicaffe.data.reader.idx_set import IdxSet
from minicaffe.data.reader.lmdb_set import LmdbSet
from minicaffe.data.reader.picture_set import FolderSet, ListSet, Size, holds_pictures
from minicaffe.errors import DataError

__all__ = ["Reader", "open"]


def open(
    source: str,
    split: Split,
    beside: Path | None = None,
    *,
    colour: Colour | None = None,
    size: Size | None = None,
    root_folder: str = "",
) -> Reader:
    """The data set `source`: known by name, or what stands there, of whatever kind.

    Looked for as `datasets.load` does: from the current folder, `beside`, $MINICAFFE_DATA and data/. Encoded
    pictures are given in `colour`; those in files of their own are scaled to `size` (h, w), and what a list
    names has `root_folder` in front of it. Raises DataError for a source that is unknown, incomplete or
    damaged, and for an option that does not apply to its kind.

    >>> open("digits", "train").shape
    (1, 28, 28)
    """
    found = _open(source, split, beside, colour, size, root_folder)
    pictures = isinstance(found, (ListSet, FolderSet))
    if colour is not None and not pictures and not isinstance(found, LmdbSet):
        raise DataError(f"{found.origin}: force_color and force_gray are for encoded images")
    if size is not None and not pictures:
        raise DataError(f"{found.origin}: only pictures in files of their own are scaled")
    if root_folder and not isinstance(found, ListSet):
        raise DataError(f"{found.origin}: root_folder is for lists")
    return found


def _open(
    source: str,
    split: Split,
    beside: Path | None,
    colour: Colour | None,
    size: Size | None,
    root_folder: str,
) -> Reader:
    if source and source != datasets.DIGITS:
        for place in datasets.places(source, beside):
            if os.path.isfile(place):
                return ListSet(place, source, colour, size, root_folder)
            if not os.path.isdir(place):
                continue
            if lmdb_file.is_one(place):
                return LmdbSet(place, source, colour)
            if os.path.isfile(place / "CURRENT"):
                raise lmdb_file.needs_leveldb(place)
            if datasets.is_one(place):
                break
            if source not in KNOWN and holds_pictures(place):
                return FolderSet(place, source, split, colour, size)
    return IdxSet(source, split, beside)
