"""What the layers have in common that read pictures and, of each, a picture of labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import DataError, ShapeError
from minicaffe.storage import lists
from minicaffe.tools.data import picture_files
from minicaffe.tools.data.augment import bilinear, nearest
from minicaffe.tools.data.layers.pictures import Fed, Pictures, size_of
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.pictures import Fit
from minicaffe.tools.data.reader.base import SHARE, Entry, sides
from minicaffe.tools.data.reader.picture_set import SUFFIXES, PictureSet, below, of_split


class PairSet(PictureSet):
    """The pairs of pictures that a text file lists, two paths in a line: one array, labels its last channel.

    Or of a folder: each picture in its folder images, with the one of that name in its folder masks, whose
    labels are grey values, or numbers of colours in a palette. Folders train and test (or val) are splits.

    Pictures are scaled to `size`, of one size with their labels; labels bilinearly, with `nearest` each is
    the nearest one's, as OpenCV chooses it.
    """

    unit = "pairs"

    def __init__(self, path: Path, name: str, *how: Any, nearest: bool, split: str = "train"):
        """`how` is what PictureSet takes."""
        super().__init__(path, name, *how)
        self.nearest = nearest
        self.labels_as: Colour = "grey"
        if path.is_dir():
            self.labels_as = "labels"
            within = split_of(path, split)
            self.own_split, self.origin = within != path, str(within)
            self.pairs = pairs_in(within)
        else:
            self.list = path
            words = lists.words(path)
            if not words or len(words) % 2:
                raise DataError(
                    f"{path}: expected two paths in each line, found {len(words)} words"
                )
            self.pairs = list(zip(words[::2], words[1::2], strict=True))
        if self.size is not None:
            self.shape = (4 if self.colour == "colour" else 2, *self.size)
        self.paths = [picture for picture, _ in self.pairs]

    def __getitem__(self, i: int) -> Entry:
        files = map(self.found, self.pairs[i])
        picture, labels = map(picture_files.read, files, (self.colour, self.labels_as))
        if picture.shape[:2] != labels.shape[:2]:
            (h, w), (oh, ow) = picture.shape[:2], labels.shape[:2]
            raise DataError(
                f"{self.place(i)}: is of {h} x {w}, its labels {self.pairs[i][1]} of {oh} x {ow}"
            )
        if self.size is not None:
            scaled = nearest if self.nearest else bilinear
            picture, labels = bilinear(picture, *self.size), scaled(labels, *self.size)
        return np.concatenate([picture, labels], axis=2).transpose(2, 0, 1), 0

    def label(self, i: int) -> int:
        return 0

    def key(self, i: int) -> str:
        return Path(self.paths[i]).name if self.list is None else self.paths[i]


IMAGES = ("images", "pictures", "photos", "JPEGImages")  # folders of pictures
MASKS = ("masks", "labels", "annotations", "SegmentationClass")  # and of their labels


def holds_pairs(folder: Path) -> bool:
    """Whether a folder holds a folder of pictures and one of masks, or such folders by split."""
    names = of_split(os.listdir(folder) if folder.is_dir() else (), "train")
    places = (folder, *(folder / name for name in names))
    return any(_one(place, IMAGES) and _one(place, MASKS) for place in places)


def split_of(folder: Path, split: str) -> Path:
    """The folder of a split: itself, if it is not divided. Raises DataError if the split is missing."""
    names = os.listdir(folder)
    if not any(_one(folder / name, IMAGES) for name in of_split(names, "train")):
        return folder
    for name in of_split(names, split):
        if _one(folder / name, IMAGES):
            return folder / name
    raise DataError(f"{folder}: has a folder train; expected beside it, for TEST, test or val")


def pairs_in(folder: Path) -> list[tuple[str, str]]:
    """Each picture of a folder with its mask, which has the same name but for the ending.

    Raises DataError for a picture without a mask, and for a folder without pictures.
    """
    images, masks = _one(folder, IMAGES), _one(folder, MASKS)
    if images is None or masks is None:
        raise DataError(f"{folder}: expected a folder images and a folder masks in it")
    mask_of = {Path(path).stem: path for path in below(masks) if path.lower().endswith(SUFFIXES)}
    paths = [path for path in below(images) if path.lower().endswith(SUFFIXES)]
    if not paths:
        raise DataError(f"{images}: holds no pictures; expected files in {', '.join(SUFFIXES)}")
    for path in paths:
        if Path(path).stem not in mask_of:
            raise DataError(f"{path}: has no mask {masks / Path(path).stem}.png")
    return [(path, mask_of[Path(path).stem]) for path in paths]


def _one(folder: Path, names: Sequence[str]) -> Path | None:
    """The folder in another that has one of some names."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)


