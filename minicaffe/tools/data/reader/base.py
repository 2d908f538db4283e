"""What every data set is to those who read it: so many entries, each a picture and its label."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

Shape = tuple[int, int, int]
Entry = tuple[np.ndarray, int]


class Reader:
    """The entries of one split of a data set: `len(r)`, and `r[i]`, the picture (c, h, w) and its label.

    Pictures are uint8 or float32. `name` is what was asked for, `origin` where it was found; `shape` is
    (c, h, w), or None where sizes may vary; `classes` are the labels' names, or () if nothing names them;
    `blue_first`: three channels are blue, green, red, as OpenCV returns them to Caffe, not red, green, blue.
    Opening one reads headers and lists, no picture. A reader may be pickled, and used by a process forked off
    and by several threads: files are then opened anew where they must be.

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

    def __init__(self, *given: Any):
        self.given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.given

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

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Entry:
        images, labels = self.arrays()
        return images[i], int(labels[i])

    def fingerprint(self, i: int, depth: int) -> Any:
        """Returns the hash of an entry's numbers, computed once: for the last depth."""
        return hashlib.sha256(self[i][0].tobytes()).digest() if depth == 2 else b""

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError
