"""Files that a layer reads an array from: a mean image, an infogain matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage import wire
from minicaffe.storage.checkpoint import read_npy
from minicaffe.storage.file_kinds import foreign

NPY = b"\x93NUMPY"


def read_array(path: Path) -> np.ndarray:
    """An array from an .npy file or, whatever its name, one of Caffe's BlobProto (.binaryproto).

    Raises CheckpointError and DataError for a file that is neither, in one line that names it.
    """
    is_npy = path.suffix == ".npy"
    if not is_npy and path.is_file():
        with open(path, "rb") as file:
            is_npy = file.read(len(NPY)) == NPY
    if is_npy:
        return read_npy(path)
    if path.suffix != ".binaryproto" and (told := foreign(path, "arrays in .npy and .binaryproto")):
        raise DataError(told)
    return wire.read_blob(path)
