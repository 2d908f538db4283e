"""CIFAR-10 in the binary form of its authors: records of a label and 3072 pixels.

label 1 | red 32 x 32 | green 32 x 32 | blue 32 x 32      10,000 times in each of six files
"""

import os
from pathlib import Path

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage import lists
from minicaffe.storage.file_kinds import reading, recognised
from minicaffe.tools.data import datasets, fetch
from minicaffe.tools.data.fetch import ARCHIVES, CIFAR10
from minicaffe.tools.data.reader.base import InMemory

FILES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
NAMES = "batches.meta.txt"
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_PICTURE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32


class Cifar10Set(InMemory):
    """CIFAR-10 in a folder, else fetched when a picture is asked for; red, green, blue, then in memory."""

    shape = _PICTURE
    own_split = True

    def __init__(self, folder: Path | None, name: str, split: str, beside: Path | None = None):
        self.folder, self.name, self.split, self.beside = folder, name, split, beside
        self.origin = "not fetched yet" if folder is None else str(folder)
        self.classes = tuple(CLASSES if folder is None else _names(folder))
        if folder is None:
            sizes = [ARCHIVES[CIFAR10].members[file] for file in FILES[split]]
        else:
            sizes = [_size(folder / file) for file in FILES[split]]
        self.count = sum(sizes) // _RECORD

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        if self.folder is None:
            why = fetch.fetched(self.name)
            homes = map(found, datasets.places(self.name, self.beside))
            self.folder = next(filter(None, homes), None)
            if self.folder is None:
                raise DataError(fetch.missing(self.name, why))
            self.origin = str(self.folder)
        images = np.empty((self.count, *_PICTURE), np.uint8)
        labels = np.empty(self.count, np.uint8)
        done = 0
        for file in FILES[self.split]:
            path = self.folder / file
            _size(path)
            with reading(path, "CIFAR-10 batch"):
                records = np.fromfile(path, np.uint8).reshape(-1, _RECORD)
            if len(wrong := np.flatnonzero(records[:, 0] >= len(CLASSES))):
                place, label = f"{path}: entry {wrong[0]}", records[wrong[0], 0]
                raise DataError(f"{place}: expected a label from 0 to 9, found {label}")
            end = done + len(records)
            if end > self.count:
                raise DataError(f"data set {self.name!r} changed while it was read")
            labels[done:end] = records[:, 0]
            images[done:end] = records[:, 1:].reshape(-1, *_PICTURE)
            done = end
        return images, labels


def found(place: Path) -> Path | None:
    """The folder that holds CIFAR-10: `place`, or what its archive unpacks to there."""
    for folder in (place, place / "cifar-10-batches-bin"):
        if all(os.path.isfile(folder / file) for files in FILES.values() for file in files):
            return folder
    return None


def _size(path: Path) -> int:
    """The bytes of a file of records, held against what a record takes."""
    with reading(path, "CIFAR-10 batch"):
        size = os.stat(path).st_size
    if size % _RECORD or not size:
        kind = recognised(path, "CIFAR-10 batch")
        raise DataError(
            f"{path}: expected records of {_RECORD} bytes, found {kind or f'{size} bytes'}"
        )
    return size


def _names(folder: Path) -> list[str]:
    """The names of the classes, as the folder tells them or as they are known."""
    if os.path.exists(folder / NAMES) and not os.path.isfile(folder / NAMES):
        raise DataError(f"{folder / NAMES}: expected a file")
    if not os.path.exists(folder / NAMES):
        return CLASSES
    names = lists.text(folder / NAMES).split()
    if len(names) != len(CLASSES) or not all(name.isprintable() for name in names):
        raise DataError(f"{folder / NAMES}: expected {len(CLASSES)} names, found {len(names)}")
    return names
