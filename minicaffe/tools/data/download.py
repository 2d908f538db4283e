"""A file from the network: mirrors are asked in turn, and what one sends is taken if its digests are right."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minicaffe.errors import DataError, reason
from minicaffe.tools.data import idx

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
    reasons = []
    for mirror in tuple(mirrors):
        try:
            with open(path, "wb") as out, _bar(path.name, progress) as bar:
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
    raise DataError(f"cannot fetch {what}: {path.name}: {'; '.join(reasons) or 'no mirror given'}")


def _bar(name: str, progress: bool) -> Any:
    """Returns a bar of bytes, shown on a terminal alone."""
    from tqdm import tqdm

    units: Any = {"unit": "iB", "unit_scale": True, "unit_divisor": 1024}
    return tqdm(desc=name, total=0, disable=None if progress else True, **units)


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
    """Yields what a server sends, `size` bytes or as many as it says; a bar shows how far it is.

    Raises NoTransferError.
    """
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
    """Returns the size of a file of which a server says the length. Raises NoTransferError.

    >>> _size("7", None), _size(None, 7)
    (7, 7)
    """
    if length is not None and size is not None and length.strip() != str(size):
        raise NoTransferError(f"offers {length} bytes, expected {size}")
    if size is not None:
        return size
    if length is None or not re.fullmatch("[0-9]{1,12}", length.strip()):
        raise NoTransferError("does not say how long the file is")
    if int(length) > MOST:
        raise NoTransferError(f"offers {int(length)} bytes, expected at most {MOST}")
    return int(length)
