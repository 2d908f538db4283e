"""Text files that list other files: read as data, their paths looked for, nothing executed."""

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage.file_kinds import ReadAt, reading, recognised

LARGEST = 1 << 30  # bytes of a list


def find(path: str, folders: Sequence[Path | None], what: str) -> Path:
    """A file by its path: from the current folder, then from each of `folders`. Raises DataError."""
    file = Path(path)
    places = [file, *(folder / file for folder in folders if folder is not None)]
    places = list(dict.fromkeys(places))
    for place in places:
        if os.path.isfile(place):
            return place
    looked = " and ".join(repr(str(place)) for place in places)
    raise DataError(f"{what}: no such file; looked for {looked}")


def words(path: Path) -> list[str]:
    """The words of a text file, which white space divides. Raises DataError for what is none."""
    listed = text(path).split()
    for word in listed:
        if not word.isprintable():
            raise DataError(f"{path}: is not a list of files: found {word[:40]!r}")
    return listed


def text(path: Path) -> str:
    """What a text file says. Raises DataError for one that is none, or too large."""
    with reading(path, "text"):
        file = ReadAt(path)
        if len(file) > LARGEST or recognised(path, "text"):
            raise ValueError(f"it has more than {LARGEST >> 20} MiB")
        return file[:].decode("utf-8-sig")


def files(path: Path) -> list[str]:
    """The paths that a list names, one a word, as HDF5Data takes them."""
    paths = words(path)
    if not paths:
        raise DataError(f"{path}: names no file")
    return paths


def labelled(path: Path) -> tuple[list[str], np.ndarray]:
    """The paths that a list names, one a line with the label behind it, as ImageData takes them."""
    names, labels = [], []
    for place, line in _lines(path):
        name, *rest = line.strip().rsplit(maxsplit=1)
        if not rest or not name.isprintable():
            raise DataError(f"{place}: expected a path and a label, got {line[:60]!r}")
        names.append(name)
        labels.append(integer(place, rest[0], "a label"))
    return names, np.array(labels, np.int64)


def pairs(path: Path) -> tuple[list[str], list[str]]:
    """The files that a list names, two in each line: a picture, and its annotation."""
    names, others = [], []
    for place, line in _lines(path):
        words = line.split()
        if len(words) != 2 or not line.strip().isprintable():
            raise DataError(f"{place}: expected a picture and its annotation, got {line[:60]!r}")
        names.append(words[0])
        others.append(words[1])
    return names, others


def _lines(path: Path) -> list[tuple[str, str]]:
    """Returns the lines of a list that name a picture, each with its place. Raises DataError if none does."""
    lines = enumerate(text(path).splitlines(), 1)
    listed = [(f"{path}:{number}", line) for number, line in lines if line.strip()]
    if not listed:
        raise DataError(f"{path}: names no picture")
    return listed


@dataclass
class Windows:
    """What a window file lists: pictures, and windows in them as rows (picture, label, x1, y1, x2, y2)."""

    pictures: list[str]
    sizes: list[tuple[int, int]] = field(repr=False)  # (h, w) of each picture, as the file says
    foreground: np.ndarray = field(repr=False)
    background: np.ndarray = field(repr=False)


def windows(path: Path, fg_threshold: float, bg_threshold: float) -> Windows:
    """The windows of a file, divided by how far they overlap an object; R-CNN's format, over and over:

        # number   path   channels   height   width   count of windows
        class   overlap   x1   y1   x2   y2            for each window

    From `fg_threshold` on a window is of its class; below `bg_threshold` it is background, of label 0.
    """
    rest = iter(words(path))
    pictures: list[str] = []
    rows: tuple[list[list[int]], list[list[int]]] = ([], [])
    channels, sizes = set(), []
    while head := list(itertools.islice(rest, 7)):
        if len(head) < 7 or head[0] != "#":
            why = f"expected '# number path channels height width count', got {' '.join(head)!r}"
            raise DataError(f"{path}: {why}")
        number, count = (integer(path, head[i], "a number") for i in (1, 6))
        channels.add(integer(path, head[3], "a number of channels"))
        if number != len(pictures):
            raise DataError(f"{path}: expected picture {len(pictures)}, found number {number}")
        pictures.append(head[2])
        sizes.append((integer(path, head[4], "a height"), integer(path, head[5], "a width")))
        for _ in range(count):
            row = list(itertools.islice(rest, 6))
            if len(row) < 6:
                raise DataError(f"{path}: picture {number} promises {count} windows, holds fewer")
            label, *box = (integer(path, row[i], "an integer") for i in (0, 2, 3, 4, 5))
            overlap = _number(path, row[1])
            if overlap >= fg_threshold:
                if label <= 0:
                    problem = f"a window on an object has label {label}, expected 1 or more"
                    raise DataError(f"{path}: {problem}")
                rows[0].append([number, label, *box])
            elif overlap < bg_threshold:
                rows[1].append([number, 0, *box])
    if channels != {3}:
        raise DataError(f"{path}: expected pictures of 3 channels, found {sorted(channels)}")
    return Windows(pictures, sizes, *[np.array(part, np.int64).reshape(-1, 6) for part in rows])


def integer(place: object, word: str, what: str) -> int:
    """A word as a whole number of 32 bits; errors call it `what`. Raises DataError."""
    try:
        value = int(word)
    except ValueError:
        value = 2**31
    if not -(2**31) <= value < 2**31:
        raise DataError(f"{place}: expected {what}, found {word[:40]!r}")
    return value


def _number(path: Path, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise DataError(f"{path}: expected a number, found {word[:40]!r}") from None
