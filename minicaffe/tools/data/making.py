"""The samples of a part of a batch: read, made by the recipe, replaced where they are damaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data.draws import draws
from minicaffe.tools.data.reader.base import Reader

IN_A_ROW = 100  # damaged entries, after which there is no use in looking further
Damage = tuple[int, str]  # an entry, and what is wrong with it
Place = tuple[int, int]  # of a piece: the number of its batch, and its first row there


@dataclass
class Piece:
    """The rows `first` and on of a batch: of each its entry and epoch; `key` is of the random numbers."""

    batch: int
    slot: int
    first: int
    entries: np.ndarray
    epochs: np.ndarray
    key: int

    @property
    def place(self) -> Place:
        """Which batch it is a piece of, and from which row on."""
        return self.batch, self.first


class AnyRecipe(Protocol):
    """What a picture and its label become."""

    @property
    def numbers(self) -> int:
        """How many random numbers of a sample it looks at, at most."""

    def sample(self, picture: np.ndarray, label: Any, chance: np.ndarray, out: np.ndarray) -> Any:
        """Write what the net sees of a picture into `out`; returns the label that belongs to it."""


@dataclass(frozen=True)
class Maker:
    """Makes samples of what a reader returns. With `skip`, those that are damaged are replaced.

    What a sample becomes is a function of (key, epoch, entry). A damaged one is replaced by the next entry
    of the data set that is not, cut and coloured by its own random numbers.
    """

    reader: Reader
    recipe: AnyRecipe
    skip: bool

    def make(
        self, piece: Piece, pictures: np.ndarray, labels: np.ndarray, wanted: np.ndarray
    ) -> list[Damage]:
        """Fill the rows of a piece, unless only later batches are `wanted`; returns what was damaged.

        Raises DataError for a damaged entry that is not to be skipped.
        """
        chance = draws(piece.key, piece.epochs, piece.entries, self.recipe.numbers)
        damaged: list[Damage] = []
        for i, entry in enumerate(piece.entries):
            if wanted[0] > piece.batch:
                break
            row = piece.first + i
            labels[row] = self._sample(int(entry), chance[i], pictures[row], damaged)
        return damaged

    def _sample(
        self, entry: int, chance: np.ndarray, out: np.ndarray, damaged: list[Damage]
    ) -> Any:
        """Make a sample; returns its label."""
        for further in range(min(IN_A_ROW, len(self.reader))):
            there = (entry + further) % len(self.reader)
            try:
                picture, label = self.reader[there]
                return self._make(there, picture, label, chance, out)
            except DataError as error:
                if not self.skip:
                    raise
                damaged.append((there, str(error)))
        raise DataError(f"{damaged[-1][1]}; and so are the {len(damaged) - 1} before it")

    def _make(
        self, entry: int, picture: np.ndarray, label: Any, chance: np.ndarray, out: np.ndarray
    ) -> Any:
        try:
            return self.recipe.sample(picture, label, chance, out)
        except DataError as error:
            raise error.at(self.reader.place(entry)) from None
