"""Caffe's BlobProto: an array as .caffemodel, .solverstate and .binaryproto hold it.

1 2 3 4   num, channels, height, width, of files from before 2014
7         shape, a message whose field 1 is each axis's size
5 8       the numbers, float or double: packed into one field, or a field each
10 12     NVCaffe's in place of these, and those of OpenCV's shrinkCaffeModel: their type, and their bytes
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.storage import wire

AXES = 32  # Caffe's kMaxBlobAxes
PIECES = 1 << 16  # that one array may be in; writers make one
_LEGACY = (1, 2, 3, 4)  # num, channels, height, width
_DATA, _SHAPE, _DOUBLES = 5, 7, 8
_RAW_TYPE, _RAW = 10, 12
_TYPES = ("<f8", "<f4", "<f2")  # NVCaffe's numbers for them


@dataclass
class BlobProto:
    """An array that lies in a message: its shape, and its numbers in pieces (one, but for odd writers).

    Numbers of 16 bits are given out in float32. `legacy`: the shape is of four sizes (num, channels, height,
    width), as Caffe wrote it until 2014.
    """

    shape: tuple[int, ...]
    legacy: bool
    pieces: list[np.ndarray] = field(repr=False)

    def view(self) -> np.ndarray:
        """The array, where it lies in the file if it is in one piece: it may be unaligned."""
        whole = self.pieces[0] if len(self.pieces) == 1 else np.concatenate(self.pieces)
        whole = whole.astype(np.float32) if whole.itemsize == 2 else whole
        return whole.reshape(self.shape)

    def array(self) -> np.ndarray:
        """The array, in memory of its own."""
        short = self.pieces[0].itemsize == 2
        dtype = np.float32 if short else self.pieces[0].dtype.newbyteorder("=")
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
    raw: list[memoryview] = []
    raw_type = 0
    for number, kind, value in wire.fields(data):
        if len(dims) > AXES or len(single) + len(double) + len(raw) > PIECES:
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
        elif number == _RAW_TYPE:
            raw_type = wire.integer(kind, value)
        elif number == _RAW:
            raw.append(wire.message(kind, value))
    legacy = bool(old)  # as Caffe, which then does not look at `shape`
    shape = tuple(old.get(number, 0) for number in _LEGACY) if legacy else tuple(dims)
    if len(shape) > AXES or any(size < 0 for size in shape):
        raise ValueError(f"a blob has the shape {shape[:40]}")
    pieces = double or single or [_raw(raw_type, part) for part in raw[-1:]]
    found = sum(piece.size for piece in pieces)
    if math.prod(shape) != found:
        by = " x ".join(map(str, shape)) or "one number"
        raise ValueError(f"a blob promises {by}, holds {found} numbers")
    if len(pieces) > 1 and sum(piece.size == 0 for piece in pieces):
        pieces = [piece for piece in pieces if piece.size] or pieces[:1]
    return BlobProto(shape, legacy, pieces or [np.empty(0, np.float32)])


def _raw(kind: int, data: memoryview) -> np.ndarray:
    """The numbers of NVCaffe's raw_data, of a type by its number."""
    if not 0 <= kind < len(_TYPES):
        raise ValueError(f"a blob's raw_data is of type {kind}; expected double, float or float16")
    if len(data) % np.dtype(_TYPES[kind]).itemsize:
        raise ValueError(f"a blob's raw_data of {len(data)} bytes ends within a number")
    return np.frombuffer(data, _TYPES[kind])


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
