"""Pictures and labels in arrays, as other programs keep them: an .npz, two .npy, or HDF5 files."""

import functools
import hashlib
import itertools
import math
import os
import warnings
import weakref
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage import checkpoint, hdf5
from minicaffe.storage.file_kinds import ReadAt, reading
from minicaffe.tools.data.reader.base import Entry, InMemory, Reader, Shape

PAIRS = (("images", "labels"), ("x", "y"), ("data", "label"), ("data", "labels"))
SPLITS = {"train": ("train",), "test": ("test", "val")}
CHANNELS = (1, 3, 4)
NPY, ZIP = b"\x93NUMPY", b"PK"
_EXPANSION = 1100  # of deflate, at its best
_DAMAGE = (*checkpoint.DAMAGE, TypeError, OverflowError)
_OPEN = 64  # HDF5 files at once


def pair(names: Iterable[str], split: str, where: str) -> tuple[str, str]:
    """The names of the pictures and of the labels of a split, among those that there are.

    x_train or train_x for a split, else x for both; likewise images and labels, data and label. Capital
    letters do not matter. Raises DataError if there is no such pair.

    >>> pair(["X_test", "X_train", "y_test", "y_train"], "test", "a.npz")
    ('X_test', 'y_test')
    """
    spellings = {name.lower(): name for name in names}
    by_split = [(f"{word}_{{}}", f"{{}}_{word}") for word in SPLITS[split]]
    for forms in (*by_split, ("{}",)):
        for both, form in itertools.product(PAIRS, forms):
            pictures, labels = (spellings.get(form.format(name)) for name in both)
            if pictures and labels:
                return pictures, labels
    held = ", ".join(sorted(spellings.values())[:8]) or "nothing"
    raise DataError(
        f"{where}: holds {held};"
        f" expected x_{split} and y_{split}, or images and labels, or data and label"
    )


def of_split(name: str) -> bool:
    """Whether the name of an array of pictures says of which split they are.

    >>> of_split("X_test"), of_split("images")
    (True, False)
    """
    return name.lower() not in {pictures for pictures, _ in PAIRS}


