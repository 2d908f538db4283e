"""A file of a data set, read piece by piece while a net trains."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from pathlib import Path


class ReadAt:
    """The bytes of a file at any place, for several threads at once and for processes forked off.

    It is not mapped: a mapped file that somebody cuts short while it is read ends the process. `len` is its
    size when it was opened. Raises OSError for what cannot be opened, or is no file.

    >>> ReadAt(__file__)[:3]
    b'\"\"\"'
    """

    def __init__(self, path: str | Path):
        self.number = os.open(
            path, os.O_RDONLY | os.O_NONBLOCK
        )  # of a pipe, that may wait for ever
        self.close = weakref.finalize(self, os.close, self.number)
        about = os.fstat(self.number)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "Is no file")
        self.size = about.st_size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: slice) -> bytes:
        """The bytes from a place to another. Raises ValueError where they are not there any more."""
        start, stop, _ = place.indices(self.size)
        found = os.pread(self.number, stop - start, start)
        if len(found) < stop - start:
            raise ValueError("it was cut short while it was read")
        return found
