"""The data sets known by name: fetched, and installed once all of a data set's files are whole and right."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from minicaffe.errors import DataError, did_you_mean, note, reason
from minicaffe.storage.caches import TEMPORARY
from minicaffe.tools.data import idx
from minicaffe.tools.data.download import download
from minicaffe.tools.data.known import ARCHIVES, KNOWN, Archive, Known, Published

OFFLINE = "MINICAFFE_OFFLINE is set"
_MEMBERS = 1000  # of an archive that are looked at

_failed: dict[tuple[str, str], str] = {}  # (name, folder) -> why


def data_folder() -> Path:
    """Where data sets live: $MINICAFFE_DATA when set, else data/ under the current folder."""
    return Path(os.path.expanduser(os.environ.get("MINICAFFE_DATA") or "data"))


def offline() -> bool:
    """True if nothing is to be fetched but by `minicaffe fetch`."""
    return os.environ.get("MINICAFFE_OFFLINE", "0") not in ("", "0")


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


def fetched(name: str) -> str:
    """Fetch a known data set that a net asks for: '' or, if it cannot be, why.

    A process asks only once, for the split that is loaded second must not differ in kind from the first.
    """
    folder = data_folder()
    key = name, str(folder.absolute())
    if key not in _failed:
        why = OFFLINE if offline() else ""
        if not why:
            note(f"minicaffe: fetching {name} into {folder / name}")
            try:
                fetch(name, folder)
            except DataError as error:
                why = str(error).removeprefix(f"cannot fetch {name}").lstrip(": ")
        if not why:
            return ""
        _failed[key] = why
    return _failed[key]


def fetch(
    name: str, folder: Path, mirrors: Sequence[str] | None = None, progress: bool = True
) -> Path:
    """Bring the data set `name` into `folder`/`name`, verified, and return that path.

    Right files that are there are kept, whatever their compression. `mirrors` replaces the published
    addresses, `progress` shows a bar on a terminal. Raises DataError for an unknown name, a folder that cannot
    be written, a file there that is another's, and when no mirror has the right bytes (with each mirror's
    reason); then nothing is installed.
    """
    known: dict[str, Known | Archive] = {**KNOWN, **ARCHIVES}
    if name not in known:
        raise DataError(
            f"cannot fetch {name!r}: expected {', '.join(known)}{did_you_mean(name, known)}"
        )
    home = Path(folder) / name
    addresses = list(known[name].mirrors if mirrors is None else mirrors)
    with installing(name, home) as beside:
        if name in ARCHIVES:
            _archive(name, home, beside, addresses, progress)
        else:
            for file, published in _lacking(name, home).items():
                digests = {"sha256": published.sha256}
                path = beside / f"{file}.gz"
                download(name, path, published.size, digests, addresses, progress)
    return home


@contextmanager
def installing(name: str, home: Path) -> Iterator[Path]:
    """A folder in `home` whose files get their places in `home` at the end; what is made and stays empty goes.

    Other processes that fetch into `home` wait. Raises DataError for a folder that cannot be written.
    """
    made = [path for path in (home, home.parent) if not path.exists()]
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home):
            for left in home.glob(f".*{TEMPORARY}"):  # by one that was killed
                shutil.rmtree(left)
            with TemporaryDirectory(TEMPORARY, ".", home) as beside:
                yield Path(beside)
                for path in sorted(Path(beside).iterdir()):
                    os.replace(path, home / path.name)
    except OSError as error:
        place = error.filename or home
        raise DataError(f"cannot fetch {name}: {place}: {reason(error)}") from error
    finally:
        for path in made:
            with suppress(OSError):  # what holds something stays
                path.rmdir()


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
        with suppress(OSError):  # of a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _lacking(name: str, home: Path) -> dict[str, Published]:
    """Returns the files of a data set to fetch. Raises DataError for one that would hide the right one."""
    lacking = {}
    for file, published in KNOWN[name].files.items():
        path = next(find(home, file), None)
        if path is None or not _is_right(path, published):
            if path not in (None, home / f"{file}.gz"):
                raise DataError(f"cannot fetch {name}: {path} is not {name}'s: remove it first")
            lacking[file] = published
    return lacking


def _is_right(path: Path, published: Published) -> bool:
    """True if a file holds the published array, however it is packed."""
    try:
        if idx.read_shape(path) != published.shape:
            return False
        array = idx.read(path)
    except DataError:
        return False
    raw = hashlib.md5(idx.header(array.shape), usedforsecurity=False)
    raw.update(array.data)
    return raw.hexdigest() == published.raw_md5


def _archive(name: str, home: Path, beside: Path, addresses: list[str], progress: bool) -> None:
    """Bring the files of an archive into the folder `beside`, unless `home` has all of them."""
    archive = ARCHIVES[name]
    sizes = {path.name: path.stat().st_size for path in home.iterdir() if path.is_file()}
    if archive.members.items() <= sizes.items():
        return
    packed = beside / archive.file
    digests = {"sha256": archive.sha256, "md5": archive.md5}
    download(name, packed, archive.size, digests, addresses, progress)
    unpack(packed, archive, beside)
    packed.unlink()


def unpack(packed: Path, archive: Archive, home: Path) -> None:
    """Unpack the files that an archive should hold into `home`; what else it holds is passed over.

    Raises DataError if one of them is missing, twice there, of another size, or no regular file.
    """
    written = set[str]()
    try:
        with tarfile.open(packed, "r|gz") as tar:
            for count, member in enumerate(tar):
                if count >= _MEMBERS or member.size > archive.size * 4:
                    raise ValueError("it holds other files than it should")
                folder, _, file = member.name.rpartition("/")
                if folder != archive.folder or file not in archive.members:
                    continue
                wanted = archive.members[file]
                if not member.isreg() or member.size != wanted or file in written:
                    raise ValueError(f"{file}: expected a file of {wanted} bytes, once")
                written.add(file)
                source = tar.extractfile(member)
                assert source is not None
                with open(home / file, "wb") as out:
                    shutil.copyfileobj(source, out, idx.PIECE)
                    out.flush()
                    os.fsync(out.fileno())
        if missing := [file for file in archive.members if file not in written]:
            raise ValueError(f"it lacks {', '.join(missing)}")
    except (ValueError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(
            f"{packed.name}: is not a whole archive of {archive.folder}: {reason(error)}"
        ) from None
