"""Pictures of any data set into one: an LMDB database as Caffe's convert_imageset writes it, or an .npz."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError, reason
from minicaffe.storage import checkpoint
from minicaffe.storage.caches import TEMPORARY, forget_left
from minicaffe.tools.data import annotated, datum
from minicaffe.tools.data.reader.base import Reader
from minicaffe.tools.data.reader.picture_set import PictureSet
from minicaffe.tools.data.survey import by, sound

_ROOM = 1 << 40  # bytes that a database may grow to; those of addresses, not of the disk
_KEY = 511  # bytes of a key that LMDB takes
_AT_ONCE = 1 << 23  # bytes of a transaction, about
Damaged = Callable[[DataError], None]


def to_lmdb(
    reader: Reader, entries: Iterable[int], folder: Path, damaged: Damaged, encoded: bool = False
) -> int:
    """Write a new database, three channels as blue, green, red; returns how many entries it has.

    Pictures with boxes become AnnotatedDatums. Keys are eight digits, an underscore and the picture's path,
    as Caffe's. `encoded`: files are kept as they are. The folder has its name once it is whole. Raises
    DataError without the package lmdb, and if there is something of that name.
    """
    try:
        import lmdb
    except ImportError:
        raise DataError(
            f"{folder}: writing an LMDB needs the package lmdb: pip install 'minicaffe[lmdb]'"
            " (NAME.npz needs nothing)"
        ) from None
    if os.path.lexists(folder):
        raise DataError(f"{folder}: is there already")
    if encoded and not isinstance(reader, PictureSet):
        raise DataError(f"{reader.origin}: only pictures in files of their own are kept encoded")
    try:
        forget_left(folder)
        with tempfile.TemporaryDirectory(TEMPORARY, f".{folder.name}.", folder.parent) as beside:
            with lmdb.open(beside, map_size=_ROOM, sync=False, lock=False, mode=0o666) as out:
                count = _put(out, _messages(reader, entries, damaged, encoded))
                out.sync(True)
            if not count:
                raise DataError(f"{folder}: not written: there is no picture to put in it")
            os.chmod(beside, 0o777 & ~checkpoint.umask())
            os.rename(beside, folder)
    except (OSError, lmdb.Error) as error:
        raise DataError(f"{folder}: cannot be written: {reason(error)}") from None
    return count


def _messages(
    reader: Reader, entries: Iterable[int], damaged: Damaged, encoded: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The key and the Datum of each entry."""
    for count, (i, picture, label) in enumerate(sound(reader, entries, damaged)):
        # A picture's path as a list has it, else the file's name
        name = reader.paths[i] if isinstance(reader, PictureSet) else reader.name
        key = f"{count:08d}_{name}".encode("utf-8", "surrogateescape")
        number = label if isinstance(label, int) else 0
        if encoded:
            value = datum.encoded(Path(reader.place(i)).read_bytes(), number)
        else:
            turned = len(picture) == 3 and not reader.blue_first
            value = datum.write(picture[::-1] if turned else picture, number)
        if isinstance(label, np.ndarray):  # boxes
            value = annotated.write(value, label)
        yield key[:_KEY], value


def _put(out: Any, messages: Iterator[tuple[bytes, bytes]]) -> int:
    """Write entries, some megabytes in a transaction; how many there were."""
    count, going = 0, True
    while going:
        size = 0
        with out.begin(write=True) as transaction:
            for key, value in messages:
                transaction.put(key, value, append=True)
                count, size = count + 1, size + len(value)
                if size >= _AT_ONCE:
                    break
        going = size >= _AT_ONCE
    return count


def to_npz(reader: Reader, entries: Iterable[int], path: Path, damaged: Damaged) -> int:
    """Write `images` (n, c, h, w), three channels as red, green, blue, and `labels` (n,); returns n.

    The pixels wait in a file without a name, not in memory. Raises DataError for pictures of several shapes.
    """
    labels: list[int] = []
    try:
        with tempfile.TemporaryFile(dir=path.parent) as pixels:
            shape, dtype = (0,), np.dtype(np.uint8)
            for i, picture, label in sound(reader, entries, damaged):
                if not labels:
                    shape, dtype = picture.shape, picture.dtype
                if (picture.shape, picture.dtype) != (shape, dtype):
                    raise DataError(
                        f"{reader.place(i)}: expected a picture of {by(shape)} in {dtype} as the first,"
                        f" found {by(picture.shape)} in {picture.dtype}; --resize makes them one size"
                    )
                turned = len(picture) == 3 and reader.blue_first
                pixels.write(np.ascontiguousarray(picture[::-1] if turned else picture).data)
                labels.append(label)
            if not labels:
                raise DataError(f"{path}: not written: there is no picture to put in it")
            pixels.flush()
            images = np.memmap(pixels, dtype, "r", shape=(len(labels), *shape))
            arrays: Any = {"images": images, "labels": np.array(labels, np.int32)}
            checkpoint.replace(path, lambda file: np.savez(file, **arrays), DataError)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {reason(error)}") from None
    return len(labels)
