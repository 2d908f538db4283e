"""A data set published as one .tar.gz: fetched, and of its members those unpacked that are known."""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path

from minicaffe.data import idx
from minicaffe.data.download import download, matches
from minicaffe.data.known import ARCHIVES, Archive
from minicaffe.errors import DataError, reason

_MOST = 1000  # members that are looked at


def bring(name: str, home: Path, addresses: list[str], progress: bool) -> None:
    """Bring the files of an archive into a folder: all of them, or none. Right ones that are there stay.

    Raises DataError if no mirror has the right bytes, and OSError for a folder that cannot be written.
    """
    archive = ARCHIVES[name]
    for left in home.glob(".*.tmp"):  # by one that was killed
        left.unlink()
    part = home / f"{archive.file}.part"
    if all(_is_there(home / file, size) for file, size in archive.members.items()):
        part.unlink(missing_ok=True)  # of one that was killed once all were there
        return
    check = partial(matches, size=archive.size, sha256=archive.sha256, md5=archive.md5)
    download(name, part, archive.size, check, addresses, progress)
    unpack(part, archive, home)
    os.unlink(part)


def unpack(packed: Path, archive: Archive, home: Path) -> None:
    """Unpack the files that an archive should hold into `home`, once all of them are found whole.

    What else it holds is passed over. Raises DataError if one of them is missing, twice there, of another
    size, or no regular file.
    """
    written: dict[str, Path] = {}
    try:
        with tarfile.open(packed, "r|gz") as tar:
            for count, member in enumerate(tar):
                if count >= _MOST or member.size > archive.size * 4:
                    raise ValueError("it holds other files than it should")
                folder, _, file = member.name.rpartition("/")
                if folder != archive.folder or file not in archive.members:
                    continue
                wanted = archive.members[file]
                if not member.isreg() or member.size != wanted or file in written:
                    raise ValueError(f"{file}: expected a file of {wanted} bytes, once")
                written[file] = home / f".{file}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
                source = tar.extractfile(member)
                assert source is not None
                with open(written[file], "xb") as out:
                    shutil.copyfileobj(source, out, idx.PIECE)
                    out.flush()
                    os.fsync(out.fileno())
        missing = [file for file in archive.members if file not in written]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        for file, beside in written.items():
            os.replace(beside, home / file)
    except (ValueError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(
            f"{packed}: is not a whole archive of {archive.folder}: {reason(error)}"
        ) from None
    finally:
        for beside in written.values():
            with suppress(OSError):
                os.unlink(beside)


def _is_there(path: Path, size: int) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) == size
