"""What the layers have in common that read pictures and, of each, a picture of labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from minicaffe.data import lists, picture_files
from minicaffe.data.picture_files import Colour
from minicaffe.data.reader.base import Entry, Reader
from minicaffe.data.reader.picture_set import Size
from minicaffe.data.resize import bilinear
from minicaffe.errors import DataError, ShapeError
from minicaffe.feeding.fed import Fed, size_of
from minicaffe.layers.blob import Shape
from minicaffe.spec.types import AtLeast


class PairSet(Reader):
    """The pairs of pictures that a text file lists, two paths in a line: one array, labels its last channel.

    Pictures are scaled to `size`, of one size with their labels; labels bilinearly, with `nearest` each is
    the nearest one's, as OpenCV chooses it. A path is `root_folder` and what the line says, one behind the
    other, from the current folder or from the list's.
    """

    blue_first = True
    unit = "pairs"
    __reduce__ = object.__reduce__  # type: ignore[assignment]  # the list is not read again

    def __init__(
        self,
        path: Path,
        name: str,
        colour: Colour,
        size: Size | None,
        root_folder: str,
        nearest: bool,
    ):
        super().__init__()
        self.name, self.list, self.origin, self.root_folder = name, path, str(path), root_folder
        self.colour, self.size, self.nearest = colour, size, nearest
        words = lists.words(path)
        if not words or len(words) % 2:
            raise DataError(f"{path}: expected two paths in each line, found {len(words)} words")
        self.pairs = list(zip(words[::2], words[1::2], strict=True))
        if size is not None:
            self.shape = (4 if colour == "colour" else 2, *size)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, i: int) -> Entry:
        hows: tuple[Colour, Colour] = (self.colour, "grey")
        picture, labels = (
            picture_files.read(self.find(word), how)
            for word, how in zip(self.pairs[i], hows, strict=True)
        )
        if picture.shape[:2] != labels.shape[:2]:
            (h, w), (oh, ow) = picture.shape[:2], labels.shape[:2]
            raise DataError(
                f"{self.place(i)}: is of {h} x {w}, its labels {self.pairs[i][1]} of {oh} x {ow}"
            )
        if self.size is not None:
            scaled = _nearest if self.nearest else bilinear
            picture, labels = bilinear(picture, *self.size), scaled(labels, *self.size)
        return np.concatenate([picture, labels], axis=2).transpose(2, 0, 1), 0

    def key(self, i: int) -> str:
        return self.pairs[i][0]

    def find(self, word: str) -> str:
        """The file of a path."""
        return str(lists.find(self.root_folder + word, [self.list.parent], f"{self.list}"))

    def place(self, i: int) -> str:
        return self.find(self.pairs[i][0])


def _nearest(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture (h, w, channels) of another size, each pixel one of it. Source: OpenCV's INTER_NEAREST."""
    h, w = picture.shape[:2]
    return picture[np.arange(height)[:, None] * h // height, np.arange(width) * w // width]


@dataclass(kw_only=True, eq=False, repr=False)
class LabelMaps(Fed):
    """Pictures (n, c, h, w) and their labels (n, 1, h, w), cut and mirrored together."""

    source: Annotated[str, "a text file: the paths of a picture and of its labels in each line"]
    shuffle: Annotated[bool, "visit in random order"] = False
    new_height: Annotated[int, "scale to so many rows; 0: do not scale", AtLeast(0)] = 0
    new_width: Annotated[int, "scale to so many columns; 0: do not scale", AtLeast(0)] = 0
    is_color: Annotated[bool, "3 channels; without it 1, grey"] = True
    root_folder: Annotated[str, "put before each path"] = ""

    traits = replace(Fed.traits, capturable=False)
    nearest = False  # how labels are scaled

    @property
    def cut(self) -> tuple[int, int] | None:
        """The size of the part that is cut out, if any."""
        side = self.transform.crop_size
        return (side, side) if side else None

    def setup(self) -> list[Shape]:
        given = self.transform
        forced = given.force_color or given.force_gray
        if given.by_pixels or given.resize or given.mean_file or forced:
            raise ShapeError(
                "transform: pictures with labels take mirror, crop_size, mean_value and scale"
            )
        size = size_of(self.new_height, self.new_width)
        if self.reader is None:
            path = lists.find(self.source, [self.context.folder], "source")
            colour: Colour = "colour" if self.is_color else "grey"
            given_keys = colour, size, self.root_folder, self.nearest
            self.reader = PairSet(path, self.source, *given_keys)
        return self.measure(self.reader)

    def shapes(self) -> list[Shape]:
        if not 1 <= len(self.top) <= 2:
            raise ShapeError(f"has 1 or 2 tops (images, labels), got {len(self.top)}")
        channels, h, w = self.image
        means, cut = self.transform.mean_value, self.cut
        if len(means) not in (0, 1, channels - 1):
            expected = f"expected 1 or {channels - 1} numbers, got {len(means)}"
            raise ShapeError(f"transform: mean_value: {expected}")
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
        self.made = device.xp.empty(self.out[0].shape, dtype) if narrow else self.out[0]

    def labelled(self, pixels: Any) -> Any:
        """The labels that pixels of a picture of labels stand for."""
        return pixels

    def forward(self) -> Any:
        xp, (pixels, _), c = self.xp, self.take(), self.out[0].shape[1]
        if self.pixels is not None:
            self.context.device.copy_from_host(self.pixels, pixels)
            pixels = self.pixels
        xp.subtract(pixels[:, :c], self.mean_image, out=self.made)
        xp.multiply(self.made, self.transform.scale, out=self.made)
        if self.made is not self.out[0]:
            xp.copyto(self.out[0], self.made)
        for top in self.out[1:]:
            xp.copyto(top, self.labelled(pixels[:, c:]))
        self.done()
        return self.out
