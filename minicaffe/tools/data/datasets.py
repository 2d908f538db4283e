"""From the `source` of a net's data layer to pictures and labels: where data sets are looked for.

A data set is a folder of four IDX files, named as MNIST's are; pictures with channels, which have four axes,
may be idx4 instead of idx3. When MNIST itself is nowhere and cannot be fetched, digits drawn by minicaffe
stand in for it, with a warning.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from minicaffe.errors import DataError, did_you_mean, note, reason
from minicaffe.storage import caches
from minicaffe.tools.data import fetch, idx
from minicaffe.tools.data.fetch import FILES, KNOWN, NAMES
from minicaffe.tools.data.reader.base import InMemory

Split = Literal["train", "test"]
DIGITS = "digits"
_DRAWING = 1  # raise it when digits.draw returns other pictures: cached ones are then drawn anew
_SEEDS = {"train": 1, "test": 2}
_FILES = {"train": FILES[:2], "test": FILES[2:]}
_COUNTS = {"train": 60000, "test": 10000}
_WARNING = (
    "BUILT-IN DRAWN DIGITS, NOT MNIST."
    " Accuracies are not MNIST accuracies. To get MNIST: minicaffe fetch mnist"
)
_warned: set[str] = set()  # why MNIST is missing, said once


@dataclass(frozen=True, eq=False)
class Dataset:
    """Pictures and labels in memory, and where they came from.

    images (count, channels, height, width) uint8; labels (count,) uint8; `origin` is to be printed;
    `warning` is set when the built-in digits stand in for the data asked for.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    origin: str
    warning: str | None = None

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Source:
    """A data set that stays in its files, of which only the batches are read."""

    name: str
    origin: str
    count: int
    unit: str = "images"
    warning: str | None = None

    def __len__(self) -> int:
        return self.count


def shape(source: str, split: Split, beside: Path | None = None) -> tuple[int, int, int, int]:
    """(count, channels, height, width) of a data set; reads headers, never downloads or draws.

    Raises DataError when the source is unknown, incomplete or damaged.
    """
    if source == DIGITS:
        return (_COUNTS[split], 1, 28, 28)
    home, lacks = _search(source, beside)
    if home is not None:
        return _checked(home, split)
    if source not in KNOWN:
        raise _unknown(source, beside, lacks)
    count, height, width = KNOWN[source].files[_FILES[split][0]]["shape"]
    return count, 1, height, width


def found(source: str, beside: Path | None = None) -> str | None:
    """The folder that a data set would be read from, or None if it is nowhere."""
    home, _ = _search(source, beside)
    return None if home is None else str(home)


def load(source: str, split: Split, beside: Path | None = None) -> Dataset:
    """The data set `source`: a folder of four IDX files, `mnist`, `fashion-mnist`, or `digits`.

    Searched: the path as given, from the current folder and then from `beside`, the model's folder;
    $MINICAFFE_DATA/source; data/source. Then a known name is fetched, unless MINICAFFE_OFFLINE is
    set. Raises DataError when the source is unknown, incomplete, damaged or out of reach.
    """
    if source == DIGITS:
        return _digits(source, split)
    home, lacks = _search(source, beside)
    if home is None:
        if source not in KNOWN:
            raise _unknown(source, beside, lacks)
        why = fetch.fetched(source)
        home, lacks = _search(source, beside)
        if home is None and lacks:
            remedy = f"complete it with: minicaffe fetch {source}"
            raise DataError(f"{lacks}, and {source} could not be fetched ({why}); {remedy}")
        missing = fetch.missing(source, why)
        if home is None and source != "mnist":
            raise DataError(missing)
        if home is None:
            if missing not in _warned:
                _warned.add(missing)
                note(f"minicaffe: {missing}")
            return _digits(source, split, _WARNING)
    return Dataset(source, *_arrays(home, split), str(home))


def places(source: str, beside: Path | None) -> list[Path]:
    """Where a source is looked for, in order, each once."""
    path = Path(source if "\0" in source else os.path.expanduser(source))  # which asks the system
    paths = [path]
    if beside is not None:
        paths.append(Path(beside) / path)
    if os.environ.get("MINICAFFE_DATA"):
        paths.append(fetch.data_folder() / path)
    paths.append(Path("data") / path)
    return list(dict.fromkeys(paths))


def is_one(folder: Path) -> bool:
    """Whether a folder holds four IDX files."""
    return all(any(fetch.find(folder, name)) for name in FILES)


