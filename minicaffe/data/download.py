"""Bytes from the network: a file grows under its own name, is resumed where it broke off, and is checked."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from minicaffe.data import idx
from minicaffe.errors import DataError, reason

if TYPE_CHECKING:
    from http.client import HTTPResponse

TIMEOUT = 10.0  # seconds to wait for a connection, and for each piece
MOST = 1 << 30  # bytes of a file whose size only the server says
_PIECE = 1 << 16


def download(
    what: str,
    part: Path,
    size: int | None,
    is_right: Callable[[Path], bool],
    mirrors: list[str],
    progress: bool,
    digest: str = "SHA-256",
) -> None:
    """Complete `part`, NAME.part, from the first mirror that can; a mirror that fails moves to the end.

    A `size` that is not known is what the server says, at most MOST. `digest` is what `is_right` compares, for
    errors. Raises DataError with each mirror's reason if none of them has the right bytes.
    """
    reasons = []
    for mirror in tuple(mirrors):
        for _ in range(2):  # a second time when what was resumed turns out to be wrong
            have = part.stat().st_size if part.exists() else 0
            try:
                if size is None and have and is_right(part):
                    return
                if size is None or have < size:
                    url = f"{mirror.rstrip('/')}/{part.stem}"
                    resumed = _transfer(url, part, size, progress)
                else:
                    resumed = True
                if is_right(part):
                    return
                part.unlink()
                why = f"the {digest} does not match"
            except NoTransferError as error:
                resumed, why = False, str(error)
            if not resumed:
                break
        reasons.append(f"{mirror}: {why}")
        mirrors.append(mirrors.pop(mirrors.index(mirror)))
    raise DataError(f"cannot fetch {what}: {part.stem}: {'; '.join(reasons) or 'no mirror given'}")


def matches(path: Path, size: int | None, **digests: str) -> bool:
    """Whether a file is of that size, if one is given, and has these digests.

    They go by the names of hashlib's functions; `git_blob` is the name that git gives the file's content, the
    SHA-1 of b"blob SIZE\\0" and the content.
    """
    found_size = path.stat().st_size
    if size is not None and found_size != size:
        return False
    found = {
        name: hashlib.sha1(b"blob %d\0" % found_size, usedforsecurity=False)
        if name == "git_blob"
        else hashlib.new(name, usedforsecurity=False)
        for name in digests
    }
    with open(path, "rb") as file:
        while piece := file.read(idx.PIECE):
            for digest in found.values():
                digest.update(piece)
    return all(found[name].hexdigest() == wanted for name, wanted in digests.items())


class NoTransferError(Exception):
    """A mirror did not return the bytes; the message says why, in a few words."""


def _transfer(url: str, part: Path, size: int | None, progress: bool) -> bool:
    """Fill `part` up to `size` bytes, or to what the server says; True when it resumed what was there."""
    from http.client import HTTPException

    from tqdm import tqdm

    response, have = _request(url, part.stat().st_size if part.exists() else 0)
    resumed, why = have > 0, ""
    with response:
        length = response.headers.get("Content-Length")
        if size is None:
            size = _told(length, have)
        elif length is not None and length.strip() != str(size - have):
            raise NoTransferError(f"offers {length} bytes, expected {size - have}")
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
        raise NoTransferError(why)
    return resumed


def _told(length: str | None, have: int) -> int:
    """The size of a file of which a server sends so many bytes, behind those that are there.

    >>> _told("7", 3)
    10
    """
    if length is None or not re.fullmatch("[0-9]{1,12}", length.strip()):
        raise NoTransferError("does not say how long the file is")
    if (size := have + int(length)) > MOST:
        raise NoTransferError(f"offers {size} bytes, expected at most {MOST}")
    return size


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
            raise NoTransferError(f"HTTP {error.code} {error.reason}") from error
        except (OSError, ValueError, HTTPException) as error:
            raise NoTransferError(_network_reason(error)) from error
        if response.status != 206:
            return response, 0
        if response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return response, start
        response.close()
    raise NoTransferError("answers with another range than it was asked for")


def _network_reason(error: BaseException) -> str:
    """A network failure in a few words.

    >>> _network_reason(TimeoutError())
    'no answer within 10 s'
    """
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    return reason(cause) if isinstance(cause, BaseException) else str(cause)
