"""Files that a layer reads an array from: a mean image, an infogain matrix."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.checkpoint import read_npy
from minicaffe.data import blob_file
from minicaffe.errors import DataError, foreign

NPY = b"\x93NUMPY"


def found(given: str, folder: Any, key: str) -> Path:
    """A file by its path from here, or from the model's folder. Raises DataError if neither is there."""
    places = list(dict.fromkeys([Path(given), Path(folder or "") / given]))
    path = next((place for place in places if os.path.exists(place)), None)
    if path is None:
        looked = " and ".join(repr(str(place)) for place in places)
        raise DataError(f"{key}: no such file; looked for {looked}")
    return path


def read_array(path: Path) -> np.ndarray:
    """An array from an .npy file or, whatever its name, one of Caffe's BlobProto (.binaryproto).

    Raises CheckpointError and DataError for a file that is neither, in one line that names it.
    """
    if path.suffix == ".npy" or _starts(path, NPY):
        return read_npy(path)
    if path.suffix != ".binaryproto" and (told := foreign(path, "arrays in .npy and .binaryproto")):
        raise DataError(told)
    return blob_file.read(path)


def _starts(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(magic)) == magic
