"""A table of pictures and what is on them: a .csv or .tsv file, as spreadsheets and Kaggle have it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.storage import lists
from minicaffe.tools.data.reader.base import Entry
from minicaffe.tools.data.reader.picture_set import SPLITS, SUFFIXES, PictureSet

ENDINGS = (".csv", ".tsv")
PICTURES = ("image", "picture", "file", "filename", "file_name", "path", "photo", "img")
LABELS = ("label", "labels", "class", "classes", "category", "target")
SPLIT = ("split", "set", "subset")
WITHIN = {word: split for split, words in SPLITS.items() for word in words}
AND = ";"  # between the labels of a picture that has several


class TableSet(PictureSet):
    """The pictures of a table: a path in each row, and a label, or several.

    The first row names the columns, unless its first cell is a picture's path. The path is in a column
    named image, file, path ..., else in the first; the label in one named label, class ..., or the only
    other. Labels are numbers from 0 on, or names, which are numbered in their order. A picture has several
    labels if a cell holds names with ";" between them, or if each further column is 0 or 1 for the label
    it is named by: then `label_shape` is (labels,), and an entry's label is a vector of 0 and 1. A column
    named split says train, test or val. Paths are relative to the current folder, `root_folder` or the
    table's folder. Raises DataError, with the line, for a table that is not as this says.
    """

    def __init__(self, path: Path, name: str, split: str, *how: Any, **keys: Any):
        super().__init__(path, name, *how, **keys)
        self.list = path
        head, whole = _rows(path)
        image, labels, within = _columns(path, head)
        rows = whole
        if within is not None:
            self.own_split = True
            rows = [row for row in rows if self._split_of(row, within) == split]
            if not rows:
                raise DataError(f"{path}: has no row of the split {split}")
        self.paths = [row[image] for _, row in rows]
        places = [f"{path}:{line}" for line, _ in rows]
        cells = [[row[column] for column in labels] for _, row in rows]
        seen: dict[str, list[str]] = {}
        for at, name, own in zip(places, self.paths, cells, strict=True):
            if seen.setdefault(name, own) != own:
                raise DataError(
                    f"{at}: {name} has another label than in a row above; several labels of a picture"
                    f" stand in one cell, with {AND!r} between them"
                )
        if len(labels) > 1:
            self.classes = tuple(head[column] for column in labels)
            self.vectors = np.array(
                [[_bit(cell, at) for cell in row] for row, at in zip(cells, places, strict=True)],
                np.float32,
            )
        else:
            every = [row[labels[0]] for _, row in whole]  # all splits number names in the same way
            self._by_words([row[0] for row in cells], places, every)
        if self.label_shape or len(labels) > 1:
            self.label_shape = (self.vectors.shape[1],)
            self.labels = np.where(self.vectors.any(axis=1), self.vectors.argmax(axis=1), -1)

    def _split_of(self, numbered: tuple[int, list[str]], column: int) -> str:
        line, row = numbered
        word = row[column].strip().lower()
        if word not in WITHIN:
            raise DataError(
                f"{self.list}:{line}: expected the split train, test or val, got {word!r:.40}"
            )
        return WITHIN[word]

    def _by_words(self, cells: list[str], places: list[str], every: list[str]) -> None:
        """Labels of one column: numbers, names, or several names; `every` are those of the whole table."""
        if any(AND in cell for cell in every):
            names = sorted({one.strip() for cell in every for one in cell.split(AND)} - {""})
            number = {name: i for i, name in enumerate(names)}
            self.classes, self.label_shape = tuple(names), (len(names),)
            self.vectors = np.zeros((len(cells), len(names)), np.float32)
            for i, cell in enumerate(cells):
                for one in filter(None, map(str.strip, cell.split(AND))):
                    self.vectors[i, number[one]] = 1
            return
        if all(cell.removeprefix("-").isdecimal() for cell in every):
            numbers = map(lists.integer, places, cells, ["a label"] * len(cells))
            self.labels = np.array(list(numbers), np.int64)
            return
        empty = next((at for cell, at in zip(cells, places, strict=True) if not cell), None)
        if empty is not None:
            raise DataError(f"{empty}: expected a label, got an empty cell")
        self.classes = tuple(sorted(set(every) - {""}))
        number = {name: i for i, name in enumerate(self.classes)}
        self.labels = np.array([number[cell] for cell in cells], np.int64)

    def __getitem__(self, i: int) -> Entry:
        picture, label = super().__getitem__(i)
        return (picture, self.vectors[i]) if self.label_shape else (picture, label)

    def vector(self, i: int) -> np.ndarray:
        return self.vectors[i]


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, "" if there are none, and the rows with their line numbers."""
    text = lists.text(path)
    kind = "excel-tab" if path.suffix.lower() == ".tsv" else "excel"
    if kind == "excel" and ";" in (first := text.partition("\n")[0]) and "," not in first:
        raise DataError(f"{path}:1: expected commas between columns, found ';'")
    reader = csv.reader(io.StringIO(text, newline=""), kind, strict=True)
    rows = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num, [cell.strip() for cell in row]))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: is not a table: {error}") from None
    if not rows:
        raise DataError(f"{path}: holds no rows")
    width = len(rows[0][1])
    for line, row in rows:
        if len(row) != width:
            raise DataError(f"{path}:{line}: expected {width} columns, got {len(row)}")
        if not all(cell.isprintable() for cell in row):
            raise DataError(f"{path}:{line}: is not a table of text")
    if width < 2:
        raise DataError(f"{path}:1: expected a picture's path and a label in each row")
    if rows[0][1][0].lower().endswith((*SUFFIXES, ".npy")):
        return [""] * width, rows
    if len(rows) == 1:
        raise DataError(f"{path}: holds no rows below the names of its columns")
    return rows[0][1], rows[1:]


def _columns(path: Path, head: list[str]) -> tuple[int, list[int], int | None]:
    """The columns of the path, of the labels, and of the split, if there is one."""
    names = [name.lower() for name in head]
    image = next((i for i, name in enumerate(names) if name in PICTURES), 0)
    within = next((i for i, name in enumerate(names) if name in SPLIT and i != image), None)
    rest = [i for i in range(len(names)) if i not in (image, within)]
    labels = [i for i in rest if names[i] in LABELS][:1] or rest
    if not labels:
        raise DataError(f"{path}:1: expected a column of labels beside {head[image]!r:.40}")
    if len(labels) > 1 and not head[labels[0]]:
        raise DataError(f"{path}:1: expected names of the columns, for there are several labels")
    return image, labels, within


def _bit(cell: str, at: str) -> float:
    """0 or 1."""
    if cell in ("0", "1", "0.0", "1.0"):
        return float(cell)
    raise DataError(
        f"{at}: expected 0 or 1 in each column of labels, got {cell!r:.40}; of one label a picture the"
        f" column is called {LABELS[0]}"
    )
