"""A folder of four IDX files, a data set known by name, or the drawn digits: in memory once looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data import datasets
from minicaffe.tools.data.reader.base import InMemory


class IdxSet(InMemory):
    """The IDX files of a source; nothing is fetched or drawn before the first picture is asked for.

    >>> digits = IdxSet("digits", "test")
    >>> len(digits), digits.shape
    (10000, (1, 28, 28))
    """

    own_split = True

    def __init__(self, source: str, split: datasets.Split, beside: Path | None = None):
        super().__init__(source, split, beside)
        self.name = source
        self.count, *image = datasets.shape(source, split, beside)
        self.shape = (image[0], image[1], image[2])
        self.origin = datasets.found(source, beside) or "not fetched yet"
        self.data: datasets.Dataset | None = None

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        if self.data is None:
            data = datasets.load(*self.given)
            if data.images.shape != (self.count, *(self.shape or ())):
                raise DataError(f"data set {self.name!r} changed while it was read")
            self.data, self.origin, self.warning = data, data.origin, data.warning
        return self.data.images, self.data.labels
