"""From the `source` of a data layer to a reader: which kind of data set stands there."""

import builtins
import os
from pathlib import Path
from typing import Any

from minicaffe.errors import DataError
from minicaffe.storage import hdf5, lists
from minicaffe.storage.file_kinds import reading
from minicaffe.tools.data import datasets, fetch, lmdb_file
from minicaffe.tools.data.datasets import IdxSet, Split
from minicaffe.tools.data.datum import LmdbSet
from minicaffe.tools.data.fetch import CIFAR10, FILES, NAMES
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader import array_set, cifar10_set
from minicaffe.tools.data.reader.array_set import NPY, ZIP, Hdf5Set, NpySet, NpzSet, is_npy
from minicaffe.tools.data.reader.base import Reader
from minicaffe.tools.data.reader.cifar10_set import Cifar10Set
from minicaffe.tools.data.reader.picture_set import (
    SUFFIXES,
    TABLES,
    FolderSet,
    ListSet,
    PictureSet,
    Size,
    TableSet,
    holds_pictures,
    inner_hint,
)

ARCHIVED = (".tar.gz", ".tgz", ".tar", ".zip")
HDF5 = (".h5", ".hdf5")
GZIP = b"\x1f\x8b"


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
    reader = _open(source, split, beside, {"colour": colour, "size": size}, root_folder)
    pictures = isinstance(reader, PictureSet)
    if colour is not None and not pictures and not isinstance(reader, LmdbSet):
        raise DataError(f"{source}: force_color and force_gray are for encoded images")
    if size is not None and not pictures:
        raise DataError(f"{source}: only pictures in files of their own are scaled")
    if root_folder and not isinstance(reader, (ListSet, TableSet)):
        raise DataError(f"{source}: root_folder is for lists")
    return reader


def _open(source: str, split: Split, beside: Path | None, how: Any, root_folder: str) -> Reader:
    """The reader of the first place where something stands that is read; pictures are read as `how` says."""
    if (arrays := array_set.held(source, split)) is not None:
        return arrays
    strange = None
    for place in datasets.places(source, beside) if source not in ("", datasets.DIGITS) else ():
        if os.path.isfile(place):
            if place.name.lower().endswith(TABLES):
                return TableSet(place, source, split, **how, root_folder=root_folder)
            reader = _file(place, source, split)
            if reader is None:
                return ListSet(place, source, **how, root_folder=root_folder)
            return reader
        if not os.path.isdir(place):
            if os.path.exists(place):
                raise DataError(f"{place}: expected a file or a folder, found a device or pipe")
            continue
        if lmdb_file.is_one(place):
            return LmdbSet(place, source, how["colour"])
        if os.path.isfile(place / "CURRENT"):
            raise lmdb_file.needs_leveldb(place)
        if home := cifar10_set.found(place):
            return Cifar10Set(home, source, split)
        if datasets.is_one(place):
            return IdxSet(source, split, beside)
        if source in NAMES:  # of which a folder may hold other things, such as pictures of them
            continue
        if holds_pictures(place):
            return FolderSet(place, source, split, **how)
        if os.access(place, os.R_OK) and any(map(is_npy, os.listdir(place))):
            return NpySet(place, source, split)
        if not any(any(fetch.find(place, file)) for file in FILES):
            strange = strange or place
    if strange is not None:
        names = os.listdir(strange) if os.access(strange, os.R_OK) else []
        if count := sum(name.lower().endswith(SUFFIXES) for name in names):
            raise DataError(
                f"{strange}: holds {count} pictures, not in folders: put those of each class into a"
                " folder of its own, or name them in a table with their classes (.csv)"
            )
        raise DataError(
            f"{strange}: holds no data set: expected a folder of pictures for each class, two .npy"
            f" files, an LMDB, CIFAR-10's batches, or the IDX files {', '.join(FILES)}{inner_hint(strange)}"
        )
    if source == CIFAR10:
        return Cifar10Set(None, source, split, beside)
    return IdxSet(source, split, beside)


def _file(path: Path, source: str, split: str) -> Reader | None:
    """The reader of a file, by its name or else by how it begins; None for what can but be a list."""
    name = path.name.lower()
    with reading(path, "data set"), builtins.open(path, "rb") as file:
        head = file.read(4096)
    if name == lmdb_file.FILE or any(name in files for files in cifar10_set.FILES.values()):
        raise DataError(f"{path}: is one file of a data set: give the folder")
    if name.endswith(ARCHIVED):
        raise DataError(f"{path}: is an archive: unpack it, and give the folder")
    if name.endswith(SUFFIXES):
        raise DataError(f"{path}: is a picture; expected a folder of pictures, or a list of them")
    if name.endswith(".npz") or head.startswith(ZIP):
        return NpzSet(path, source, split)
    if name.endswith(".npy") or head.startswith(NPY):
        raise DataError(f"{path}: expected the folder of two .npy files, of pictures and of labels")
    if name.endswith(HDF5) or hdf5.is_one(path):
        return Hdf5Set([path], source, split)
    if head[:2] in (b"\0\0", GZIP):
        raise DataError(f"{path}: expected a folder of four IDX files, found a file")
    if head.partition(b"\n")[0].strip().lower().endswith(tuple(map(str.encode, HDF5))):
        paths = [lists.find(name, [path.parent], str(path)) for name in lists.files(path)]
        return Hdf5Set(paths, source, split)
    return None
