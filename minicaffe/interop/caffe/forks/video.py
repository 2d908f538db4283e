"""Clips of videos whose frames are pictures in a folder: VideoData."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import DataError, ShapeError
from minicaffe.storage import lists
from minicaffe.tools.data import picture_files
from minicaffe.tools.data.augment import bilinear
from minicaffe.tools.data.layers.fed import Fed, size_of
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader.base import Entry, Reader
from minicaffe.tools.data.reader.picture_set import Size

# Video-caffe's, C3D's
FRAMES = ("image_{:04d}.jpg", "{:06d}.jpg", "image_{:04d}.png", "{:06d}.png")


class ClipSet(Reader):
    """The clips that a list names, a folder, the first frame's number and the label in each line.

    A clip is an array (c length, h, w), channel by channel: all frames of blue come first.
    """

    blue_first = True
    unit = "clips"

    def __init__(
        self, path: Path, name: str, length: int, colour: Colour, size: Size | None, root: str
    ):
        self.name, self.list, self.origin, self.root = name, path, str(path), root
        self.length, self.colour, self.size = length, colour, size
        words = lists.words(path)
        if not words or len(words) % 3:
            raise DataError(
                f"{path}: expected a folder, a frame's number and a label in each line, found "
                f"{len(words)} words"
            )
        self.folders = words[::3]
        numbers = [lists.integer(path, word, "a number") for i, word in enumerate(words) if i % 3]
        self.first, self.labels = numbers[::2], numbers[1::2]

    def __len__(self) -> int:
        return len(self.folders)

    def __getitem__(self, i: int) -> Entry:
        frames = [self._frame(i, self.first[i] + k) for k in range(self.length)]
        if len({frame.shape for frame in frames}) > 1:
            raise DataError(f"{self.place(i)}: its frames are of several sizes")
        clip = np.stack(frames).transpose(3, 0, 1, 2)
        return clip.reshape(-1, *clip.shape[2:]), self.labels[i]

    def label(self, i: int) -> int:
        """The label of a clip."""
        return self.labels[i]

    def key(self, i: int) -> str:
        """A clip's folder and first frame."""
        return f"{self.folders[i]} {self.first[i]}"

    def place(self, i: int) -> str:
        """A clip's folder and first frame, for people."""
        return f"{self.root}{self.folders[i]}: frame {self.first[i]}"

    def _frame(self, i: int, number: int) -> np.ndarray:
        """A frame (h, w, c)."""
        folder = self.root + self.folders[i]
        for home in (Path(folder), self.list.parent / folder):
            for pattern in FRAMES:
                path = home / pattern.format(number)
                if path.is_file():
                    picture = picture_files.read(path, self.colour)
                    return picture if self.size is None else bilinear(picture, *self.size)
        name = FRAMES[0].format(number)
        raise DataError(f"{folder}: has no frame {number}, such as {name}")


@register
class VideoData(Fed):
    """y = (frame - mean) scale, a batch of clips of videos.

    -> (batch_size, c, new_length, h, w), and, if there is a second top, (batch_size,), their labels.

    `source` names a text file: a folder, the number of the first frame and a label in each line. Frames are
    pictures image_0001.jpg or 000001.jpg and on in the folder, which `root_folder` is put before, relative to
    the current folder or the list's. They are scaled to new_height x new_width, or have one size; all frames
    of a clip are cut and mirrored alike, by (seed, epoch, entry). Order, `workers` and `on_error` are
    ImageData's. Needs Pillow; raises DataError for a frame that is missing or damaged, or of another size.
    Files of video are not read. Source: VideoData of C. Choy's video-caffe; D. Tran et al., C3D, 2015.

    Example: -> {type: VideoData, source: clips.txt, batch_size: 2, new_length: 2} -> (2, 3, 2, 6, 7), (2,)
    """

    source: Annotated[str, "a text file: a folder, the first frame and a label in each line"]
    batch_size: Annotated[int, "clips in a batch", AtLeast(1)] = 1
    shuffle: Annotated[bool, "visit in random order"] = False
    new_length: Annotated[int, "frames of a clip", AtLeast(1)] = 1
    new_height: Annotated[int, "scale to so many rows; 0: do not scale", AtLeast(0)] = 0
    new_width: Annotated[int, "scale to so many columns; 0: do not scale", AtLeast(0)] = 0
    is_color: Annotated[bool, "3 channels; without it 1, grey"] = True
    root_folder: Annotated[str, "put before each folder"] = ""

    traits = replace(Fed.traits, capturable=False, label_kind="")  # clips

    def setup(self) -> list[Shape]:
        given = self.transform
        forced = given.force_color or given.force_gray
        if given.by_pixels or given.resize or given.mean_file or forced:
            raise ShapeError("transform: clips take mirror, crop_size, mean_value and scale")
        size = size_of(self.new_height, self.new_width)
        if self.reader is None:
            path = lists.find(self.source, [self.context.folder], "source")
            colour: Colour = "colour" if self.is_color else "grey"
            keys = self.new_length, colour, size, self.root_folder
            self.reader = ClipSet(path, self.source, *keys)
        return self.measure(self.reader)

    def shapes(self) -> list[Shape]:
        if not 1 <= len(self.top) <= 2:
            raise ShapeError(f"has 1 or 2 tops (clips, labels), got {len(self.top)}")
        planes, h, w = self.image
        c, means, crop = (
            planes // self.new_length,
            self.transform.mean_value,
            self.transform.crop_size,
        )
        if len(means) not in (0, 1, c):
            raise ShapeError(f"transform: mean_value: expected 1 or {c} numbers, got {len(means)}")
        if crop and crop > min(h, w):
            raise ShapeError(f"transform: crop_size {crop} is larger than the frames of {h} x {w}")
        size = (crop, crop) if crop else (h, w)
        return [(self.samples, c, self.new_length, *size), (self.samples,)][: len(self.top)]

    @property
    def made_shape(self) -> Shape:
        n, c, frames, h, w = self.out[0].shape
        return n, c * frames, h, w

    def allocate(self) -> None:
        self.begin(self.shuffle)
        self.maker_recipe, self.made_dtype = self.recipe, np.dtype(np.uint8)
        device, dtype = self.context.device, self.sum_dtype
        mean = np.reshape(self.transform.mean_value or (0.0,), (-1, 1, 1, 1))
        self.mean_clip = device.asarray(np.asarray(mean, dtype))
        self.pixels = device.xp.empty(self.made_shape, np.uint8) if device.is_cuda else None
        narrow = self.dtype != dtype
        self.made = device.xp.empty(self.out[0].shape, dtype) if narrow else self.out[0]

    def forward(self) -> Any:
        xp, (pixels, labels), device = self.xp, self.take(), self.context.device
        if self.pixels is not None:
            device.copy_from_host(self.pixels, pixels)
            pixels = self.pixels
        xp.subtract(pixels.reshape(self.out[0].shape), self.mean_clip, out=self.made)
        xp.multiply(self.made, self.transform.scale, out=self.made)
        if self.made is not self.out[0]:
            xp.copyto(self.out[0], self.made)
        if len(self.out) > 1:
            device.copy_from_host(self.out[1], labels)
        self.done()
        return self.out
