"""Protocol Buffers' wire format, as far as Caffe's binary files need it: fields out of bytes, and back.

    tag = number << 3 | kind, a varint; then   kind 0: a varint        kind 1: 8 bytes
                                               kind 2: length, bytes   kind 5: 4 bytes

A message is read where it lies, by views of the file's bytes, and a length is held against the bytes that are
left before anything is made of it. Damage raises ValueError; `opened` tells it with the name of the file.
"""

import errno
import math
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError, MinicaffeError
from minicaffe.storage.checkpoint import read_npy
from minicaffe.storage.file_kinds import foreign, reading

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LIMIT = 2**31 - 1  # bytes of a message that Protocol Buffers read
_FLOATS = {FIXED64: "<f8", FIXED32: "<f4"}
_RUN = 4096  # records compared at once at first, where one number follows another
AXES = 32  # Caffe's kMaxBlobAxes
PIECES = 1 << 16  # that one array may be in; writers make one
_LEGACY = (1, 2, 3, 4)  # num, channels, height, width
_DATA, _SHAPE, _DOUBLES = 5, 7, 8
_RAW_TYPE, _RAW = 10, 12
NPY = b"\x93NUMPY"  # how .npy files begin
_TYPES = ("<f8", "<f4", "<f2")  # NVCaffe's numbers for them
Part = bytes | np.ndarray  # of a message that is written: bytes, or an array's


@contextmanager
def opened(
    path: str | Path, what: str, error: type[MinicaffeError] = DataError
) -> Iterator[memoryview]:
    """The bytes of a file, mapped. Within it damage is told as by `reading`."""
    with reading(path, what, error):
        if stat.S_ISFIFO(os.stat(path).st_mode):  # to open one may wait for ever
            raise OSError(errno.EINVAL, "Is a pipe")
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        yield memoryview(mapped)


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place behind it."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), place + 1
        shift += 7
    raise ValueError(f"a number at byte {at} of a message has no end")


def fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """(number, kind, value) of each field: an int, the bytes as a view, or an array.

    Where numbers of 4 or 8 bytes follow each other under one tag (a list that is not packed), all of them
    are one value, an array of floats that lies in `data`; a single one is an array of one.
    """
    at, end = 0, len(data)
    while at < end:
        start = at
        tag, at = varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number < 2**29:
            raise ValueError(f"a field at byte {start} of a message has the number {number}")
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
        elif kind == BYTES:
            size, at = varint(data, at)
            if size > end - at:
                raise ValueError(f"field {number} promises {size} bytes, {end - at} are left")
            yield number, kind, data[at : at + size]
            at += size
        elif kind in _FLOATS:
            width = at - start + np.dtype(_FLOATS[kind]).itemsize
            count = _equal_tags(data[start:], at - start, width)
            if not count:
                raise ValueError(f"field {number} is cut short")
            tagged = np.frombuffer(data, np.uint8, count * width, start).reshape(count, width)
            yield number, kind, tagged[:, at - start :].view(_FLOATS[kind])[:, 0]
            at = start + count * width
        else:
            raise ValueError(f"field {number} is of kind {kind}, which Caffe does not write")


def _equal_tags(data: memoryview, size: int, width: int) -> int:
    """How many whole records of `width` bytes begin with the first one's tag of `size` bytes."""
    most, count, step = len(data) // width, 0, _RUN
    first = np.frombuffer(data, np.uint8, size)
    while count < most:
        step = min(step, most - count)
        records = np.frombuffer(data, np.uint8, step * width, count * width).reshape(step, width)
        equal = (records[:, :size] == first).all(axis=1)
        if not equal.all():
            return count + int(equal.argmin())
        count, step = count + step, 2 * step
    return count


def floats(kind: int, value: Any, dtype: str) -> np.ndarray:
    """A float field, packed or not, as an array that lies in the message; `dtype` is <f4 or <f8."""
    if kind == BYTES and len(value) % np.dtype(dtype).itemsize == 0:
        return np.frombuffer(value, dtype)
    if kind in _FLOATS and _FLOATS[kind] == dtype:
        return value
    raise ValueError(f"expected numbers of {np.dtype(dtype)}, found something else")


def integers(kind: int, value: Any, most: int) -> list[int]:
    """An integer field, packed or not, of at most so many. Negative ones are two's complement of 64 bits."""
    numbers, at = [value] if kind == VARINT else [], 0
    if kind not in (VARINT, BYTES):
        raise ValueError("expected integers, found something else")
    while kind == BYTES and at < len(value):
        one, at = varint(value, at)
        numbers.append(one)
        if len(numbers) > most:
            raise ValueError(f"expected at most {most} integers, found more")
    return [one - 2**64 if one >= 2**63 else one for one in numbers]


def integer(kind: int, value: Any) -> int:
    """An integer field of 32 bits: int32, bool or an enum, as Protocol Buffers read one."""
    if kind != VARINT:
        raise ValueError("expected an integer, found something else")
    value &= 2**32 - 1
    return value - 2**32 if value >= 2**31 else value