class Layout:
    """How an array (count, ...) of pictures is turned into (count, c, h, w).

    Four axes are (count, c, h, w), or (count, h, w, c) where only the last is 1, 3 or 4 and the second is not;
    three are (count, h, w), and two are vectors, (count, c). Raises DataError for another shape or type.

    >>> Layout((5, 32, 30, 3), np.dtype("u1"), "a.npy").shape
    (3, 32, 30)
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, where: str):
        if dtype != np.uint8 and dtype.kind not in "fb":
            raise DataError(f"{where}: expected pictures in uint8 or floating point, found {dtype}")
        if not 2 <= len(shape) <= 4 or 0 in shape:
            raise DataError(
                f"{where}: expected pictures (count, c, h, w), (count, h, w, c), (count, h, w) or"
                f" (count, c), found {shape}"
            )
        self.count, self.axes = shape[0], len(shape) - 1  # pictures, and axes of one
        self.last = self.axes == 3 and shape[3] in CHANNELS and shape[1] not in CHANNELS
        c, h, w = ((*shape[1:], 1, 1), (1, *shape[1:]), shape[1:])[self.axes - 1]
        self.shape: Shape = (w, c, h) if self.last else (c, h, w)
        self.dtype = np.dtype(np.uint8 if dtype.kind in "ub" else np.float32)

    def of(self, array: np.ndarray) -> np.ndarray:
        """One picture, or some, with these axes and this type; a view where that is possible."""
        some = array.shape[: array.ndim - self.axes]
        array = np.moveaxis(array, -1, -3) if self.last else array.reshape(*some, *self.shape)
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(self.dtype, copy=False)


def labels_of(array: np.ndarray, count: int, where: str) -> np.ndarray:
    """Labels (count,) as int64, of integers (count,) or (count, 1). Raises DataError for anything else."""
    if array.shape not in ((count,), (count, 1)):
        raise DataError(f"{where}: expected {count} labels, one a picture, found {array.shape}")
    whole = array.dtype.kind in "iub"
    if array.dtype.kind == "f":
        whole = bool((np.isfinite(array) & (array == np.trunc(array))).all())
    if not whole or not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31:
        raise DataError(f"{where}: expected labels that are integers, found others ({array.dtype})")
    return array.reshape(-1).astype(np.int64)


class NpzSet(InMemory):
    """The arrays of an .npz file, named by split or not at all: in memory once looked at."""

    def __init__(self, path: Path, name: str, split: str):
        self.name, self.path, self.origin = name, path, str(path)
        with _reading(path), zipfile.ZipFile(path) as file:
            held = [entry.removesuffix(".npy") for entry in file.namelist() if is_npy(entry)]
            self.keys = pair(held, split, str(path))
            self.own_split = of_split(self.keys[0])
            shape, dtype = _header(file, self.keys[0])
            counts, _ = _header(file, self.keys[1])
        self.layout, self.promised = Layout(shape, dtype, self._where(0)), (shape, dtype)
        self.shape, self.count = self.layout.shape, self.layout.count
        if counts not in ((shape[0],), (shape[0], 1)):
            labels_of(np.broadcast_to(np.uint8(0), counts), shape[0], self._where(1))

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        with _reading(self.path), zipfile.ZipFile(self.path) as file:
            images, labels = (_read(file, key) for key in self.keys)
        if (images.shape, images.dtype) != self.promised:
            raise DataError(f"{self.path}: changed while it was read")
        images = np.ascontiguousarray(self.layout.of(images))
        return images, labels_of(labels, len(self), self._where(1))

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """All labels, for which no picture is read."""
        if self.held is not None:
            return self.held[1]
        with _reading(self.path), zipfile.ZipFile(self.path) as file:
            return labels_of(_read(file, self.keys[1]), len(self), self._where(1))

    def place(self, i: int) -> str:
        return f"{self._where(0)}: entry {i}"

    def _where(self, which: int) -> str:
        return f"{self.path}: {self.keys[which]}"


class NpySet(Reader):
    """Two .npy files of a folder, one of pictures and one of labels, found by their names as in an .npz."""

    def __init__(self, folder: Path, name: str, split: str):
        self.name, self.origin = name, str(folder)
        held = [file.removesuffix(".npy") for file in os.listdir(folder) if is_npy(file)]
        keys = pair(held, split, str(folder))
        self.own_split = of_split(keys[0])
        pictures, labels = (folder / f"{word}.npy" for word in keys)
        images, self.path = _mapped(pictures), pictures
        self.layout = Layout(images.shape, images.dtype, str(pictures))
        self.shape = self.layout.shape
        self.labels = labels_of(_mapped(labels), len(images), str(labels))
        self.images: Any = NpyRows(images) if images.flags.c_contiguous else np.array(images)

    def __len__(self) -> int:
        return self.layout.count

    def __getitem__(self, i: int) -> Entry:
        return self.layout.of(self.images[i]), int(self.labels[i])

    def place(self, i: int) -> str:
        return f"{self.path}: entry {i}"


class NpyRows:
    """The rows of an .npy file that lie one behind the other, read when they are asked for."""

    def __init__(self, mapped: np.memmap):
        self.path, self.first = Path(str(mapped.filename)), mapped.offset
        self.shape, self.dtype = mapped.shape[1:], mapped.dtype
        self.size = math.prod(self.shape) * self.dtype.itemsize
        with _reading(self.path):
            self.file = ReadAt(self.path)

    def __getitem__(self, i: int) -> np.ndarray:
        start = self.first + i * self.size
        with _reading(self.path):
            row = self.file[start : start + self.size]
        return np.frombuffer(row, self.dtype).reshape(self.shape)


def is_npy(file: str) -> bool:
    """Whether a file is, by its name, an .npy one."""
    return file.endswith(".npy") and not file.startswith(".")


def _mapped(path: Path) -> np.memmap:
    with _reading(path), warnings.catch_warnings():
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
        shape, dtype = checkpoint.read_header(entry)
        promised, held = math.prod(shape) * dtype.itemsize, info.file_size - entry.tell()
    packed = min(info.compress_size, os.fstat(file.fp.fileno()).st_size)  # type: ignore[union-attr]
    if dtype.hasobject or promised != held or info.file_size > _EXPANSION * max(packed, 100):
        raise ValueError(f"{key!a} promises {promised} bytes, holds {held} ({packed} in the file)")
    return shape, dtype


def _read(file: zipfile.ZipFile, key: str) -> np.ndarray:
    _header(file, key)
    with file.open(f"{key}.npy") as entry, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.lib.format.read_array(entry, allow_pickle=False)


def _reading(path: Path) -> AbstractContextManager[None]:
    """Within it, what NumPy or zipfile raises is told as DataError, in one line with the file's name."""
    return reading(path, f"{path.suffix or '.npz'} file", DataError, _DAMAGE)


