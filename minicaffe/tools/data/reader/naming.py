"""Arrays of pictures and labels as other programs keep them: by which names, and with which axes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data.reader.base import Shape

PAIRS = (("images", "labels"), ("x", "y"), ("data", "label"), ("data", "labels"))
SPLITS = {"train": ("train",), "test": ("test", "val")}
CHANNELS = (1, 3, 4)


def pair(names: Iterable[str], split: str, where: str) -> tuple[str, str]:
    """The names of the pictures and of the labels of a split, among those that there are.

    x_train or train_x for a split, else x for both; likewise images and labels, data and label. Capital
    letters do not matter. Raises DataError if there is no such pair.

    >>> pair(["X_test", "X_train", "y_test", "y_train"], "test", "a.npz")
    ('X_test', 'y_test')
    """
    there = {name.lower(): name for name in names}
    for word in SPLITS[split]:
        for pictures, labels in PAIRS:
            for spelled in ("{1}_{0}", "{0}_{1}"):
                found = [there.get(spelled.format(name, word)) for name in (pictures, labels)]
                if found[0] and found[1]:
                    return found[0], found[1]
    for pictures, labels in PAIRS:
        if pictures in there and labels in there:
            return there[pictures], there[labels]
    held = ", ".join(sorted(there.values())[:8]) or "nothing"
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


def labels(array: np.ndarray, count: int, where: str) -> np.ndarray:
    """Labels (count,) as int64, of integers (count,) or (count, 1). Raises DataError for anything else."""
    if array.shape not in ((count,), (count, 1)):
        raise DataError(f"{where}: expected {count} labels, one a picture, found {array.shape}")
    whole = array.dtype.kind in "iub"
    if array.dtype.kind == "f":
        whole = bool((np.isfinite(array) & (array == np.trunc(array))).all())
    if not whole or not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31:
        raise DataError(f"{where}: expected labels that are integers, found others ({array.dtype})")
    return array.reshape(-1).astype(np.int64)
