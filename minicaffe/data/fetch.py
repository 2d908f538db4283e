"""The data sets known by name: where they are published, their digests, and fetching them.

A download grows in NAME.gz.part, which the next attempt resumes. Only once all four files of a data
set are complete and verified are they renamed into place: a folder is never left half MNIST.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minicaffe.data import idx
from minicaffe.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from http.client import HTTPResponse

TIMEOUT = 10.0  # seconds to wait for a connection, and for each piece
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_PIECE = 1 << 16


@dataclass(frozen=True)
class Published:
    """One published file: of its .gz the size and SHA-256, of the array the shape and raw MD5."""

    size: int
    sha256: str
    shape: tuple[int, ...]
    raw_md5: str


@dataclass(frozen=True)
class Known:
    """A data set known by name."""

    mirrors: tuple[str, ...]
    files: dict[str, Published]


_SHAPES = ((60000, 28, 28), (60000,), (10000, 28, 28), (10000,))


def _known(mirrors: tuple[str, ...], sizes: tuple[int, ...], sha256: str, raw_md5: str) -> Known:
    rows = zip(sizes, sha256.split(), _SHAPES, raw_md5.split(), strict=True)
    return Known(mirrors, {name: Published(*row) for name, row in zip(FILES, rows, strict=True)})


# Each in the order of FILES. Sizes and SHA-256 of the .gz files are those of TensorFlow Datasets
# (url_checksums/mnist.txt and fashion_mnist.txt), and torchvision's prototype data sets agree. The
# raw MD5 were computed from MNIST, and for Fashion-MNIST are those that several projects list.
KNOWN = {
    "mnist": _known(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (9912422, 28881, 1648877, 4542),
        """
        440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
        3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
        8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
        f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
        """,
        """
        6bbc9ace898e44ae57da46a324031adb
        a25bea736e30d166cdddb491f175f624
        2646ac647ad5339dbf082846283269ea
        27ae3e4e09519cfbb04c329615203637
        """,
    ),
    "fashion-mnist": _known(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (26421880, 29515, 4422102, 5148),
        """
        3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
        a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
        346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
        67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
        """,
        """
        f4a8712d7a061bf5bd6d2ca38dc4d50a
        9018921c3c673c538a1fc5bad174d6f9
        8181f5470baa50b63fa0f6fddb340f0a
        15d484375f8d13e6eb1aabb0c3f46965
        """,
    ),
}


def data_folder() -> Path:
    """Where data sets live: $MINICAFFE_DATA when set, else data/ under the current folder."""
    return Path(os.path.expanduser(os.environ.get("MINICAFFE_DATA") or "data"))


def find(folder: Path, file: str) -> Iterator[Path]:
    """The files in `folder` that spell `file` (one of FILES): plain or .gz, with - or . before idx.

    >>> list(find(Path("no/such/folder"), FILES[0]))
    []
    """
    dotted = file.replace("-idx", ".idx")
    for name in (file, f"{file}.gz", dotted, f"{dotted}.gz"):
        if os.path.isfile(folder / name):
            yield folder / name


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
                print(f"{path} was not {name}'s: kept as {path.name}.wrong", file=sys.stderr)
            for file, part in parts.items():
                os.replace(part, home / f"{file}.gz")
    except OSError as error:
        place = error.filename or home
        raise DataError(f"cannot fetch {name}: {place}: {idx.reason(error)}") from error
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
            print(f"waiting for another minicaffe that fetches into {home}", file=sys.stderr)
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
