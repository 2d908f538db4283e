"""A run's log: one JSON object a line, added at the end; what cannot be written now is written later."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minicaffe.errors import CheckpointError
from minicaffe.storage.checkpoint import check_regular
from minicaffe.storage.file_kinds import reading


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


LARGEST = 2**30  # bytes of a log that is read
Check = tuple[Callable[[Any], bool], str]  # of a value, and what is expected in words


def _is_number(value: Any) -> bool:
    """True for a finite number, or null where there was none."""
    return value is None or (type(value) in (int, float) and abs(value) < math.inf)


def _are_numbers(value: Any) -> bool:
    """True for numbers, or lists of them in any depth, by name."""
    todo = [*value.values()] if isinstance(value, dict) else [value]
    while todo:  # no recursion: lists in lists may be deeper than Python's stack
        item = todo.pop()
        if isinstance(item, list):
            todo += item
        elif not _is_number(item):
            return False
    return isinstance(value, dict)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


NUMBER: Check = (_is_number, "a number")
COUNT: Check = (lambda value: type(value) is int and 0 <= value < 2**62, "a count")  # an iteration
TEXT: Check = (lambda value: isinstance(value, str), "a text")
OUTPUTS: Check = (_are_numbers, "numbers by name")
BEST: Check = (lambda value: isinstance(value, bool), "true or false")
NEEDED: dict[str, dict[str, Check]] = {
    "train": {"outputs": OUTPUTS},
    "test": {"outputs": OUTPUTS},
    "snapshot": {"path": TEXT, "best": BEST},
    "event": {"text": TEXT},
}
NUMBERS = {
    "train": (
        *("epoch", "loss", "lr", "images_per_s", "seconds"),
        *("memory_mib", "gradient_norm", "weight_norm"),
    ),
    "test": ("epoch", "seconds"),
    "snapshot": ("seconds",),
    "event": ("seconds",),
}
RUN = dict.fromkeys(("name", "model", "started", "state", "cwd", "snapshot_prefix"), TEXT)
RUN |= dict.fromkeys(("command", "imports", "tests_on"), (_are_texts, "a list of texts"))
RUN["iteration"] = COUNT


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a log, each checked; numbers that one lacks are None.

    A truncated or zero-filled last line is ignored: whoever wrote it was stopped. Keys that are not known
    stay. Raises CheckpointError, with the line's number, for a line that is not as `docs/runs.md` has it.
    """
    whole, _, _ = _bytes(file).rstrip(b"\0").rpartition(b"\n")
    return [_line(line, f"{file}:{n}") for n, line in enumerate(whole.split(b"\n"), 1) if line]


def read_run(file: Path) -> dict[str, Any]:
    """What run.json says, checked. Raises CheckpointError."""
    run = {"tests_on": [], **_object(_bytes(file), str(file))}  # which older runs do not say
    _check(run, RUN, str(file))
    return run


def _bytes(file: Path) -> bytes:
    with reading(file, "log", CheckpointError):
        check_regular(file)
        if file.stat().st_size > LARGEST:
            raise CheckpointError(
                f"{file}: is larger than a log that can be read ({LARGEST} bytes)"
            )
        return file.read_bytes().removeprefix(b"\xef\xbb\xbf")  # that Notepad writes


def _line(text: bytes, where: str) -> dict[str, Any]:
    line = _object(text, where)
    kind = line.get("kind")
    if not isinstance(kind, str) or kind not in NEEDED:
        known = ", ".join(NEEDED)
        raise CheckpointError(f"{where}: kind: expected one of {known}, got {shown(kind)}")
    line |= {key: line.get(key) for key in NUMBERS[kind]}
    numbers = dict.fromkeys(NUMBERS[kind], NUMBER)
    _check(line, {"iteration": COUNT, **numbers, **NEEDED[kind]}, where)
    return line


def _object(text: bytes, where: str) -> dict[str, Any]:
    def no_number(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number of JSON's")

    try:
        value = json.loads(text.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        problem = getattr(error, "msg", None) or str(error)
        raise CheckpointError(f"{where}: is no JSON: {problem}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: expected an object of JSON's, got {type(value).__name__}")
    return value


def shown(value: Any) -> str:
    """A value in an error: what it is, if it is long.

    >>> shown("a"), shown([[1]])
    ("'a'", 'list')
    """
    return type(value).__name__ if isinstance(value, (list, dict)) else f"{value!r:.60}"


def _check(values: Mapping[str, Any], wanted: Mapping[str, Check], where: str) -> None:
    for key, (right, what) in wanted.items():
        if key not in values:
            raise CheckpointError(f"{where}: has no {key!r}; expected {what}")
        if not right(values[key]):
            raise CheckpointError(f"{where}: {key}: expected {what}, got {shown(values[key])}")
