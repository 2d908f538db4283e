"""The IDX format of MNIST: a big-endian header, then the bytes of one array, plain or gzipped.

    00 00 | 08 (uint8) | axes | size of axis 0 | ... of axis 1 | ... | the array, last axis fastest
      2   |     1      |  1   |       4        |       4       | ... | product of the sizes  (bytes)

What a header promises is compared with what the file can hold before any memory is taken.
"""

import gzip
import math
import os
import stat
import struct
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from minicaffe.errors import DataError, raised_as
from minicaffe.storage import checkpoint
from minicaffe.storage.file_kinds import reading, recognised

PIECE = 1 << 20  # bytes moved at once through gzip
_EXPANSION = 1032  # deflate's best: 258 bytes from 2 bits
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEVEL = 6
_MAX_AXES = 4
_TYPES = {8: "uint8", 9: "int8", 11: "int16", 12: "int32", 13: "float32", 14: "float64"}


def read_shape(path: Path | str, axes: Collection[int] = (1, 2, 3, 4)) -> tuple[int, ...]:
    """The array's shape, from the header alone; `axes` are the counts of axes to accept.

    Raises DataError, in one line that names the file, for whatever is wrong with it. Of the array
    itself, only a plain file's size is checked.
    """
    with _opened(Path(path), axes) as (_, shape):
        return shape


def read(path: Path | str, axes: Collection[int] = (1, 2, 3, 4)) -> np.ndarray:
    """The array, uint8, of the shape in the header; `axes` are the counts of axes to accept.

    The file must hold exactly what its header promises. Peak memory is the array and about 2 MiB.
    Raises DataError, in one line that names the file, for whatever is wrong with it.
    """
    path = Path(path)
    with _opened(path, axes) as (file, shape):
        count, sizes = math.prod(shape), _by(shape)
        try:
            array = np.empty(count, np.uint8)
            shaped = array.reshape(shape)
        except (MemoryError, ValueError) as error:
            why = f"an array of {sizes} ({count / 2**20:.0f} MiB) does not fit in memory"
            raise DataError(f"{path}: {why}") from error
        room, done = array.data, 0
        while done < count:
            got = file.readinto(room[done : done + PIECE])
            if not got:
                raise DataError(
                    f"{path}: cut short: expected {count} bytes for {sizes}, found {done}"
                )
            done += got
        if file.read(1):
            problem = f"expected {count} bytes for {sizes}, found more bytes after them"
            raise DataError(f"{path}: {problem}")
        return shaped


def write(path: Path | str, array: np.ndarray) -> None:
    """Write `array` (uint8, 1 to 4 axes) atomically; gzipped when the name ends in .gz.

    Killed at any instant, the file under that name is the old one or the new one, complete. The
    same array becomes the same bytes. Raises DataError for another array, or a failing disk.
    """
    path = Path(path)
    if array.dtype != np.uint8 or not 1 <= array.ndim <= _MAX_AXES or max(array.shape) >= 2**32:
        raise DataError(
            f"{path}: IDX files hold uint8 with 1 to {_MAX_AXES} axes,"
            f" not {array.dtype} with {array.ndim}"
        )
    body = np.ascontiguousarray(array).reshape(-1).data

    def save(file: IO[bytes]) -> None:
        if path.name.endswith(".gz"):
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
                packed.write(header(array.shape))
                for start in range(0, len(body), PIECE):
                    packed.write(body[start : start + PIECE])
        else:
            file.write(header(array.shape))
            file.write(body)

    checkpoint.replace(path, save, DataError)


def header(shape: tuple[int, ...]) -> bytes:
    """The bytes in front of a uint8 array of that shape."""
    return bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape)


@contextmanager
def _opened(path: Path, axes: Collection[int]) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """The stream of the array's bytes, and the array's shape."""
    with reading(path, "IDX file"):
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise DataError(f"{path}: expected an IDX file, found {kind}")
        with open(path, "rb") as file:
            zipped = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if not zipped:
                yield file, _header(path, file, status.st_size, False, axes)
                return
            damage = (EOFError, zlib.error, gzip.BadGzipFile)
            damage_told = raised_as(DataError, f"{path}: damaged gzip file", damage)
            with damage_told, gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                yield unpacked, _header(path, unpacked, status.st_size, True, axes)


def _header(
    path: Path, file: Any, size: int, zipped: bool, axes: Collection[int]
) -> tuple[int, ...]:
    """Read the header and hold it against the file's `size` on disk."""
    magic = _exactly(path, file, 4)
    if magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        kind = None if zipped else recognised(path, "IDX file")
        raise DataError(
            f"{path}: not an IDX file: expected it to begin with 00 00 08 (or gzip's 1f 8b), found "
            f"{kind or magic[:3].hex(' ')}"
        )
    if magic[2] != 8:
        raise DataError(f"{path}: expected uint8 (type 08), found {_TYPES[magic[2]]}")
    count = magic[3]
    if not 1 <= count <= _MAX_AXES:
        raise DataError(f"{path}: expected 1 to {_MAX_AXES} axes, found {count}")
    shape = struct.unpack(f">{count}I", _exactly(path, file, 4 * count))
    sizes = _by(shape)
    if count not in axes:
        expected = " or ".join(map(str, axes))
        raise DataError(f"{path}: expected {expected} axes, found {count} ({sizes})")
    promised, head = 4 + 4 * count + math.prod(shape), f"{path}: the header promises {sizes}"
    if zipped and promised > _EXPANSION * size:
        raise DataError(
            f"{head}, {promised} bytes,"
            f" but a gzip file of {size} bytes cannot hold more than {_EXPANSION * size}"
        )
    if not zipped and promised != size:
        raise DataError(f"{head}: expected {promised} bytes, found {size}")
    return shape


def _exactly(path: Path, file: Any, count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        problem = f"cut short in its header: expected {count} bytes more, found {len(data)}"
        raise DataError(f"{path}: {problem}")
    return data


def _by(shape: tuple[int, ...]) -> str:
    """A shape as it is spoken: '60000x28x28'."""
    return "x".join(map(str, shape))
