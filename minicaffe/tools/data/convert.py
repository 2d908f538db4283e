"""All entries of a data set, one by one: looked through, their mean taken, or written as another data set.

That is an LMDB database as Caffe's convert_imageset writes it, or an .npz.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError, needed, pip_install, raised_as
from minicaffe.storage import checkpoint
from minicaffe.storage.caches import TEMPORARY, forget_left
from minicaffe.tools.data import datum
from minicaffe.tools.data.reader.base import Reader, Shape
from minicaffe.tools.data.reader.picture_set import PictureSet

_ROOM = 1 << 40  # bytes that a database may grow to; those of addresses, not of the disk
_KEY = 511  # bytes of a key that LMDB takes
_AT_ONCE = 1 << 23  # bytes of a transaction, about
Damaged = Callable[[DataError], None]


@dataclass
class Survey:
    """What was found in the entries that were read; least and most are those of finite numbers."""

    shapes: Counter[Shape] = field(default_factory=Counter)
    dtypes: set[str] = field(default_factory=set)
    least: float = np.inf
    most: float = -np.inf
    not_finite: int = 0  # values
    sums: dict[int, np.ndarray] = field(default_factory=dict)  # by the number of channels
    pixels: Counter[int] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)  # what is wrong with entries

    def add(self, picture: np.ndarray) -> None:
        """Take in a picture (c, h, w)."""
        c, h, w = picture.shape
        self.shapes[c, h, w] += 1
        self.dtypes.add(str(picture.dtype))
        finite = picture if picture.dtype == np.uint8 else picture[np.isfinite(picture)]
        self.not_finite += picture.size - finite.size
        if finite.size:
            self.least = min(self.least, float(finite.min()))
            self.most = max(self.most, float(finite.max()))
        total = self.sums.setdefault(c, np.zeros(c))
        total += picture.sum(axis=(1, 2), dtype=np.float64)
        self.pixels[c] += h * w

    @property
    def range(self) -> tuple[float, float]:
        """The least and the most value; zeros if none is a finite number."""
        return (self.least, self.most) if self.least <= self.most else (0.0, 0.0)

    def means(self) -> dict[int, np.ndarray]:
        """The mean of each channel over all pixels, by the number of channels."""
        return {c: total / self.pixels[c] for c, total in self.sums.items()}


def survey(reader: Reader, entries: Iterable[int]) -> Survey:
    """Look through some entries of a data set; those that are damaged are named."""
    seen = Survey()
    for _, picture, _ in sound(reader, entries, lambda error: seen.damaged.append(str(error))):
        seen.add(picture)
    return seen


def sound(
    reader: Reader, entries: Iterable[int], damaged: Damaged
) -> Iterator[tuple[int, np.ndarray, int]]:
    """(entry, picture, label) of the entries that can be read; of the others `damaged` is told."""
    for i in entries:
        try:
            picture, label = reader[i]
        except DataError as error:
            damaged(error)
        else:
            yield i, picture, label


def mean_image(reader: Reader, entries: Iterable[int]) -> np.ndarray:
    """The mean of pictures of one shape, (c, h, w) float64: their sum over their number.

    The sum is in float64, and so exact for 8 bits; one picture at a time is in memory. Raises DataError for an
    entry that is damaged or of another shape than the first, and for values that are no finite numbers.
    Source: Caffe's compute_image_mean.
    """
    total, count, first = np.zeros(0), 0, 0
    for i in entries:
        picture, _ = reader[i]
        if not count:
            total, first = np.zeros(picture.shape), i
        if picture.shape != total.shape:
            raise DataError(
                f"{reader.place(i)}: expected a picture of {by(total.shape)} as"
                f" {reader.place(first)}, found {by(picture.shape)}"
            )
        np.add(total, picture, out=total)
        count += 1
    if not count:
        raise DataError(f"{reader.origin}: holds no images")
    if not np.isfinite(total).all():
        raise DataError(f"{reader.origin}: holds values that are no finite numbers")
    return total / count


def by(shape: tuple[int, ...]) -> str:
    """A shape as it is spoken: 3 x 32 x 32."""
    return " x ".join(map(str, shape))


def to_lmdb(
    reader: Reader, entries: Iterable[int], folder: Path, damaged: Damaged, encoded: bool = False
) -> int:
    """Write a new database, three channels as blue, green, red; returns how many entries it has.

    Pictures with boxes become AnnotatedDatums. Keys are eight digits, an underscore and the picture's path,
    as Caffe's. `encoded`: files are kept as they are. The folder has its name once it is whole. Raises
    DataError without the package lmdb, and if there is something of that name.
    """
    need = f"needs the package lmdb: {pip_install('lmdb')} (NAME.npz needs nothing)"
    with needed(DataError(f"{folder}: writing an LMDB {need}")):
        import lmdb
    if os.path.lexists(folder):
        raise DataError(f"{folder}: is there already")
    if encoded and not isinstance(reader, PictureSet):
        raise DataError(f"{reader.origin}: only pictures in files of their own are kept encoded")
    with raised_as(DataError, f"{folder}: cannot be written", (OSError, lmdb.Error)):
        forget_left(folder)
        with tempfile.TemporaryDirectory(TEMPORARY, f".{folder.name}.", folder.parent) as beside:
            with lmdb.open(beside, map_size=_ROOM, sync=False, lock=False, mode=0o666) as out:
                count = _put(out, _messages(reader, entries, damaged, encoded))
                out.sync(True)
            if not count:
                raise DataError(f"{folder}: not written: there is no picture to put in it")
            os.chmod(beside, 0o777 & ~checkpoint.umask())
            os.rename(beside, folder)
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
            value = datum.write_annotated(value, label)
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
    unwritable = raised_as(DataError, f"{path}: cannot be written")
    with unwritable, tempfile.TemporaryFile(dir=path.parent) as pixels:
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
    return len(labels)
