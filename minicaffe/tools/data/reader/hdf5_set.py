"""Pictures and labels in HDF5 files, named as Caffe's are: data and label."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage import hdf5
from minicaffe.tools.data.reader import naming
from minicaffe.tools.data.reader.base import Entry, Reader

_OPEN = 64  # files at once


class Hdf5Set(Reader):
    """The rows of one file or of several, one behind the other, which stay on disk.

    The datasets are found by their names as in an .npz (see naming.py); what they hold but bytes is float32.
    """

    def __init__(self, paths: Sequence[Path], name: str, split: str):
        super().__init__(paths, name, split)
        self.paths, self.name = paths, name
        self.origin = str(paths[0]) if len(paths) == 1 else f"{len(paths)} HDF5 files"
        self.keys: list[tuple[str, str]] = []
        layouts, labels = [], []
        for path in paths:
            with hdf5.opened(path) as file:
                keys = naming.pair(hdf5.names(file), split, str(path))
                images, marks = (hdf5.dataset(file, key) for key in keys)
                dtype = images.dtype if images.dtype in (np.uint8, np.float32) else np.float32
                layouts.append(naming.Layout(images.shape, np.dtype(dtype), f"{path}: {keys[0]}"))
                if marks.size != images.shape[0]:  # before they are read
                    raise ValueError(f"it holds {images.shape[0]} pictures, {marks.size} labels")
                labels.append(naming.labels(marks[()], images.shape[0], f"{path}: {keys[1]}"))
            self.keys.append(keys)
            self.own_split = naming.of_split(keys[0])
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
        if self.open[0] != os.getpid() or (
            number not in self.open[1] and len(self.open[1]) >= _OPEN
        ):
            self.open = os.getpid(), {}
        files = self.open[1]
        with hdf5.damage_told(path):
            if number not in files:
                files[number] = hdf5.start(path)
            images = hdf5.dataset(files[number], self.keys[number][0])
            if images.shape[0] != layout.count:
                raise ValueError("it changed while it was read")
            return layout.of(images[row]), int(self.labels[i])

    def label(self, i: int) -> int:
        return int(self.labels[i])

    def place(self, i: int) -> str:
        number, row = self._row(i)
        return f"{self.paths[number]}: entry {row}"

    def _row(self, i: int) -> tuple[int, int]:
        number = int(np.searchsorted(self.ends, i, side="right"))
        return number, i - int(self.ends[number]) + self.layouts[number].count