class Alone(Pictures):
    """Pictures without their labels, scaled to the size that a layer of both has."""

    @property
    def fit(self) -> Fit:
        return "stretch"


@dataclass(kw_only=True, eq=False, repr=False)
class LabelMaps(Fed):
    """Pictures (n, c, h, w) and their labels (n, 1, h, w), cut and mirrored together."""

    source: Annotated[
        str, "a text file, a picture and its labels in each line; or a folder with images and masks"
    ]
    shuffle: Annotated[bool, "visit in random order"] = False
    new_height: Annotated[int, "scale to so many rows; 0: do not scale", AtLeast(0)] = 0
    new_width: Annotated[int, "scale to so many columns; 0: do not scale", AtLeast(0)] = 0
    is_color: Annotated[bool, "3 channels; without it 1, grey"] = True
    root_folder: Annotated[str, "put before each path"] = ""

    traits = replace(Fed.traits, capturable=False, label_kind="map")
    nearest = False  # how labels are scaled

    @property
    def cut(self) -> tuple[int, int] | None:
        """The size of the part that is cut out, if any."""
        side = self.transform.crop_size
        return (side, side) if side else None

    def setup(self) -> list[Shape]:
        change = self.transform
        forced = change.force_color or change.force_gray
        if change.by_pixels or change.resize or change.mean_file or forced:
            raise ShapeError(
                "transform: pictures with labels take mirror, crop_size, mean_value and scale"
            )
        size = size_of(self.new_height, self.new_width)
        if self.reader is None:
            colour: Colour = "colour" if self.is_color else "grey"
            how = colour, size, self.root_folder
            split = "train" if self.phase == "TRAIN" else "test"
            paths = Path(self.source), (self.context.folder or Path()) / self.source
            place = next((place for place in paths if place.is_dir()), None)
            place = place or lists.find(self.source, [self.context.folder], "source")
            reader = PairSet(place, self.source, *how, nearest=self.nearest, split=split)
            self.reader = reader
            if reader.list is None and not reader.own_split and self.in_both is not None:
                parts = sides(reader, SHARE)
                self.reader = reader if parts is None else parts[self.phase == "TEST"]
        return self.measure(self.reader)

    def alone(self) -> Pictures:
        plain = replace(self.transform, mirror=False, crop_size=None)
        alone = Alone(batch_size=self.batch_size, transform=plain)
        alone.name, alone.top, alone.blue_first = self.name, self.top[:1], self.blue_first
        alone.image = (self.image[0] - 1, *(self.cut or self.image[1:]))
        return alone

    def shapes(self) -> list[Shape]:
        (channels, h, w), cut = self.image, self.cut
        self.check_tops("images, labels", channels - 1)
        if cut and (cut[0] > h or cut[1] > w):
            raise ShapeError(
                f"a crop of {cut[0]} x {cut[1]} is larger than the images of {h} x {w}"
            )
        h, w = cut or (h, w)
        tops: list[Shape] = [(self.samples, c, h, w) for c in (channels - 1, 1)]
        return tops[: len(self.top)]

    @property
    def made_shape(self) -> Shape:
        n, c, h, w = self.out[0].shape
        return n, c + 1, h, w

    def allocate(self) -> None:
        self.begin(self.shuffle)
        self.maker_recipe, self.made_dtype = self.recipe, np.dtype(np.uint8)
        device, dtype = self.context.device, self.sum_dtype
        self.mean_image = device.asarray(np.asarray(self.mean(), dtype))
        self.pixels = device.xp.empty(self.made_shape, np.uint8) if device.is_cuda else None
        narrow = self.dtype != dtype
        self.wide_top = device.xp.empty(self.out[0].shape, dtype) if narrow else self.out[0]

    def labelled(self, pixels: Any) -> Any:
        """The labels that pixels of a picture of labels stand for."""
        return pixels

    def forward(self) -> Any:
        xp, (pixels, _), c = self.xp, self.take(), self.out[0].shape[1]
        if self.pixels is not None:
            self.context.device.copy_from_host(self.pixels, pixels)
            pixels = self.pixels
        xp.subtract(pixels[:, :c], self.mean_image, out=self.wide_top)
        xp.multiply(self.wide_top, self.transform.scale, out=self.wide_top)
        if self.wide_top is not self.out[0]:
            xp.copyto(self.out[0], self.wide_top)
        for top in self.out[1:]:
            xp.copyto(top, self.labelled(pixels[:, c:]))
        self.done()
        return self.out
