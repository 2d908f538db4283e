"""Looking through a data set: which shapes, the range of values, their mean, what is damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data.reader.base import Reader, Shape

NAMED = 20  # damaged entries that are kept by name


@dataclass
class Damage:
    """The entries that could not be read: how many, and what is wrong with the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, error: DataError) -> None:
        """Count one."""
        self.count += 1
        if len(self.first) < NAMED:
            self.first.append(str(error))


@dataclass
class Survey:
    """What was found in the entries that were read; least and most are those of finite numbers."""

    shapes: Counter[Shape] = field(default_factory=Counter)
    dtypes: set[str] = field(default_factory=set)
    least: float = np.inf
    most: float = -np.inf
    not_finite: int = 0  # values
    sums: dict[int, np.ndarray] = field(default_factory=dict)  # by the number of channels
    pixels: Counter[int] = field(default_factory=Counter)
    damage: Damage = field(default_factory=Damage)

    def add(self, picture: np.ndarray) -> None:
        """Take in a picture (c, h, w)."""
        c, h, w = picture.shape
        self.shapes[c, h, w] += 1
        self.dtypes.add(str(picture.dtype))
        finite = picture if picture.dtype == np.uint8 else picture[np.isfinite(picture)]
        self.not_finite += picture.size - finite.size
        if finite.size:
            self.least = min(self.least, float(finite.min()))
            self.most = max(self.most, float(finite.max()))
        total = self.sums.setdefault(c, np.zeros(c))
        total += picture.sum(axis=(1, 2), dtype=np.float64)
        self.pixels[c] += h * w

    @property
    def range(self) -> tuple[float, float]:
        """The least and the most value; zeros if none is a finite number."""
        return (self.least, self.most) if self.least <= self.most else (0.0, 0.0)

    def means(self) -> dict[int, np.ndarray]:
        """The mean of each channel over all pixels, by the number of channels."""
        return {c: total / self.pixels[c] for c, total in self.sums.items()}


def survey(reader: Reader, entries: Iterable[int]) -> Survey:
    """Look through some entries of a data set; those that are damaged are counted."""
    found = Survey()
    for _, picture, _ in sound(reader, entries, found.damage.add):
        found.add(picture)
    return found


def sound(
    reader: Reader, entries: Iterable[int], damaged: Callable[[DataError], None]
) -> Iterator[tuple[int, np.ndarray, int]]:
    """(entry, picture, label) of the entries that can be read; of the others `damaged` is told."""
    for i in entries:
        try:
            picture, label = reader[i]
        except DataError as error:
            damaged(error)
        else:
            yield i, picture, label


def mean_image(reader: Reader, entries: Iterable[int]) -> np.ndarray:
    """The mean of pictures of one shape, (c, h, w) float64: their sum over their number.

    The sum is in float64, and so exact for 8 bits; one picture at a time is in memory. Raises DataError for an
    entry that is damaged or of another shape than the first, and for values that are no finite numbers.
    Source: Caffe's compute_image_mean.

    >>> from minicaffe.tools.data.reader.base import Reader
    >>> class Two(Reader):
    ...     def __getitem__(self, i):
    ...         return np.full((1, 1, 2), 10 * i, np.uint8), 0
    >>> mean_image(Two(), range(2))
    array([[[5., 5.]]])
    """
    total, count, first = np.zeros(0), 0, 0
    for i in entries:
        picture, _ = reader[i]
        if not count:
            total, first = np.zeros(picture.shape), i
        if picture.shape != total.shape:
            raise DataError(
                f"{reader.place(i)}: expected a picture of {by(total.shape)} as"
                f" {reader.place(first)}, found {by(picture.shape)}"
            )
        np.add(total, picture, out=total)
        count += 1
    if not count:
        raise DataError(f"{reader.origin}: holds no images")
    if not np.isfinite(total).all():
        raise DataError(f"{reader.origin}: holds values that are no finite numbers")
    return total / count


def by(shape: tuple[int, ...]) -> str:
    """A shape as it is spoken.

    >>> by((3, 32, 32))
    '3 x 32 x 32'
    """
    return " x ".join(map(str, shape))
