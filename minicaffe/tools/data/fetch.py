"""The data sets known by name: fetched, and installed once all of a data set's files are whole and right."""

import hashlib
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from minicaffe.errors import DataError, did_you_mean, note, raised_as, reason
from minicaffe.storage.caches import TEMPORARY
from minicaffe.tools.data import idx

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class Known:
    """A data set known by name; `files`: of each .gz the size and SHA-256, of its array shape and raw MD5."""

    mirrors: Sequence[str]
    files: dict[str, Any]
    content: str = ""
    licence: str = ""


@dataclass(frozen=True)
class Archive:
    """A data set published as one .tar.gz: its size and digests, and the sizes of the files in it."""

    mirrors: Sequence[str]
    file: str
    size: int
    sha256: str
    md5: str
    folder: str  # that the files lie in
    members: dict[str, int]
    content: str = ""
    licence: str = ""


PUBLISHED = json.loads((Path(__file__).parent / "published.json").read_text("utf-8"))
KNOWN = {name: Known(**row) for name, row in PUBLISHED["data"].items()}
ARCHIVES = {name: Archive(**row) for name, row in PUBLISHED["archives"].items()}
CIFAR10 = "cifar10"
SETS: dict[str, Known | Archive] = {**KNOWN, **ARCHIVES}  # those that can be fetched
NAMES = tuple(SETS)
TIMEOUT = 10.0  # seconds to wait for a connection, and for each piece
MOST = 1 << 30  # bytes of a file whose size only the server says
_PIECE = 1 << 16
_WORDS = {"sha256": "SHA-256", "sha1": "SHA-1", "md5": "MD5", "git_blob": "SHA-1 of git's blob"}


class NoTransferError(Exception):
    """A mirror did not return the bytes; the message says why, in a few words."""


def download(
    what: str,
    path: Path,
    size: int | None,
    digests: Mapping[str, str],
    mirrors: list[str],
    progress: bool,
) -> None:
    """Write the file `path` from the first mirror that has it; a mirror that fails moves to the end.

    A `size` that is not known is what the server says, at most MOST. `digests` are as `matches` takes them.
    Raises DataError with each mirror's reason if none of them has the right bytes, OSError if they cannot be
    written.
    """
    from tqdm import tqdm

    reasons = []
    shown: Any = {"desc": path.name, "total": 0, "disable": None if progress else True}
    shown |= {"unit": "iB", "unit_scale": True, "unit_divisor": 1024}
    for mirror in tuple(mirrors):
        try:
            with open(path, "wb") as out, tqdm(**shown) as bar:
                for piece in _sent(f"{mirror.rstrip('/')}/{path.name}", size, bar):
                    out.write(piece)
                out.flush()
                os.fsync(out.fileno())
            if matches(path, digests):
                return
            why = f"the {_WORDS[next(iter(digests))]} does not match"
        except NoTransferError as error:
            why = str(error)
        reasons.append(f"{mirror}: {why}")
        mirrors.append(mirrors.pop(mirrors.index(mirror)))
    said, unpacked = "; ".join(reasons) or "no mirror given", ", unpacked" * (".tar" in path.name)
    raise DataError(
        f"cannot fetch {what}: {path.name}: {said}; a file that you have from elsewhere goes into"
        f" {path.parent.parent}{unpacked}"
    )


def matches(path: Path, digests: Mapping[str, str]) -> bool:
    """True if a file has these digests.

    They go by the names of hashlib's functions; `git_blob` is the name that git gives the file's content, the
    SHA-1 of b"blob SIZE\\0" and the content.
    """
    computed = {
        name: hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        if name == "git_blob"
        else hashlib.new(name, usedforsecurity=False)
        for name in digests
    }
    with open(path, "rb") as file:
        while piece := file.read(idx.PIECE):
            for digest in computed.values():
                digest.update(piece)
    return all(computed[name].hexdigest() == wanted for name, wanted in digests.items())


