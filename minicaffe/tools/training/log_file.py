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
Check = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """A finite number, or null where there was none."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or (real and abs(value) < math.inf)


def is_count(value: Any) -> bool:
    """An integer that can be an iteration."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def is_text(value: Any) -> bool:
    """A text."""
    return isinstance(value, str)


def is_outputs(value: Any) -> bool:
    """Numbers, or lists of them in any depth, by name."""
    return isinstance(value, dict) and all(map(_is_output, value.values()))


def _is_output(value: Any) -> bool:
    todo = [value]  # no recursion: lists in lists may be deeper than Python's stack
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            todo += item
        elif not is_number(item):
            return False
    return True


def is_texts(value: Any) -> bool:
    """A list of texts."""
    return isinstance(value, list) and all(map(is_text, value))


NEEDED: dict[str, dict[str, tuple[Check, str]]] = {
    "train": {"outputs": (is_outputs, "numbers by name")},
    "test": {"outputs": (is_outputs, "numbers by name")},
    "snapshot": {
        "path": (is_text, "a text"),
        "best": (lambda value: isinstance(value, bool), "true or false"),
    },
    "event": {"text": (is_text, "a text")},
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
TEXT: tuple[Check, str] = (is_text, "a text")
TEXTS: tuple[Check, str] = (is_texts, "a list of texts")
RUN = dict.fromkeys(("name", "model", "started", "state", "cwd", "snapshot_prefix"), TEXT)
RUN |= dict.fromkeys(("command", "imports", "tests_on"), TEXTS)
RUN["iteration"] = (is_count, "a count")


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
    numbers = dict.fromkeys(NUMBERS[kind], (is_number, "a number"))
    _check(line, {"iteration": (is_count, "a count"), **numbers, **NEEDED[kind]}, where)
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


def _check(values: Mapping[str, Any], wanted: Mapping[str, tuple[Check, str]], where: str) -> None:
    for key, (right, what) in wanted.items():
        if key not in values:
            raise CheckpointError(f"{where}: has no {key!r}; expected {what}")
        if not right(values[key]):
            raise CheckpointError(f"{where}: {key}: expected {what}, got {shown(values[key])}")
