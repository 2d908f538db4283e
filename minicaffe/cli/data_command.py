"""Look at a data set: entries, shapes, classes, the range of values and the mean of each channel.

If a data set is not read into memory, it looks at 1000 entries, evenly spread; --check reads all entries
and names those that are damaged. -o draws a few pictures of each class side by side, which needs the
extra image.

example:
  minicaffe data mnist -o sheet.png
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Annotated, Any

import numpy as np

from minicaffe.cli import sources
from minicaffe.cli.parser import Arg
from minicaffe.cli.streams import say
from minicaffe.errors import DataError, note
from minicaffe.storage import checkpoint
from minicaffe.tools.data.convert import Survey, by, survey
from minicaffe.tools.data.reader.base import SHARE, Reader, sides

SAMPLE = 1000  # entries that are read without --check
LISTED = 30  # classes that are listed one by one
CELL = 64  # pixels across a picture of a sheet, at most
GAP, TEXT = 4, 12
ROWS, COLUMNS = 20, 12  # classes, and pictures of each


class Options(sources.Sourced):
    """The options."""

    check: Annotated[bool, "read every entry, and name what is damaged"] = False
    output: Annotated[
        str | None, Arg("-o", "--output"), "FILE.png", "write a sheet with pictures of each class"
    ] = None


def run(args: Options) -> None:
    """Look through it."""
    if args.output is not None and not args.output.lower().endswith(".png"):
        raise DataError(f"-o {args.output}: the sheet is a PNG: expected a name that ends in .png")
    reader = sources.opened(args)
    count, inside = len(reader), reader.arrays() is not None
    every = args.check or inside or count <= SAMPLE
    entries = range(count) if every else [i * count // SAMPLE for i in range(SAMPLE)]
    found = survey(reader, sources.shown(entries))
    for line in found.damage.first:
        note(f"minicaffe: {line}")
    damaged = f"{reader.origin}: {found.damage.count} of {len(entries)} entries are damaged"
    if found.damage.count == len(entries):
        raise DataError(damaged)
    say(f"{count} {reader.unit} of {reader.name}, {args.split}: {reader.warning or reader.origin}")
    if not reader.own_split:
        print(_divided(reader))
    if not every:
        print(f"of {SAMPLE} of them, evenly spread (--check reads all):")
    say(*_pictures(found, reader.blue_first), *_classes(reader))
    if args.output is not None:
        drawn = sheet(reader, found.range)
        checkpoint.replace(args.output, lambda file: drawn.save(file, "PNG"))
        say(f"sheet: {args.output}, {drawn.width} x {drawn.height} pixels")
    if found.damage.count:
        raise DataError(damaged)


def _divided(reader: Reader) -> str:
    """What a model reads that trains and tests on a set without test entries of its own."""
    text = "no test entries of its own: where a model trains and tests on it, "
    parts = None if reader.in_order else sides(reader, SHARE)
    if parts is None:
        return f"{text}TRAIN and TEST read all of it"
    train, test = map(len, parts)
    return f"{text}TRAIN reads {train}, TEST the other {test} (split: {SHARE:g})"


def _pictures(found: Survey, blue_first: bool) -> list[str]:
    """What the pictures are like."""
    sizes = np.array(list(found.shapes))
    kind = ", ".join(sorted(found.dtypes))
    if len(sizes) == 1:
        lines = [f"shape: {by(sizes[0])}, {kind}"]
    else:
        (c, h, w), (cc, hh, ww) = sizes.min(axis=0), sizes.max(axis=0)
        lines = [f"shapes: {len(sizes)}, from {c} x {h} x {w} to {cc} x {hh} x {ww}, {kind}"]
    least, most = found.range
    strange = f", {found.not_finite} no finite numbers" * bool(found.not_finite)
    lines.append(f"values: {least:g} to {most:g}{strange}")
    for c, means in found.means().items():
        order = (" (blue, green, red)" if blue_first else " (red, green, blue)") * (c == 3)
        lines.append(f"mean of each channel: {', '.join(f'{mean:.3f}' for mean in means)}{order}")
    return lines


def _classes(reader: Reader) -> list[str]:
    """The classes and how many entries each has."""
    counts = Counter(dict.fromkeys(range(len(reader.classes)), 0))
    for i in range(len(reader)):
        with suppress(DataError):  # told already, or not looked at
            several = reader.label_shape
            counts.update(
                np.flatnonzero(reader.vector(i)).tolist() if several else [reader.label(i)]
            )
    least, most = min(counts.values()), max(counts.values())
    what = "labels" if reader.label_shape else "classes"
    lines = [f"{what}: {len(counts)}, of {least} to {most} entries"]
    if len(counts) <= LISTED:
        names = dict(enumerate(reader.classes))
        lines += [
            f"  {label} {names.get(label, '')}".rstrip() + f": {counts[label]}"
            for label in sorted(counts)
        ]
    return lines


def sheet(reader: Reader, values: tuple[float, float]) -> Any:
    """A picture of Pillow's with a few pictures of each class: a row a class, of many classes the first.

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
