"""A run's log: one JSON object a line, added at the end; what cannot be written now is written later."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


class LogFile:
    """Adds lines to a file, which is opened for each: one that has gone, or is full, is noticed at once.

    `waiting` are the lines that could not be written so far.
    """

    def __init__(self, path: Path):
        self.path, self.waiting = path, list[bytes]()
        self.size = path.stat().st_size if path.exists() else 0  # of whole lines

    def add(self, line: Mapping[str, Any], kept: bool = False) -> None:
        """Add a line after those that wait; have all survive a power cut, too, if they are to be `kept`.

        Raises OSError if it cannot be done; then it is tried again with the next line.
        """
        self.waiting.append(json_line(line).encode() + b"\n")
        self.write(kept)

    def write(self, kept: bool = False) -> None:
        """Write what waits. Raises OSError; the file then ends with a whole line, if it still can be."""
        data = b"".join(self.waiting)
        with open(self.path, "ab", buffering=0) as file:
            if file.tell() != self.size:  # half a line of a failed attempt, or another's work
                self.size = file.truncate(min(self.size, file.tell()))
            if file.write(data) != len(data):
                file.truncate(self.size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            self.size += len(data)
            self.waiting.clear()
            if kept:
                os.fsync(file.fileno())


def json_line(value: Any) -> str:
    """A value as strict JSON in one line: arrays as lists, what is no finite number as null.

    >>> json_line({"loss": float("inf"), "per_class": np.array([0.5, 1], np.float32)})
    '{"loss": null, "per_class": [0.5, 1.0]}'
    """
    return json.dumps(plain(value), allow_nan=False)


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
