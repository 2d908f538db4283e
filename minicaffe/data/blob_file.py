"""Caffe's BlobProto: an array as .caffemodel, .solverstate and .binaryproto hold it.

1 2 3 4   num, channels, height, width, of files from before 2014
7         shape, a message whose field 1 is each axis's size
5 8       the numbers, float or double: packed into one field, or a field each
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.data import wire

AXES = 32  # Caffe's kMaxBlobAxes
PIECES = 1 << 16  # that one array may be in; writers make one
_LEGACY = (1, 2, 3, 4)  # num, channels, height, width
_DATA, _SHAPE, _DOUBLES = 5, 7, 8
_RAW = {10: "raw_data_type", 11: "raw_diff_type", 12: "raw_data"}  # NVCaffe's, for 16 bits


@dataclass
class BlobProto:
    """An array that lies in a message: its shape, and its numbers in pieces (one, but for odd writers).

    `legacy`: the shape is of four sizes (num, channels, height, width), as Caffe wrote it until 2014.
    """

    shape: tuple[int, ...]
    legacy: bool
    pieces: list[np.ndarray] = field(repr=False)

    def view(self) -> np.ndarray:
        """The array, where it lies in the file if it is in one piece: it may be unaligned."""
        whole = self.pieces[0] if len(self.pieces) == 1 else np.concatenate(self.pieces)
        return whole.reshape(self.shape)

    def array(self) -> np.ndarray:
        """The array, in memory of its own."""
        dtype = self.pieces[0].dtype.newbyteorder("=")
        out = np.empty(self.shape, dtype)
        np.concatenate(self.pieces, out=out.reshape(-1))
        return out


def read(path: str | Path) -> np.ndarray:
    """The array of a .binaryproto file. Raises DataError, in one line that names it, if it is not whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mean").write_bytes(b"".join(map(bytes, parts([[3.5, 4.5]]))))
    ...     read(Path(folder, "mean"))
    array([[3.5, 4.5]])
    """
    with wire.opened(path, "BlobProto (.binaryproto)") as data:
        return parse(data).array()


def parse(data: memoryview) -> BlobProto:
    """The array of a message; its numbers stay where they are. Raises ValueError if they do not fit it."""
    dims: list[int] = []
    old: dict[int, int] = {}
    single: list[np.ndarray] = []
    double: list[np.ndarray] = []
    for number, kind, value in wire.fields(data):
        if len(dims) > AXES or len(single) + len(double) > PIECES:
            raise ValueError("a blob is in too many pieces, or has too many axes")
        if number == _DATA:
            single.append(wire.floats(kind, value, "<f4"))
        elif number == _DOUBLES:
            double.append(wire.floats(kind, value, "<f8"))
        elif number == _SHAPE:
            for inner, inner_kind, dim in wire.fields(wire.message(kind, value)):
                if inner == 1:
                    dims += wire.integers(inner_kind, dim, AXES)
        elif number in _LEGACY:
            old[number] = wire.integer(kind, value)
        elif number in _RAW:
            raise ValueError(
                f"a blob's numbers are in {_RAW[number]}, which NVCaffe writes; write it as float"
            )
    legacy = bool(old)  # as Caffe, which then does not look at `shape`
    shape = tuple(old.get(number, 0) for number in _LEGACY) if legacy else tuple(dims)
    if len(shape) > AXES or any(size < 0 for size in shape):
        raise ValueError(f"a blob has the shape {shape[:40]}")
    pieces = double or single
    found = sum(piece.size for piece in pieces)
    if math.prod(shape) != found:
        by = " x ".join(map(str, shape)) or "one number"
        raise ValueError(f"a blob promises {by}, holds {found} numbers")
    if len(pieces) > 1 and sum(piece.size == 0 for piece in pieces):
        pieces = [piece for piece in pieces if piece.size] or pieces[:1]
    return BlobProto(shape, legacy, pieces or [np.empty(0, np.float32)])


def parts(array: Any) -> list[wire.Part]:
    """The message of an array, float64 as doubles and all else as floats; in the order Caffe writes fields."""
    array = np.asarray(array)
    shape: list[wire.Part] = []
    if array.ndim:  # of one without axes Caffe writes none, and OpenCV 4 reads no empty one
        shape = wire.put(_SHAPE, wire.put(1, [b"".join(map(wire.number_bytes, array.shape))]))
    doubles = array.dtype == np.float64
    flat = np.ascontiguousarray(array, "<f8" if doubles else "<f4").reshape(-1)
    numbers = wire.put(_DOUBLES if doubles else _DATA, [flat]) if flat.size else []
    return [*shape, *numbers] if doubles else [*numbers, *shape]