class Hdf5Set(Reader):
    """The rows of one file or of several, one behind the other, which stay on disk.

    The datasets are found by their names as in an .npz; what they hold but bytes is float32.
    """

    def __init__(self, paths: Sequence[Path], name: str, split: str):
        self.paths, self.name = paths, name
        self.origin = str(paths[0]) if len(paths) == 1 else f"{len(paths)} HDF5 files"
        self.keys: list[tuple[str, str]] = []
        layouts: list[Layout] = []
        labels: list[np.ndarray] = []
        for path in paths:
            with hdf5.opened(path) as file:
                keys = pair(hdf5.names(file), split, str(path))
                images, marks = (hdf5.dataset(file, key) for key in keys)
                dtype = images.dtype if images.dtype in (np.uint8, np.float32) else np.float32
                layouts.append(Layout(images.shape, np.dtype(dtype), f"{path}: {keys[0]}"))
                if marks.size != images.shape[0]:  # before they are read
                    raise ValueError(f"it holds {images.shape[0]} pictures, {marks.size} labels")
                labels.append(labels_of(marks[()], images.shape[0], f"{path}: {keys[1]}"))
            self.keys.append(keys)
            self.own_split = of_split(keys[0])
            if layouts[-1].shape != layouts[0].shape:
                raise DataError(
                    f"{path}: expected pictures of {layouts[0].shape} as in {paths[0]},"
                    f" found {layouts[-1].shape}"
                )
        self.layouts, self.shape = layouts, layouts[0].shape
        self.ends = np.cumsum([layout.count for layout in layouts])
        self.labels = np.concatenate(labels)
        self.open: tuple[int, dict[int, Any]] = (0, {})  # process, and its files by number

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, i: int) -> Entry:
        number, row = self._row(i)
        path, layout = self.paths[number], self.layouts[number]
        is_full = number not in self.open[1] and len(self.open[1]) >= _OPEN
        if is_full or self.open[0] != os.getpid():
            self.open = os.getpid(), {}
        files = self.open[1]
        with hdf5.damage_told(path):
            if number not in files:
                files[number] = hdf5.start(path)
            images = hdf5.dataset(files[number], self.keys[number][0])
            if images.shape[0] != layout.count:
                raise ValueError("it changed while it was read")
            return layout.of(images[row]), int(self.labels[i])

    def place(self, i: int) -> str:
        number, row = self._row(i)
        return f"{self.paths[number]}: entry {row}"

    def _row(self, i: int) -> tuple[int, int]:
        number = int(np.searchsorted(self.ends, i, side="right"))
        return number, i - int(self.ends[number]) + self.layouts[number].count


class ArraySet(InMemory):
    """Arrays of the user's program: x (n, ...) as `Layout` has it, y (n,) its labels. Raises DataError.

    `validation`, (x, y), is what the phase TEST reads; without, a fifth of each class.
    """

    def __init__(self, x: Any, y: Any, validation: tuple[Any, Any] | None = None):
        x, y = np.asarray(x), np.asarray(y)
        if x.dtype.kind in "iu" and x.dtype != np.uint8:
            pixels = x.ndim > 2 and x.size and 0 <= x.min() <= x.max() <= 255
            x = x.astype(np.uint8 if pixels else np.float32)
        layout = Layout(x.shape, x.dtype, "x")
        self.shape, self.count = layout.shape, layout.count
        self.labels = labels_of(y, self.count, "y")
        self.held = np.ascontiguousarray(layout.of(x)), self.labels
        finite = np.isfinite(self.held[0].reshape(self.count, -1)).all(axis=1)
        if not finite.all():
            raise DataError(f"x: entry {finite.argmin()} holds a number that is not finite")
        if validation is not None and not (
            isinstance(validation, (tuple, list)) and len(validation) == 2
        ):
            kind = type(validation).__name__
            raise DataError(f"validation: expected a pair of arrays (x, y), got a {kind}")
        self.tests = ArraySet(*validation) if validation is not None else None
        if self.tests is not None:
            self.own_split = self.tests.own_split = True
        digest = hashlib.blake2b(self.tests.name.encode() if self.tests else b"", digest_size=6)
        for array in self.held:
            digest.update(array.data)
        self.name = self.origin = f"{ARRAYS}{digest.hexdigest()}"


ARRAYS = "arrays-"
# By the name that a data layer has for its source, as long as anybody has them
HELD = weakref.WeakValueDictionary[str, ArraySet]()


def held(source: str, split: str) -> ArraySet | None:
    """Returns the arrays of this name; None if it is another's. Raises DataError if they are gone."""
    if (arrays := HELD.get(source)) is not None:
        return (arrays.tests if split == "test" else None) or arrays
    if source.startswith(ARRAYS) and not os.path.exists(source):
        raise DataError(f"{source}: were arrays of a program; solver.fit(x, y) takes them again")
    return None
