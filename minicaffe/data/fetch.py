"""The data sets known by name: where they are published, their digests, and fetching them.

A download grows in NAME.part, which the next attempt resumes. Only once all the files of a data set are
complete and verified are they renamed into place: a folder is never left half MNIST.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from minicaffe.data import archive, idx
from minicaffe.data.download import download, matches
from minicaffe.data.known import ARCHIVES, KNOWN, Archive, Known, Published
from minicaffe.errors import DataError, did_you_mean, note, reason


def data_folder() -> Path:
    """Where data sets live: $MINICAFFE_DATA when set, else data/ under the current folder."""
    return Path(os.path.expanduser(os.environ.get("MINICAFFE_DATA") or "data"))


def find(folder: Path, file: str) -> Iterator[Path]:
    """The files in `folder` that spell `file` (one of FILES): idx3 or idx4, - or . before it, plain or .gz.

    >>> list(find(Path("no/such/folder"), "train-images-idx3-ubyte"))
    []
    """
    for name in dict.fromkeys((file, file.replace("idx3", "idx4"))):
        for spelled in (name, name.replace("-idx", ".idx")):
            for path in (folder / spelled, folder / f"{spelled}.gz"):
                if os.path.isfile(path):
                    yield path


def fetch(
    name: str, folder: Path, mirrors: Sequence[str] | None = None, progress: bool = True
) -> Path:
    """Bring the data set `name` into `folder`/`name`, verified, and return that path.

    Right files that are already there are kept, whatever their compression; wrong ones are set
    aside as NAME.wrong. `mirrors` replaces the published addresses, `progress` shows a bar on a
    terminal. Raises DataError for an unknown name, a folder that cannot be written, and when no
    mirror has the right bytes (with each mirror's reason); then nothing is installed, and the
    next attempt resumes.
    """
    known: dict[str, Known | Archive] = {**KNOWN, **ARCHIVES}
    if name not in known:
        raise DataError(
            f"cannot fetch {name!r}: expected {', '.join(known)}{did_you_mean(name, known)}"
        )
    home = Path(folder) / name
    addresses = list(known[name].mirrors if mirrors is None else mirrors)
    with installing(name, home):
        if name in ARCHIVES:
            archive.bring(name, home, addresses, progress)
        else:
            _bring(name, home, addresses, progress)
    return home


@contextmanager
def installing(name: str, home: Path) -> Iterator[None]:
    """Have the folder `home` for oneself, to fetch `name` into; what is made for it and stays empty goes.

    Raises DataError for a folder that cannot be written.
    """
    made = [path for path in (home, home.parent) if not path.exists()]
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home):
            yield
    except OSError as error:
        place = error.filename or home
        raise DataError(f"cannot fetch {name}: {place}: {reason(error)}") from error
    finally:
        for path in made:
            with suppress(OSError):  # what holds something stays
                path.rmdir()


def set_aside(path: Path, name: str) -> None:
    """Keep a file that is not `name`'s under another name, and say so."""
    os.replace(path, f"{path}.wrong")
    note(f"{path} was not {name}'s: kept as {path.name}.wrong")


def _bring(name: str, home: Path, addresses: list[str], progress: bool) -> None:
    """Bring the IDX files of a data set into a folder."""
    wrong: list[Path] = []
    parts: dict[str, Path] = {}
    for file, published in KNOWN[name].files.items():
        for path in find(home, file):
            if _is_right(path, published):
                break
            wrong.append(path)
        else:
            parts[file] = home / f"{file}.gz.part"
    for file, part in parts.items():
        published = KNOWN[name].files[file]
        check = partial(matches, size=published.size, sha256=published.sha256)
        download(name, part, published.size, check, addresses, progress)
    for path in wrong:
        set_aside(path, name)
    for file, part in parts.items():
        os.replace(part, home / f"{file}.gz")


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Hold `home` against other processes that fetch into it, where the system can."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(home, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"waiting for another minicaffe that fetches into {home}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _is_right(path: Path, published: Published) -> bool:
    """Whether a file holds the published bytes, or the same array packed in another way."""
    if matches(path, published.size, sha256=published.sha256):
        return True
    try:
        if idx.read_shape(path) != published.shape:
            return False
        array = idx.read(path)
    except DataError:
        return False
    raw = hashlib.md5(idx.header(array.shape), usedforsecurity=False)
    raw.update(array.data)
    return raw.hexdigest() == published.raw_md5
