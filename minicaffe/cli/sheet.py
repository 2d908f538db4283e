"""A contact sheet: a few pictures of each class, side by side."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from minicaffe.errors import DataError
from minicaffe.tools.data.reader.base import Reader

CELL = 64  # pixels across a picture, at most
GAP, TEXT = 4, 12
ROWS, COLUMNS = 20, 12  # classes, and pictures of each


def draw(reader: Reader, values: tuple[float, float]) -> Any:
    """The sheet, a picture of Pillow's: a row a class, its name on the left; of many classes the first.

    `values` are the least and the most of floating-point pictures, which become black and white. Entries that
    are damaged are left out. Raises DataError without Pillow.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise DataError(
            "a sheet needs the package Pillow: pip install 'minicaffe[image]'"
        ) from None
    rows = _rows(reader)
    names = {label: _name(reader, label) for label in rows}
    left = GAP + max(len(name) for name in names.values()) * 7 + GAP
    width = left + max(map(len, rows.values())) * (CELL + GAP)
    page = Image.new("RGB", (width, GAP + len(rows) * (CELL + GAP)), "white")
    pen = ImageDraw.Draw(page)
    for row, (label, entries) in enumerate(rows.items()):
        top = GAP + row * (CELL + GAP)
        pen.text((GAP, top + (CELL - TEXT) // 2), names[label], "black")
        for column, entry in enumerate(entries):
            with suppress(DataError):
                picture = Image.fromarray(_pixels(reader[entry][0], reader.blue_first, values))
                scale = CELL / max(picture.size)
                size = [max(1, round(side * scale)) for side in picture.size]
                sharp = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX
                at = (
                    left + column * (CELL + GAP) + (CELL - size[0]) // 2,
                    top + (CELL - size[1]) // 2,
                )
                page.paste(picture.resize(size, sharp), at)
    return page


def _rows(reader: Reader) -> dict[int, list[int]]:
    """The entries that are shown of each class: evenly spread over those that it has."""
    found: dict[int, list[int]] = {}
    for i in range(len(reader)):
        with suppress(DataError):
            found.setdefault(reader.label(i), []).append(i)
    rows = {}
    for label in sorted(found)[:ROWS]:
        every = found[label]
        count = min(COLUMNS, len(every))
        rows[label] = [every[k * len(every) // count] for k in range(count)]
    return rows


def _name(reader: Reader, label: int) -> str:
    known = reader.classes[label] if 0 <= label < len(reader.classes) else str(label)
    known = "".join(c if c.isprintable() else "?" for c in known[:24])
    return known.encode("ascii", "replace").decode()  # what Pillow's font has


def _pixels(picture: np.ndarray, blue_first: bool, values: tuple[float, float]) -> np.ndarray:
    """A picture (c, h, w) as (h, w) or (h, w, 3), uint8."""
    if picture.dtype != np.uint8:
        least, most = values
        picture = (255 * (picture - least) / ((most - least) or 1)).clip(0, 255)
        picture = np.nan_to_num(picture).astype(np.uint8)
    if len(picture) < 3:
        return np.ascontiguousarray(picture[0])
    three = picture[:3]
    return np.ascontiguousarray((three[::-1] if blue_first else three).transpose(1, 2, 0))
