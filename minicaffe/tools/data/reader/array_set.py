"""Pictures and labels in NumPy's files: an .npz, or two .npy, which stay on disk."""

from __future__ import annotations

import functools
import math
import os
import tokenize
import warnings
import zipfile
import zlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage.file_kinds import reading
from minicaffe.storage.read_at import ReadAt
from minicaffe.tools.data.reader import naming
from minicaffe.tools.data.reader.base import Entry, InMemory, Reader

NPY, ZIP = b"\x93NUMPY", b"PK"
_EXPANSION = 1100  # of deflate, at its best
_DAMAGE = (
    RuntimeError,
    SyntaxError,
    TypeError,
    OverflowError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


class NpzSet(InMemory):
    """The arrays of an .npz file, named by split or not at all (see naming.py): in memory once looked at."""

    def __init__(self, path: Path, name: str, split: str):
        super().__init__(path, name, split)
        self.name, self.path, self.origin = name, path, str(path)
        with _told(path), zipfile.ZipFile(path) as file:
            held = [entry.removesuffix(".npy") for entry in file.namelist() if is_npy(entry)]
            self.keys = naming.pair(held, split, str(path))
            self.own_split = naming.of_split(self.keys[0])
            shape, dtype = _header(file, self.keys[0])
            counts, _ = _header(file, self.keys[1])
        self.layout, self.promised = naming.Layout(shape, dtype, self._where(0)), (shape, dtype)
        self.shape, self.count = self.layout.shape, self.layout.count
        if counts not in ((shape[0],), (shape[0], 1)):
            naming.labels(np.broadcast_to(np.uint8(0), counts), shape[0], self._where(1))
        self.held: tuple[np.ndarray, np.ndarray] | None = None

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        if self.held is None:
            with _told(self.path), zipfile.ZipFile(self.path) as file:
                images, labels = (_read(file, key) for key in self.keys)
            if (images.shape, images.dtype) != self.promised:
                raise DataError(f"{self.path}: changed while it was read")
            images = np.ascontiguousarray(self.layout.of(images))
            self.held = images, naming.labels(labels, len(self), self._where(1))
        return self.held

    def label(self, i: int) -> int:
        return int(self.labels[i])

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """All labels, for which no picture is read."""
        if self.held is not None:
            return self.held[1]
        with _told(self.path), zipfile.ZipFile(self.path) as file:
            return naming.labels(_read(file, self.keys[1]), len(self), self._where(1))

    def place(self, i: int) -> str:
        return f"{self._where(0)}: entry {i}"

    def _where(self, which: int) -> str:
        return f"{self.path}: {self.keys[which]}"


class NpySet(Reader):
    """Two .npy files of a folder, one of pictures and one of labels, found by their names as in an .npz."""

    def __init__(self, folder: Path, name: str, split: str):
        super().__init__(folder, name, split)
        self.name, self.origin = name, str(folder)
        held = [file.removesuffix(".npy") for file in os.listdir(folder) if is_npy(file)]
        keys = naming.pair(held, split, str(folder))
        self.own_split = naming.of_split(keys[0])
        pictures, labels = (folder / f"{word}.npy" for word in keys)
        images, self.path = _mapped(pictures), pictures
        self.layout = naming.Layout(images.shape, images.dtype, str(pictures))
        self.shape = self.layout.shape
        self.labels = naming.labels(_mapped(labels), len(images), str(labels))
        self.images: Any = Rows(images) if images.flags.c_contiguous else np.array(images)

    def __len__(self) -> int:
        return self.layout.count

    def __getitem__(self, i: int) -> Entry:
        return self.layout.of(self.images[i]), int(self.labels[i])

    def label(self, i: int) -> int:
        return int(self.labels[i])

    def place(self, i: int) -> str:
        return f"{self.path}: entry {i}"


class Rows:
    """The rows of an .npy file that lie one behind the other, read when they are asked for."""

    def __init__(self, mapped: np.memmap):
        self.path, self.first = Path(str(mapped.filename)), mapped.offset
        self.shape, self.dtype = mapped.shape[1:], mapped.dtype
        self.size = math.prod(self.shape) * self.dtype.itemsize
        with _told(self.path):
            self.file = ReadAt(self.path)

    def __getitem__(self, i: int) -> np.ndarray:
        start = self.first + i * self.size
        with _told(self.path):
            found = self.file[start : start + self.size]
        return np.frombuffer(found, self.dtype).reshape(self.shape)


def is_npy(file: str) -> bool:
    """Whether a file is, by its name, an .npy one."""
    return file.endswith(".npy") and not file.startswith(".")


def _mapped(path: Path) -> np.memmap:
    with _told(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers that Python 2 wrote
        if path.exists() and not path.is_file():
            raise ValueError("it is a folder, a pipe or a device")
        array = np.lib.format.open_memmap(path, mode="r")
        promised, held = array.offset + array.nbytes, os.path.getsize(path)
        if promised != held:
            raise ValueError(f"it promises {promised} bytes, holds {held}")
        return array


def _header(file: zipfile.ZipFile, key: str) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and type of an array, held against what its entry takes in the file."""
    info = file.getinfo(f"{key}.npy")
    with file.open(info) as entry:
        shape, dtype = _shape(entry)
        promised, held = math.prod(shape) * dtype.itemsize, info.file_size - entry.tell()
    packed = min(info.compress_size, os.fstat(file.fp.fileno()).st_size)  # type: ignore[union-attr]
    if dtype.hasobject or promised != held or info.file_size > _EXPANSION * max(packed, 100):
        raise ValueError(f"{key!a} promises {promised} bytes, holds {held} ({packed} in the file)")
    return shape, dtype


def _shape(entry: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(entry)
    read: Any = np.lib.format.read_array_header_2_0
    if version == (1, 0):
        read = np.lib.format.read_array_header_1_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, _, dtype = read(entry)
    return shape, dtype


def _read(file: zipfile.ZipFile, key: str) -> np.ndarray:
    _header(file, key)
    with file.open(f"{key}.npy") as entry, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.lib.format.read_array(entry, allow_pickle=False)


def _told(path: Path) -> AbstractContextManager[None]:
    """Within it, what NumPy or zipfile raises is told as DataError, in one line with the file's name."""
    return reading(path, f"{path.suffix or '.npz'} file", DataError, _DAMAGE)
