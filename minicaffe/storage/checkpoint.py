"""Named arrays in one .npz file: written atomically, read without pickle and with sizes checked."""

import contextlib
import errno
import math
import operator
import os
import stat
import tempfile
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from minicaffe.errors import CheckpointError, MinicaffeError, raised_as, reason
from minicaffe.storage.caches import TEMPORARY, forget_left
from minicaffe.storage.file_kinds import foreign, reading

# What NumPy and zipfile raise of damage, beside what `reading` knows
DAMAGE = (RuntimeError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error)


def write(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to `path`, as `replace` does."""
    replace(path, lambda file: np.savez(file, **arrays))


def replace(
    path: str | Path,
    save: Callable[[IO[bytes]], Any] | bytes,
    failure: type[MinicaffeError] = CheckpointError,
) -> None:
    """Write a file by `save(file)`, or these bytes: beside `path` first, flushed, then renamed over it.

    Raises `failure` if the file cannot be written, or if there is something else of that name, such as
    a folder or /dev/full; what stood there before is then intact.
    """
    path = Path(path)
    temporary = None
    try:
        if path.exists():
            check_regular(path)
        forget_left(path)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY, delete=False
        ) as file:
            temporary = file.name
            file.write(save) if isinstance(save, bytes) else save(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, path)
        flush_folder(path.parent)
    except BaseException as error:  # Ctrl-C leaves nothing behind either
        if temporary is not None:
            with contextlib.suppress(OSError):  # it stays, as where the process is killed
                os.unlink(temporary)
        if not isinstance(error, OSError):
            raise
        raise failure(f"{path}: cannot be written: {reason(error)}") from None


def umask() -> int:
    """Returns the permissions that this process takes from what it makes."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def flush_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut, where it can be opened and flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_regular(path: str | Path) -> None:
    """Raise OSError for what is no regular file: reading a pipe or a device may never end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Is a pipe or a device", str(path))


def read_npy(path: str | Path) -> np.ndarray:
    """The array of an .npy file. Raises CheckpointError for a file that is not a whole one."""
    with reading(path, ".npy file", CheckpointError, DAMAGE):
        check_regular(path)
        with open(path, "rb") as file:
            shape, dtype = read_header(file)
            promised, rest = math.prod(shape) * dtype.itemsize, os.path.getsize(path) - file.tell()
            if dtype.hasobject or promised != rest:
                raise ValueError(f"it promises {promised} bytes, holds {rest}")
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)


def check_finite(array: np.ndarray, dtype: Any, what: str) -> None:
    """Raise CheckpointError if an array holds what is not finite, or would not be as `dtype`."""
    with np.errstate(over="ignore"):
        if np.isfinite(array.astype(dtype, copy=False)).all():
            return
    large = np.isfinite(array).all()
    kind = f"numbers too large for {np.dtype(dtype)}" if large else "numbers that are not finite"
    raise CheckpointError(f"{what} holds {kind}")


F = TypeVar("F", bound="ArrayFile")


class ArrayFile:
    """An open file of arrays by name, whose shapes are known before any of them is read."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    layers: Mapping[str, Sequence[int]] | None = None  # of Caffe's: the numbers of each one's blobs
    fits: Callable[[tuple[int, ...], tuple[int, ...]], bool] = staticmethod(operator.eq)

    def __enter__(self: F) -> F:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns one array. Raises CheckpointError for a name that is not there or a damaged entry."""
        raise NotImplementedError


class Reader(ArrayFile):
    """An .npz file's arrays, their shapes known before any is read; `wanted` says what is read, in errors."""

    def __init__(
        self, path: str | Path, wanted: str = "weights in .npz, .safetensors and .caffemodel"
    ):
        self.path = Path(path)
        if self.path.exists() and (message := foreign(path, wanted)):
            raise CheckpointError(message)
        with reading(path, ".npz file", CheckpointError, DAMAGE):
            check_regular(path)
            self.zip = zipfile.ZipFile(self.path)
            names = [name for name in self.zip.namelist() if name.endswith(".npy")]
            if self.zip.namelist() and not names:
                raise ValueError  # an archive of other files, as its first bytes say
        self.shapes = {name.removesuffix(".npy"): self._header(name) for name in names}

    def __exit__(self, *_: object) -> None:
        self.zip.close()

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.shapes:
            raise CheckpointError(f"{self.path}: has no entry {name!r}")
        with self._opened(f"{name}.npy", name) as entry:
            return np.lib.format.read_array(entry, allow_pickle=False)

    @contextlib.contextmanager
    def _opened(self, entry: str, name: str) -> Iterator[IO[bytes]]:
        """An entry of the file. Within it damage is raised as CheckpointError, of the entry called `name`."""
        damage = (OSError, ValueError, EOFError, *DAMAGE)
        damage_told = raised_as(CheckpointError, f"{self.path}: entry {name!r} is damaged", damage)
        with damage_told, self.zip.open(entry) as file:
            yield file

    def _header(self, entry: str) -> tuple[int, ...]:
        info = self.zip.getinfo(entry)
        with self._opened(entry, entry) as file:
            shape, dtype = read_header(file)
            rest = info.file_size - file.tell()
        promised = math.prod(shape) * dtype.itemsize
        packed = info.file_size > 1100 * max(info.compress_size, 100)
        if dtype.hasobject or promised != rest or packed:
            problem = f"entry {entry!r} promises {promised} bytes, holds {rest}"
            raise CheckpointError(f"{self.path}: {problem}")
        return shape


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Returns the shape and type of the array in an .npy file or an entry of an .npz."""
    version = np.lib.format.read_magic(file)
    read: Any = np.lib.format.read_array_header_2_0
    if version == (1, 0):
        read = np.lib.format.read_array_header_1_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers that Python 2 wrote
        shape, _, dtype = read(file)
    return shape, dtype
