"""What every data set is to those who read it: so many entries, each a picture and its label."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from minicaffe.errors import DataError

Shape = tuple[int, int, int]
Entry = tuple[np.ndarray, int]


class Reader:
    """The entries of one split of a data set: `len(r)`, and `r[i]`, the picture (c, h, w) and its label.

    Pictures are uint8 or float32. `name` is what was asked for, `origin` where it was found; `shape` is
    (c, h, w), or None where sizes may vary; `classes` are the labels' names, or () if nothing names them;
    `blue_first`: three channels are blue, green, red, as OpenCV returns them to Caffe, not red, green, blue.
    Opening one reads headers and lists, no picture. A reader may be used by several threads.

    r[i] raises DataError, in one line that begins with `r.place(i)`, for an entry that is damaged.
    """

    name: str
    origin: str
    shape: Shape | None = None
    classes: tuple[str, ...] = ()
    labels: Any = None  # an array of all, where they are known without the pictures
    blue_first = False
    label_shape: tuple[int, ...] = ()  # of a label that is an array, such as 0 and 1s, not a number
    own_split = False  # whether TRAIN and TEST read entries of their own
    in_order = False  # whether training does not shuffle them, unless it is asked to
    unit = "images"
    warning: str | None = None  # set where something stands in for what was asked for

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, i: int) -> Entry:
        raise NotImplementedError

    def label(self, i: int) -> int:
        """The label of an entry, of an array a number for it; its picture is left alone if that is quicker."""
        return self[i][1] if self.labels is None else int(self.labels[i])

    def vector(self, i: int) -> np.ndarray:
        """The label of an entry where that is an array of `label_shape`."""
        return np.asarray(self[i][1])

    def key(self, i: int) -> str:
        """What an entry is called, wherever the data set lies; what is held out for tests goes by it."""
        return str(i)

    def fingerprint(self, i: int, depth: int) -> Any:
        """What entries of the same bytes share, surer with each `depth` of 0, 1, 2; None if not known."""

    def place(self, i: int) -> str:
        """Where an entry lies, for people: a file, or an entry of one."""
        return f"{self.origin}: entry {i}"

    def arrays(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Images (count, c, h, w) and labels (count,) where they are kept in memory, else None."""
        return None


class InMemory(Reader):
    """A reader whose entries are all in memory once one is asked for: `count` of them, of its `arrays()`."""

    count: int
    held: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Entry:
        images, labels = self.arrays()
        return images[i], int(labels[i])

    def fingerprint(self, i: int, depth: int) -> Any:
        """Returns the hash of an entry's numbers, computed once: for the last depth."""
        return hashlib.sha256(self[i][0].tobytes()).digest() if depth == 2 else b""

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        if self.held is None:
            self.held = self.load()
        return self.held

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the arrays, read, fetched or drawn now."""
        raise NotImplementedError


SHARE = 0.2  # of each class, unless a layer says otherwise


class Subset(Reader):
    """Some entries of a reader, in its order; `which` says which they are, for people."""

    own_split = True

    def __init__(self, reader: Reader, entries: np.ndarray, which: str):
        self.reader, self.entries, self.which = reader, entries, which
        self.name, self.origin, self.shape = reader.name, reader.origin, reader.shape
        self.classes, self.unit = reader.classes, reader.unit
        self.label_shape = reader.label_shape
        self.blue_first, self.in_order = reader.blue_first, reader.in_order
        self.held: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, i: int) -> Entry:
        return self.reader[int(self.entries[i])]

    def label(self, i: int) -> int:
        return self.reader.label(int(self.entries[i]))

    def key(self, i: int) -> str:
        return self.reader.key(int(self.entries[i]))

    def vector(self, i: int) -> np.ndarray:
        return self.reader.vector(int(self.entries[i]))

    def place(self, i: int) -> str:
        return self.reader.place(int(self.entries[i]))

    def fingerprint(self, i: int, depth: int) -> Any:
        return self.reader.fingerprint(int(self.entries[i]), depth)

    def arrays(self) -> tuple[np.ndarray, np.ndarray] | None:
        if self.held is None and (whole := self.reader.arrays()) is not None:
            self.held = whole[0][self.entries], whole[1][self.entries]
        return self.held


def sides(reader: Reader, share: float) -> tuple[Subset, Subset] | None:
    """What training reads of a set, and what tests read: `share` of each class, rounded.

    Of the n different entries of a class the round(share n) are held out whose keys (`Reader.key`) have the
    smallest hashes, at least one of two or more, but not all: one that comes later moves one other at most.
    The hash is of the class's name, too: files are called alike in all classes. Entries of the same bytes are
    on one side, by the shortest of their keys, and in training where their labels differ. None if no class
    has two.
    """
    labels = np.array([reader.label(i) for i in range(len(reader))], np.int64)
    names = dict(enumerate(reader.classes))
    keys = [f"{names.get(label, label)}/{reader.key(i)}" for i, label in enumerate(labels.tolist())]
    numbers = np.array([_number(key) for key in keys])
    certain = np.ones(len(labels), bool)  # without copies that are in several classes
    for places in same_bytes([reader]):
        alike = [i for _, i in places]
        # Copies have longer names
        first = min(alike, key=lambda i: (len(reader.key(i)), reader.key(i)))
        certain[alike] = len(set(labels[alike])) == 1
        numbers[alike] = numbers[first]
    different: dict[int, set[float]] = {}
    for label, number in zip(labels[certain].tolist(), numbers[certain].tolist(), strict=True):
        different.setdefault(label, set()).add(number)
    ends = {}  # of each class the first number that is not held out
    for label, own in different.items():
        ends[label] = sorted(own)[min(max(1, round(share * len(own))), len(own) - 1)]
    held = certain & (numbers < [ends.get(label, 0.0) for label in labels.tolist()])
    if not held.any():
        return None
    percent = f"{100 * share:.4g} % of each class"
    return (
        Subset(reader, np.flatnonzero(~held), f"without the {percent} that is held out for tests"),
        Subset(reader, np.flatnonzero(held), f"the {percent} that is held out of training"),
    )


def class_counts(reader: Reader) -> Counter[int]:
    """Returns how many entries each class, or label, has, without those that cannot be read."""
    counts = Counter[int]()
    for i in range(len(reader)):
        with suppress(DataError):
            several = reader.label_shape
            counts.update(np.flatnonzero(reader.vector(i)) if several else [reader.label(i)])
    return counts


def same_bytes(readers: Sequence[Reader]) -> list[list[tuple[int, int]]]:
    """Returns groups of entries of the same bytes, each as the numbers of a reader and of an entry of it.

    Of files only those are read whole that have the size, and the bytes at both ends, of another.
    """
    every = [(which, i) for which, reader in enumerate(readers) for i in range(len(reader))]
    groups: dict[Any, list[tuple[int, int]]] = {None: every}
    for depth in range(3):
        finer: dict[Any, list[tuple[int, int]]] = {}
        for before, places in groups.items():
            for which, i in places:
                known = readers[which].fingerprint(i, depth)
                if known is not None:
                    finer.setdefault((before, known) if depth < 2 else known, []).append((which, i))
        groups = {key: places for key, places in finer.items() if len(places) > 1}
    return list(groups.values())


def _number(key: str) -> float:
    """The hash of a key as a number from 0 to 1.

    >>> round(_number("cat.png"), 4)
    0.7239
    """
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