def _sent(url: str, size: int | None, bar: Any) -> Iterator[bytes]:
    """Yields what a server sends, `size` bytes or what it says, and moves `bar`. Raises NoTransferError."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    headers = {"User-Agent": "minicaffe", "Accept-Encoding": "identity"}
    try:
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as response:
            bar.total = size = _size(response.headers.get("Content-Length"), size)
            count = 0
            while count < size:
                piece = response.read1(min(_PIECE, size - count))
                if not piece:
                    raise NoTransferError(f"broke off after {count} of {size} bytes")
                count += len(piece)
                bar.update(len(piece))
                yield piece
    except HTTPError as error:
        error.close()
        raise NoTransferError(f"HTTP {error.code} {error.reason}") from error
    except (OSError, ValueError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, TimeoutError):
            raise NoTransferError(f"no answer within {TIMEOUT:g} s") from error
        why = reason(cause) if isinstance(cause, BaseException) else str(cause)
        raise NoTransferError(why) from error


def _size(length: str | None, size: int | None) -> int:
    """Returns the size of a file of which a server says the length. Raises NoTransferError."""
    if length is not None and size is not None and length.strip() != str(size):
        raise NoTransferError(f"offers {length} bytes, expected {size}")
    if size is not None:
        return size
    if length is None or not re.fullmatch("[0-9]{1,12}", length.strip()):
        raise NoTransferError("does not say how long the file is")
    if int(length) > MOST:
        raise NoTransferError(f"offers {int(length)} bytes, expected at most {MOST}")
    return int(length)


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
    """The files in `folder` that spell `file` (one of FILES): idx3 or idx4, - or . before it, plain or .gz."""
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


def missing(name: str, why: str) -> str:
    """Returns what is to be said of a known data set that could not be fetched."""
    return (
        f"{name} was not found and could not be fetched ({why}); with a network:"
        f" minicaffe fetch {name}; or set MINICAFFE_DATA to the folder that holds it"
    )


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
        problem = f"expected {', '.join(known)}{did_you_mean(name, known)}"
        raise DataError(f"cannot fetch {name!r}: {problem}")
    home = Path(folder) / name
    addresses = list(known[name].mirrors if mirrors is None else mirrors)
    with installing(name, home) as beside:
        if name in KNOWN:
            for file, published in _lacking(name, home).items():
                digests = {"sha256": published["sha256"]}
                path = beside / f"{file}.gz"
                download(name, path, published["size"], digests, addresses, progress)
            return home
        archive = ARCHIVES[name]
        sizes = {path.name: path.stat().st_size for path in home.iterdir() if path.is_file()}
        if not archive.members.items() <= sizes.items():
            packed = beside / archive.file
            digests = {"sha256": archive.sha256, "md5": archive.md5}
            download(name, packed, archive.size, digests, addresses, progress)
            unpack(packed, archive, beside)
            packed.unlink()
    return home


@contextmanager
def installing(name: str, home: Path) -> Iterator[Path]:
    """A folder in `home` whose files get their places in `home` at the end; what is made and stays empty goes.

    Other processes that fetch into `home` wait. Raises DataError for a folder that cannot be written.
    """
    new = [path for path in (home, home.parent) if not path.exists()]
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
        for path in new:
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


def _lacking(name: str, home: Path) -> dict[str, Any]:
    """Returns the files of a data set to fetch. Raises DataError for one that would hide the right one."""
    lacking = {}
    for file, published in KNOWN[name].files.items():
        path = next(find(home, file), None)
        if path is None or not _is_right(path, published):
            if path not in (None, home / f"{file}.gz"):
                raise DataError(f"cannot fetch {name}: {path} is not {name}'s: remove it first")
            lacking[file] = published
    return lacking


def _is_right(path: Path, published: Mapping[str, Any]) -> bool:
    """True if a file holds the published array, however it is packed."""
    try:
        if list(idx.read_shape(path)) != published["shape"]:
            return False
        array = idx.read(path)
    except DataError:
        return False
    raw = hashlib.md5(idx.header(array.shape), usedforsecurity=False)
    raw.update(array.data)
    return bool(raw.hexdigest() == published["raw_md5"])


def unpack(packed: Path, archive: Archive, home: Path) -> None:
    """Unpack the files that an archive should hold into `home`; what else it holds is passed over.

    Raises DataError if one of them is missing, twice there, of another size, or no regular file.
    """
    written, damage = set[str](), (ValueError, EOFError, tarfile.TarError, zlib.error)
    with raised_as(DataError, f"{packed.name}: is not a whole archive of {archive.folder}", damage):
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
