"""The pictures a net is calibrated with: which, as the net takes them, and their labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.data import readers
from minicaffe.data.reader.base import Reader
from minicaffe.data.reader.held_out import Part
from minicaffe.data.reader.picture_set import PictureSet, holds_pictures
from minicaffe.deploy import Deployed
from minicaffe.errors import DataError
from minicaffe.net.sources import with_classes
from minicaffe.pictures.files import in_folder

SEED = 0


@dataclass(frozen=True)
class Images:
    """Pictures (n, c, h, w) as the net takes them, float32; labels (n,) or None; notes for people."""

    prepared: np.ndarray
    labels: np.ndarray | None
    notes: list[str] = field(default_factory=list)


def chosen(net: Deployed, source: Any, count: int) -> Images:
    """`count` pictures of a source, as `minicaffe predict` prepares them; all of one that has fewer.

    Raises DataError for a source without pictures.
    """
    if isinstance(source, np.ndarray):
        source = list(source if source.ndim > 2 else source[None])
    if source is None:
        reader = getattr(net.data, "reader", None)
        if reader is None:
            raise DataError(f"net {net.net.name!r} has no test data of its own; say which pictures")
        return _of_reader(net, reader, count)
    if isinstance(source, (str, Path)):
        place = Path(source)
        if place.is_dir() and not holds_pictures(place) and _flat(place):
            source = in_folder(place)
        else:
            return _of_reader(net, readers.open(os.fspath(source), "test"), count)
    places = spread([0] * len(source), count)
    return _prepared(net, [source[i] for i in places], None, len(source), count, [])


def spread(labels: Sequence[int], count: int) -> list[int]:
    """The places of `count` entries, evenly over the labels, drawn with a fixed seed; sorted.

    >>> [int(i) % 3 for i in spread([0, 1, 2] * 4, 3)].count(1)
    1
    """
    order = np.random.default_rng(SEED).permutation(len(labels))
    turns: dict[int, int] = {}
    keys: list[tuple[int, int, int]] = []
    for i in order:
        turn = turns[labels[i]] = turns.get(labels[i], -1) + 1
        keys.append((turn, len(keys), int(i)))
    return sorted(i for _, _, i in sorted(keys)[:count])


def _flat(folder: Path) -> bool:
    try:
        return bool(in_folder(folder))
    except DataError:
        return False


def _of_reader(net: Deployed, reader: Reader, count: int) -> Images:
    """Pictures of a data set with their labels, where these are the net's classes."""
    notes: list[str] = []
    whole = reader.reader if isinstance(reader, Part) else reader
    if reader.warning:
        notes.append(reader.warning)
    if not len(reader):
        raise DataError(f"{reader.origin}: holds no images")
    numbers = not reader.label_shape and net.ended != "DetectionOutput"
    kept = reader.arrays() if numbers else None
    if kept is not None:
        labels = [int(one) for one in kept[1]]
    else:
        labels = [reader.label(i) if numbers else 0 for i in range(len(reader))]
    places = spread(labels, count)
    if isinstance(whole, PictureSet):
        some: list[Any] = [reader.place(i) for i in places]
    else:
        some = [_own(net, reader, reader[i][0]) for i in places]
    names = with_classes(net.model, [net.data]).classes
    scores = net.net.blobs[net.output].shape[1:2]
    mine = np.array([labels[i] for i in places], np.int64)
    usable = numbers and net.ended == "Softmax"
    if usable and reader.classes and names and reader.classes != names:
        usable = set(reader.classes) <= set(names)
        mine = np.array([names.index(reader.classes[i]) for i in mine]) if usable else mine
    usable = usable and bool(scores) and mine.min() >= 0 and mine.max() < scores[0]
    if numbers and net.ended == "Softmax" and not usable:
        notes.append(f"{reader.origin}: its labels are not the net's classes, and are left out")
    return _prepared(net, some, mine if usable else None, len(reader), count, notes)


def _own(net: Deployed, reader: Reader, picture: np.ndarray) -> np.ndarray:
    """A picture (c, h, w) of a data set, with the net's order of channels; of another size (h, w, c)."""
    if picture.shape == net.image_shape:
        swapped = len(picture) == 3 and reader.blue_first != net.data.blue_first
        return picture[::-1] if swapped else picture
    return (picture[::-1] if len(picture) == 3 and reader.blue_first else picture).transpose(
        1, 2, 0
    )


def _prepared(
    net: Deployed,
    some: Sequence[Any],
    labels: np.ndarray | None,
    whole: int,
    count: int,
    notes: list[str],
) -> Images:
    if not some:
        raise DataError("there are no pictures to calibrate with")
    if whole < count:
        notes = [*notes, f"{whole} pictures, not {count}: there are no more"]
    ready = [net._prepared([one] if isinstance(one, (str, Path)) else one)[0] for one in some]
    return Images(np.concatenate(ready).astype(np.float32), labels, notes)