def message(kind: int, value: Any) -> memoryview:
    """A field of bytes: a message in the message."""
    if kind != BYTES:
        raise ValueError("expected a message, found something else")
    return value


def text(kind: int, value: Any, most: int = 4096) -> str:
    """A field of text, printable, for it goes into messages and names of files."""
    size = len(message(kind, value))
    decoded = bytes(value[:most]).decode("utf-8", "replace")
    if size > most or not decoded.isprintable():
        raise ValueError(f"expected printable text, found {decoded[:40]!r}")
    return decoded


def size_of(parts: Sequence[Part]) -> int:
    """Bytes of a message."""
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in parts)


def number_bytes(value: int) -> bytes:
    """A varint."""
    value &= 2**64 - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def put_integer(number: int, value: int) -> bytes:
    """An integer field."""
    return number_bytes(number << 3 | VARINT) + number_bytes(value)


def put(number: int, parts: Sequence[Part] | str) -> list[Part]:
    """A field of text, or of a message given in parts."""
    if isinstance(parts, str):
        parts = [parts.encode()]
    head = number_bytes(number << 3 | BYTES) + number_bytes(size_of(parts))
    return [head, *parts]


@dataclass
class BlobProto:
    """An array that lies in a message: its shape, and its numbers in pieces (one, but for odd writers).

        1 2 3 4   num, channels, height, width, of files from before 2014
        7         shape, a message whose field 1 is each axis's size
        5 8       the numbers, float or double: packed into one field, or a field each
        10 12     NVCaffe's in place of these, and OpenCV's shrinkCaffeModel's: their type, and their bytes

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
        array = self.view()
        return array.astype(array.dtype.newbyteorder("="))


def read_blob(path: str | Path) -> np.ndarray:
    """The array of a .binaryproto file. Raises DataError, in one line that names it, if it is not whole."""
    with opened(path, "BlobProto (.binaryproto)") as data:
        return parse_blob(data).array()


def read_array(path: Path) -> np.ndarray:
    """An array of an .npy file or, by any name, a BlobProto. Raises CheckpointError or DataError."""
    is_npy = path.suffix == ".npy"
    if not is_npy and path.is_file():
        with open(path, "rb") as file:
            is_npy = file.read(len(NPY)) == NPY
    if is_npy:
        return read_npy(path)
    if path.suffix != ".binaryproto" and (why := foreign(path, "arrays in .npy and .binaryproto")):
        raise DataError(why)
    return read_blob(path)


def parse_blob(data: memoryview) -> BlobProto:
    """The array of a message; its numbers stay where they are. Raises ValueError if they do not fit it."""
    dims: list[int] = []
    old: dict[int, int] = {}
    single: list[np.ndarray] = []
    double: list[np.ndarray] = []
    raw: list[memoryview] = []
    raw_type = 0
    for number, kind, value in fields(data):
        if len(dims) > AXES or len(single) + len(double) + len(raw) > PIECES:
            raise ValueError("a blob is in too many pieces, or has too many axes")
        if number == _DATA:
            single.append(floats(kind, value, "<f4"))
        elif number == _DOUBLES:
            double.append(floats(kind, value, "<f8"))
        elif number == _SHAPE:
            for inner, inner_kind, dim in fields(message(kind, value)):
                if inner == 1:
                    dims += integers(inner_kind, dim, AXES)
        elif number in _LEGACY:
            old[number] = integer(kind, value)
        elif number == _RAW_TYPE:
            raw_type = integer(kind, value)
        elif number == _RAW:
            raw.append(message(kind, value))
    legacy = bool(old)  # as Caffe, which then does not look at `shape`
    shape = tuple(old.get(number, 0) for number in _LEGACY) if legacy else tuple(dims)
    if len(shape) > AXES or any(size < 0 for size in shape):
        raise ValueError(f"a blob has the shape {shape[:40]}")
    pieces = double or single or [_raw(raw_type, part) for part in raw[-1:]]
    count = sum(piece.size for piece in pieces)
    if math.prod(shape) != count:
        by = " x ".join(map(str, shape)) or "one number"
        raise ValueError(f"a blob promises {by}, holds {count} numbers")
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


def blob_parts(array: Any) -> list[Part]:
    """The message of an array, float64 as doubles and all else as floats; in the order Caffe writes fields."""
    array = np.asarray(array)
    shape: list[Part] = []
    if array.ndim:  # of one without axes Caffe writes none, and OpenCV 4 reads no empty one
        shape = put(_SHAPE, put(1, [b"".join(map(number_bytes, array.shape))]))
    doubles = array.dtype == np.float64
    flat = np.ascontiguousarray(array, "<f8" if doubles else "<f4").reshape(-1)
    numbers = put(_DOUBLES if doubles else _DATA, [flat]) if flat.size else []
    return [*shape, *numbers] if doubles else [*numbers, *shape]
