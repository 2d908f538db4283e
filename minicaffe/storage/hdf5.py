"""HDF5 files, read with suspicion: no link out of the file, no filter from a plug-in, sizes before memory.

What lies in a file by a name must be a dataset of numbers that the file itself holds: external and soft links,
virtual datasets and external storage are refused, filters other than HDF5's own too, and shapes that the bytes
stored for them cannot fill.
"""

import io
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError, MinicaffeError, did_you_mean, needed, pip_install
from minicaffe.storage.file_kinds import reading

FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32"}  # those that minicaffe reads
_MAGIC = b"\x89HDF\r\n\x1a\n"
_EXPANSION = 1100  # of deflate, at its best
_CHUNK = 1 << 28  # bytes of a chunk at most: one is in memory while it is read


def library(error: type[MinicaffeError] = DataError) -> Any:
    """The package h5py. Raises `error` without it."""
    with needed(error(f"HDF5 files need the package h5py: {pip_install('h5py')}")):
        import h5py
    return h5py


def is_one(path: str | Path) -> bool:
    """Whether a file begins as HDF5 files do, or bears their name and cannot be looked at."""
    with suppress(OSError):
        if os.path.isfile(path):  # who opens a pipe waits for it
            with open(path, "rb") as file:
                return file.read(len(_MAGIC)) == _MAGIC
    return str(path).lower().endswith(".h5")


@contextmanager
def opened(path: str | Path, error: type[MinicaffeError] = DataError) -> Iterator[Any]:
    """An HDF5 file to read. Within it, what h5py raises is told as `error`, with the file's name."""
    with damage_told(path, error), start(path, error) as file:
        yield file


def start(path: str | Path, error: type[MinicaffeError] = DataError) -> Any:
    """An HDF5 file to read, which the caller closes."""
    h5py = library(error)
    with damage_told(path, error):
        if not os.path.exists(path):
            raise FileNotFoundError
        if not os.path.isfile(path):
            raise ValueError("found no regular file")
        return h5py.File(path, "r", locking=False)


def damage_told(
    path: str | Path, error: type[MinicaffeError] = DataError
) -> AbstractContextManager[None]:
    """Within it, what h5py raises is told as `error`, with the file's name."""
    return reading(path, "HDF5 file", error, (RuntimeError, KeyError, TypeError, OverflowError))


class Writable(io.RawIOBase):
    """A file for HDF5 to write to, which is told of no failure, since it could not close the file then.

    Once the disk has failed nothing more is tried, and `check` raises that OSError.
    """

    def __init__(self, file: Any):
        self.file = file
        self.failure: OSError | None = None

    def attempt(self, call: Callable[..., Any], *args: Any) -> Any:
        """What a call returns, or None if it fails or another has failed."""
        if self.failure is None:
            try:
                return call(*args)
            except OSError as error:
                self.failure = error.with_traceback(None)  # whose frames hold the net
        return None

    def write(self, data: Any) -> int:  # noqa: D102
        self.attempt(self.file.write, data)
        return memoryview(data).nbytes

    def readinto(self, data: Any) -> int:  # noqa: D102
        self.attempt(self.file.readinto, data)
        return memoryview(data).nbytes

    def truncate(self, size: int | None = None) -> int:  # noqa: D102
        return self.attempt(self.file.truncate, size) or 0

    def seek(self, at: int, whence: int = os.SEEK_SET) -> int:  # noqa: D102
        return self.attempt(self.file.seek, at, whence) or 0

    def tell(self) -> int:  # noqa: D102
        return self.attempt(self.file.tell) or 0

    def flush(self) -> None:
        """As a file's; when this goes the file may be closed, of which Python 3.13 would tell."""
        if not self.file.closed:
            self.attempt(self.file.flush)

    def check(self) -> None:
        """Raise the failure there was, if any."""
        if self.failure is not None:
            raise self.failure


def child(group: Any, name: str) -> Any:
    """What a group holds under a name, by a hard link. Raises ValueError for another link, or none."""
    h5py = library()
    where = f"{group.name.rstrip('/')}/{name}"
    link = group.get(name, getlink=True)
    if link is None:
        raise ValueError(f"there is no {where!r}{did_you_mean(name, names(group))}")
    if not isinstance(link, h5py.HardLink):
        raise ValueError(f"{where!r} is a link elsewhere, which is not followed")
    return group[name]


def is_group(group: Any, name: str) -> bool:
    """Whether what lies under a name is a group. Raises ValueError as `child` does."""
    return isinstance(child(group, name), library().Group)


def names(group: Any) -> list[str]:
    """The names in a group, numbers in their order. Raises ValueError for one that is not printable."""
    held = list(group)
    for name in held:
        if not (isinstance(name, str) and name.isprintable()):
            raise ValueError(f"a name in {group.name!r} is not printable: {name!r:.60}")
    return sorted(held, key=lambda name: (len(name), name) if name.isdigit() else (0, name))


def dataset(group: Any, name: str) -> Any:
    """A dataset of numbers, looked at before any of it is read. Raises ValueError for what is not read."""
    h5py = library()
    array = child(group, name)
    where = f"{group.name.rstrip('/')}/{name}"
    if not isinstance(array, h5py.Dataset):
        raise ValueError(f"{where!r} is a group, expected a dataset")
    if array.dtype.kind not in "fiu" or array.shape is None:
        raise ValueError(f"{where!r} holds {array.dtype}, expected numbers")
    if array.is_virtual or array.external:
        raise ValueError(f"{where!r} lies in other files, which are not read")
    listed = array.id.get_create_plist()
    filters = [listed.get_filter(i)[0] for i in range(listed.get_nfilters())]
    strange = [number for number in filters if number not in FILTERS]
    if strange or len(set(filters)) < len(filters):
        known = ", ".join(FILTERS.values())
        raise ValueError(f"{where!r} is packed with filters {filters}; {known} are read, each once")
    promised = math.prod(array.shape) * array.dtype.itemsize
    stored = array.id.get_storage_size()
    if promised > stored * (_EXPANSION if 1 in filters else 1):
        raise ValueError(f"{where!r} promises {promised} bytes, {stored} are stored")
    if array.chunks is not None and math.prod(array.chunks) * array.dtype.itemsize > _CHUNK:
        raise ValueError(f"{where!r} has chunks of {array.chunks}, above {_CHUNK >> 20} MiB")
    return array


def number(group: Any, name: str) -> int:
    """A single integer."""
    array = dataset(group, name)
    if array.size != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name!r} holds {array.dtype} of {array.shape}, expected an integer")
    return int(np.asarray(array[()]).reshape(()))


def word(group: Any, name: str) -> str:
    """A text of at most 4096 bytes, printable."""
    array = child(group, name)
    kind = getattr(array, "dtype", None)
    if kind is None or array.shape not in ((), (1,)) or kind.itemsize > 4096:
        raise ValueError(f"{name!r} is no text")
    value = array[0] if array.shape else array[()]
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text.rstrip("\0")
    if kind.kind not in "SO" or len(text) > 4096 or not text.isprintable():
        raise ValueError(f"{name!r} is no printable text")
    return text