def _search(source: str, beside: Path | None) -> tuple[Path | None, str]:
    """The first place with all four files; or None, and what the nearest to it lacks, if any."""
    complaint = ""
    for place in places(source, beside) if source else ():
        lacking = [name for name in FILES if not any(fetch.find(place, name))]
        if not lacking:
            return place, ""
        is_path = source not in KNOWN and os.path.isdir(place)
        if not complaint and (is_path or len(lacking) < len(FILES)):
            files = ", ".join(lacking)
            complaint = f"{place} lacks {files} (or the same with .gz, or as idx4 in colour)"
            if os.path.isdir(place) and not os.access(place, os.R_OK | os.X_OK):
                complaint = f"{place} cannot be read: Permission denied"
    return None, complaint


def _unknown(source: str, beside: Path | None, lacks: str) -> DataError:
    """The error for a source that is neither a complete folder nor a known name."""
    if lacks:
        return DataError(lacks)
    known = (*NAMES, DIGITS)
    if not source:
        return DataError(f"no data set named: expected a folder, or {', '.join(known)}")
    if os.path.isfile(source):
        return DataError(f"{source}: expected a folder of four IDX files, found a file")
    looked = ", ".join(map(str, places(source, beside)))
    near = [*known]  # and what lies where it was looked for, as a source would say it
    for place in places(source, beside):
        with suppress(OSError, ValueError):
            names = filter(str.isprintable, os.listdir(place.parent))
            near += [str(Path(source).with_name(name)) for name in names]
    return DataError(
        f"data set {source!r} not found, looked in {looked}; known by name: {', '.join(known)}"
        f"{did_you_mean(source, near)}"
    )


def _file(home: Path, name: str) -> Path:
    """The file that spells a name. Raises DataError if there is another with other axes."""
    first, *others = fetch.find(home, name)
    for other in others:
        if ("idx4" in first.name) != ("idx4" in other.name):
            raise DataError(f"{home} holds {first.name} and {other.name}: expected one of them")
    return first


def _checked(home: Path, split: Split) -> tuple[int, int, int, int]:
    """The pictures' shape from the headers of a found data set, checked against the labels'."""
    pictures, labels = (_file(home, name) for name in _FILES[split])
    count, *sizes = idx.read_shape(pictures, axes=(4,) if "idx4" in pictures.name else (3, 4))
    (labelled,) = idx.read_shape(labels, axes=(1,))
    if count != labelled:
        raise DataError(
            f"{labels}: expected {count} labels, one for each picture in {pictures.name},"
            f" found {labelled}"
        )
    if 0 in (count, *sizes):
        raise DataError(f"{pictures}: holds no pictures")
    height, width = sizes[-2:]
    return count, sizes[0] if len(sizes) == 3 else 1, height, width


def _arrays(home: Path, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The pictures (count, c, h, w) and labels of a found data set."""
    shape = _checked(home, split)
    images, labels = (idx.read(_file(home, name)) for name in _FILES[split])
    return images.reshape(shape), labels


def _digits(name: str, split: Split, warning: str | None = None) -> Dataset:
    """The drawn digits of a split, from the user's cache when they are there."""
    from minicaffe.tools.data import digits

    origin, expected = "drawn by minicaffe", (_COUNTS[split], 1, 28, 28)
    home = caches.folder() / f"digits-{_DRAWING}"
    try:
        held = all(any(fetch.find(home, file)) for file in _FILES[split])
        if held and _checked(home, split) == expected:
            return Dataset(name, *_arrays(home, split), origin, warning)
    except DataError as error:
        note(f"minicaffe: {error}: drawing it anew")
    seconds = _COUNTS[split] // 6000 + 1
    note(f"minicaffe: drawing {_COUNTS[split]} digits (some {seconds} s, then kept in {home})")
    images, labels = digits.draw(_COUNTS[split], _SEEDS[split])
    try:
        home.mkdir(parents=True, exist_ok=True)
        for file, array in zip(_FILES[split], (images, labels), strict=True):
            idx.write(home / f"{file}.gz", array)
    except (OSError, DataError) as error:
        note(f"minicaffe: the digits were not kept: {reason(error)}")
    return Dataset(name, images.reshape(expected), labels, origin, warning)


class IdxSet(InMemory):
    """The IDX files of a source; nothing is fetched or drawn before the first picture is asked for."""

    own_split = True

    def __init__(self, source: str, split: Split, beside: Path | None = None):
        self.name, self.given = source, (source, split, beside)
        self.count, *image = shape(source, split, beside)
        self.shape = (image[0], image[1], image[2])
        self.origin = found(source, beside) or "not fetched yet"

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns images (count, c, h, w) and labels (count,), fetched or drawn if they must be."""
        data = load(*self.given)
        if data.images.shape != (self.count, *(self.shape or ())):
            raise DataError(f"data set {self.name!r} changed while it was read")
        self.origin, self.warning = data.origin, data.warning
        return data.images, data.labels
