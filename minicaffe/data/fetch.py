"""The data sets known by name: where they are published, their digests, and fetching them.

A download grows in NAME.gz.part, which the next attempt resumes. Only once all four files of a data
set are complete and verified are they renamed into place: a folder is never left half MNIST.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from minicaffe.data import idx
from minicaffe.data.known import KNOWN, Published
from minicaffe.errors import DataError, did_you_mean, note

if TYPE_CHECKING:
    from http.client import HTTPResponse

TIMEOUT = 10.0  # seconds to wait for a connection, and for each piece
_PIECE = 1 << 16


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
    mirror gives the right bytes (with each mirror's reason); then nothing is installed, and the
    next attempt resumes.
    """
    if name not in KNOWN:
        raise DataError(
            f"cannot fetch {name!r}: expected {' or '.join(KNOWN)}{did_you_mean(name, KNOWN)}"
        )
    home = Path(folder) / name
    addresses = list(KNOWN[name].mirrors if mirrors is None else mirrors)
    wrong: list[Path] = []
    parts: dict[str, Path] = {}
    made = [path for path in (home, Path(folder)) if not path.exists()]
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _alone(home):
            for file, published in KNOWN[name].files.items():
                for path in find(home, file):
                    if _is_right(path, published):
                        break
                    wrong.append(path)
                else:
                    parts[file] = home / f"{file}.gz.part"
            for file, part in parts.items():
                _download(name, file, part, KNOWN[name].files[file], addresses, progress)
            for path in wrong:
                os.replace(path, f"{path}.wrong")
                note(f"{path} was not {name}'s: kept as {path.name}.wrong")
            for file, part in parts.items():
                os.replace(part, home / f"{file}.gz")
    except OSError as error:
        place = error.filename or home
        raise DataError(f"cannot fetch {name}: {place}: {idx.reason(error)}") from error
    finally:
        for path in made:
            with suppress(OSError):  # what holds something stays
                path.rmdir()
    return home


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
    if _is_published(path, published):
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


def _is_published(path: Path, published: Published) -> bool:
    """Whether the file has the published size and SHA-256."""
    if path.stat().st_size != published.size:
        return False
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while piece := file.read(idx.PIECE):
            digest.update(piece)
    return digest.hexdigest() == published.sha256


class _NoTransferError(Exception):
    """A mirror did not give the bytes; the message says why, in a few words."""


def _download(
    name: str, file: str, part: Path, published: Published, mirrors: list[str], progress: bool
) -> None:
    """Complete `part` from the first mirror that can; a mirror that fails moves to the end."""
    reasons = []
    for mirror in tuple(mirrors):
        for _ in range(2):  # a second time when what was resumed turns out to be wrong
            have = part.stat().st_size if part.exists() else 0
            try:
                if have < published.size:
                    url = f"{mirror.rstrip('/')}/{file}.gz"
                    resumed = _transfer(url, part, published.size, progress)
                else:
                    resumed = True
                if _is_published(part, published):
                    return
                part.unlink()
                why = "the SHA-256 does not match"
            except _NoTransferError as error:
                resumed, why = False, str(error)
            if not resumed:
                break
        reasons.append(f"{mirror}: {why}")
        mirrors.append(mirrors.pop(mirrors.index(mirror)))
    raise DataError(f"cannot fetch {name}: {file}.gz: {'; '.join(reasons) or 'no mirror given'}")


def _transfer(url: str, part: Path, size: int, progress: bool) -> bool:
    """Fill `part` up to `size` bytes; True when it resumed what was there."""
    from http.client import HTTPException

    from tqdm import tqdm

    response, have = _request(url, part.stat().st_size if part.exists() else 0)
    resumed, why = have > 0, ""
    with response:
        length = response.headers.get("Content-Length")
        if length is not None and length.strip() != str(size - have):
            raise _NoTransferError(f"offers {length} bytes, expected {size - have}")
        with (
            open(part, "ab" if resumed else "wb") as out,
            tqdm(
                desc=part.stem,
                total=size,
                initial=have,
                unit="iB",
                unit_scale=True,
                unit_divisor=1024,
                disable=None if progress else True,
            ) as bar,
        ):
            while have < size and not why:
                try:
                    piece = response.read1(min(_PIECE, size - have))  # what has come so far
                except (OSError, HTTPException) as error:
                    piece, why = b"", _network_reason(error)
                if not piece:
                    why = f"broke off after {have} of {size} bytes {why and f'({why})'}".rstrip()
                out.write(piece)
                bar.update(len(piece))
                have += len(piece)
            out.flush()
            os.fsync(out.fileno())
    if why:
        raise _NoTransferError(why)
    return resumed


def _request(url: str, have: int) -> tuple[HTTPResponse, int]:
    """Ask for the bytes from `have` on: the response, and the byte that it begins with."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    for start in dict.fromkeys((have, 0)):
        headers = {"User-Agent": "minicaffe", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
        except HTTPError as error:
            error.close()
            if error.code == 416 and start:  # the server has no such range: ask for everything
                continue
            raise _NoTransferError(f"HTTP {error.code} {error.reason}") from error
        except (OSError, ValueError, HTTPException) as error:
            raise _NoTransferError(_network_reason(error)) from error
        if response.status != 206:
            return response, 0
        if response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return response, start
        response.close()
    raise _NoTransferError("answers with another range than it was asked for")


def _network_reason(error: BaseException) -> str:
    """A network failure in a few words.

    >>> _network_reason(TimeoutError())
    'no answer within 10 s'
    """
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    return idx.reason(cause) if isinstance(cause, BaseException) else str(cause)
