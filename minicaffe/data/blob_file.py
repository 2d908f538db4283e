"""One array in Caffe's binary format (a BlobProto, `.binaryproto`): a mean image, an infogain matrix.

It is a sequence of fields, a key (number << 3 | kind) before each. Those that count here:

    1 2 3 4   num, channels, height, width, of files from before 2014     kind 0, a varint
    7         shape, a message whose field 1 is each axis's size          kind 2, its length before it
    5 8       the numbers, float or double: packed into one field (kind 2), or a field each (kind 5 or 1)

Others are passed over. Nothing is taken that the file does not hold: packed numbers are a view of its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError

NUMBERS: dict[int, np.dtype] = {5: np.dtype("<f4"), 8: np.dtype("<f8")}
WIDTHS = {1: 8, 5: 4}  # bytes of a field of a fixed size, by its kind
MOST_AXES = 32  # Caffe's kMaxBlobAxes


def read(path: str | Path) -> np.ndarray:
    """The array of a BlobProto. Raises DataError, in one line that names the file, if it is not a whole one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     numbers = np.array([3, 4], "<f4").tobytes()
    ...     _ = Path(folder, "mean").write_bytes(b"\\x3a\\x04\\x0a\\x02\\x01\\x02\\x2a\\x08" + numbers)
    ...     read(Path(folder, "mean"))
    array([[3., 4.]], dtype=float32)
    """
    try:
        if not Path(path).is_file():
            raise ValueError("there is no regular file of that name")
        return _array(memoryview(Path(path).read_bytes()))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        name = str(path) if str(path).isprintable() else repr(str(path))
        raise DataError(f"{name}: is not a whole BlobProto (.binaryproto): {reason}") from None


def _array(data: memoryview) -> np.ndarray:
    parts: dict[int, list[np.ndarray]] = {5: [], 8: []}
    legacy, shape = {}, None
    for number, kind, value in _fields(data):
        if number in NUMBERS and kind != 0:
            parts[number].append(_numbers(value, NUMBERS[number]))
        elif number in (1, 2, 3, 4) and kind == 0:
            legacy[number] = value
        elif number == 7 and kind == 2:
            shape = [*(shape or ()), *_sizes(value)]
    if shape is None and not legacy:
        raise ValueError("it tells no shape")
    some = parts[8] or parts[5] or [np.empty(0, NUMBERS[5])]
    values = some[0] if len(some) == 1 else np.concatenate(some)
    sizes = [legacy.get(i, 0) for i in (1, 2, 3, 4)] if shape is None else shape
    if len(sizes) > MOST_AXES or math.prod(sizes) != values.size:
        by = " x ".join(map(str, sizes[:8])) or "one number"
        raise ValueError(f"it promises {by}, holds {values.size} numbers")
    return values.astype(values.dtype.newbyteorder("="), copy=False).reshape(sizes)


def _numbers(value: Any, dtype: np.dtype) -> np.ndarray:
    """The bytes of a packed field, or those (count, width) of neighbours that are a number each."""
    flat = np.frombuffer(value, np.uint8) if isinstance(value, memoryview) else value.ravel()
    if flat.size % dtype.itemsize:
        raise ValueError(f"{flat.size} bytes are no {dtype.name} numbers")
    return flat.view(dtype)


def _sizes(data: memoryview) -> Iterator[int]:
    """The sizes in a BlobShape, one a field or packed."""
    for number, kind, value in _fields(data):
        if number == 1 and kind == 0:
            yield value
        at = 0
        while number == 1 and kind == 2 and at < len(value):
            size, at = _varint(value, at)
            yield size


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Each field's number, kind and value; of a fixed size, all neighbours of one key as (count, bytes)."""
    at, whole = 0, np.frombuffer(data, np.uint8)
    while at < len(data):
        key, start = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, start)
            yield number, kind, value
        elif kind in WIDTHS:
            step = start - at + WIDTHS[kind]
            rows = whole[at : at + (len(data) - at) // step * step].reshape(-1, step)
            count = _run(rows[:, : start - at], whole[at:start])
            if not count:
                raise ValueError(f"it ends within field {number}")
            yield number, kind, rows[:count, start - at :]
            at += count * step
        elif kind == 2:
            size, start = _varint(data, start)
            at = start + size
            if at > len(data):
                left = len(data) - start
                raise ValueError(f"field {number} promises {size} bytes, {left} are left")
            yield number, kind, data[start:at]
        else:
            raise ValueError(f"field {number} is of kind {kind}, which a BlobProto has not")


def _run(keys: np.ndarray, key: np.ndarray) -> int:
    """How many of the first keys are `key`; time is proportional to that."""
    count, piece = 0, 64
    while count < len(keys):
        same = (keys[count : count + piece] == key).all(axis=1)
        if not same.all():
            return count + int(same.argmin())
        count, piece = count + len(same), 2 * piece
    return count


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first; and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("it ends, or goes wrong, within a number")
