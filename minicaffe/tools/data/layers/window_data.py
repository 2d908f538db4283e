"""The layer WindowData: windows in pictures, listed in a text file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.core.ops.random import random_key
from minicaffe.errors import DataError, ShapeError, note
from minicaffe.storage import lists
from minicaffe.tools.data import datasets, picture_files
from minicaffe.tools.data.augment import bilinear
from minicaffe.tools.data.feed import draws
from minicaffe.tools.data.layers.pictures import Pictures


@register
class WindowData(Pictures):
    """y = (window - mean) scale, a batch of R-CNN's windows.

    -> (batch_size, 3, crop_size, crop_size), the windows, and, if there is a second top, (batch_size,),
    their labels.

    A batch holds first background windows (label 0), then a share `fg_fraction` of windows on an object, all
    drawn at random. A window, or with square its tightest square, is cut out with `context_pad` pixels
    around it (counted in the crop) and scaled to crop_size x crop_size; pixels outside the picture are zero.
    The draws are a function of (seed, layer, sample's number). `transform` must have a crop_size; the centre
    of a larger mean image is used. Needs Pillow; raises DataError for a file that is missing or damaged.
    Source: Caffe's WindowData, after Girshick's R-CNN.

    Example: -> {type: WindowData, source: windows.txt, batch_size: 4, transform: {crop_size: 8}} ->
    (4, 3, 8, 8), (4,)
    """

    source: Annotated[str, "a window file: pictures, and windows in them with class and overlap"]
    fg_threshold: Annotated[float, "least overlap of a window on an object"] = 0.5
    bg_threshold: Annotated[float, "overlap below which a window is background"] = 0.5
    fg_fraction: Annotated[float, "share of windows on objects", AtLeast(0)] = 0.25
    context_pad: Annotated[int, "pixels of context about a window, in the crop", AtLeast(0)] = 0
    crop_mode: Annotated[Literal["warp", "square"], "as the window is, or its tightest square"] = (
        "warp"
    )
    cache_images: Annotated[bool, "keep the files' bytes in memory"] = False
    root_folder: Annotated[str, "put before each path"] = ""

    blue_first = True
    windows = cast(Any, None)  # lists.Windows, once the file is read
    told_of_sizes = False  # that a picture is of another size than the window file says

    def setup(self) -> list[Shape]:
        crop = self.transform.crop_size
        if not crop:
            raise ShapeError("needs transform: {crop_size: ...}, the side of a scaled window")
        if 2 * self.context_pad >= crop:
            raise ShapeError(f"context_pad {self.context_pad} leaves nothing of crop_size {crop}")
        if self.fg_fraction > 1:
            raise ShapeError(f"fg_fraction: expected at most 1, got {self.fg_fraction}")
        if self.transform.force_color or self.transform.force_gray:
            raise ShapeError("transform: force_color and force_gray: windows are of colours")
        if self.transform.by_pixels or self.transform.resize:
            raise ShapeError(
                "transform: resize, rotation, random_resized_crop and color_jitter: a window is scaled to "
                "crop_size as it is"
            )
        if self.windows is None:
            self.list = lists.find(self.source, [self.context.folder], "source")
            self.windows = lists.windows(self.list, self.fg_threshold, self.bg_threshold)
        self.image = (3, crop, crop)
        self.objects = int(np.float32(self.batch_size) * np.float32(self.fg_fraction))
        kinds = ((self.objects, "on an object"), (self.batch_size - self.objects, "of background"))
        tables = self.windows.foreground, self.windows.background
        for (wanted, kind), table in zip(kinds, tables, strict=True):
            if wanted and not len(table):
                raise DataError(f"{self.list}: holds no window {kind}")
        return self.shapes()

    def takes_mean(self, shape: Shape) -> bool:
        return len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= self.image[1]

    def allocate(self) -> None:
        count = len(self.windows.foreground) + len(self.windows.background)
        self.dataset = datasets.Source(self.source, "R-CNN", count, "windows")
        here = not self.context.device.is_cuda
        self.staged = [top if here else np.empty(top.shape, self.sum_dtype) for top in self.out]
        self.mean_image = np.asarray(self.mean(), self.sum_dtype)
        self.files: dict[int, bytes] = {}
        side = self.image[1]
        self.plain_mean = self.mean_image.shape[1:] == (1, 1)
        if not self.plain_mean:  # its middle; the row offset equals the column offset, as in Caffe
            at = (self.mean_image.shape[2] - side) // 2
            self.mean_image = self.mean_image[:, at : at + side, at : at + side]
            if self.mean_image.shape != self.image:
                raise DataError("transform: mean_file: a mean image must be as high as it is wide")

    def forward(self) -> Any:
        start, n = self.context.share.of(self.batch_size)
        batch = self.context.share.of_whole(n)
        key, _ = random_key(self.context.seed, "windows", self.name)
        number = self.context.passes * batch + start + np.arange(n)
        images = self.staged[0]
        images.fill(0)
        for b, (which, turn) in enumerate(draws(key, np.zeros(n, np.int64), number, 2)):
            on = (start + b) % self.batch_size >= self.batch_size - self.objects
            table = self.windows.foreground if on else self.windows.background
            picture_number, label, *box = map(int, table[int(which * len(table))])
            picture = self._picture(picture_number)
            mirrored = self.transform.mirror and turn < 0.5
            part, top, left = self._window(picture, box, mirrored, picture_number)
            place = np.s_[:, top : top + part.shape[1], left : left + part.shape[2]]
            mean = self.mean_image if self.plain_mean else self.mean_image[place]
            np.subtract(part, mean, out=images[b][place])
            images[b][place] *= self.transform.scale
            if len(self.staged) > 1:
                self.staged[1][b] = label
        for top, staged in zip(self.out, self.staged, strict=True):
            if top is not staged:
                self.context.device.copy_from_host(top, staged)
        return self.out

    def _picture(self, number: int) -> np.ndarray:
        """A picture (h, w, 3) of the list."""
        if number in self.files:
            return picture_files.decode(self.files[number], self.windows.pictures[number], "colour")
        name = self.root_folder + self.windows.pictures[number]
        path = lists.find(name, [self.list.parent], f"{self.list}")
        if self.cache_images:
            self.files[number] = Path(path).read_bytes()
        picture = picture_files.read(path, "colour")
        said = self.windows.sizes[number]
        if said != picture.shape[:2] and not self.told_of_sizes:
            self.told_of_sizes = True
            (h, w), (oh, ow) = said, picture.shape[:2]
            note(f"minicaffe: {self.list}: {path} is of {oh} x {ow}, not {h} x {w} as this says")
        return picture

    def _window(
        self, picture: np.ndarray, box: list[int], mirrored: bool, number: int
    ) -> tuple[np.ndarray, int, int]:
        """A scaled window (3, h, w), and the row and column of the crop where it begins."""
        side, (x1, y1, x2, y2) = self.image[1], box
        rows, columns = picture.shape[:2]
        height = width = side
        top = left = 0
        if self.context_pad or self.crop_mode == "square":
            scale = side / (side - 2 * self.context_pad)
            half = np.array([(y2 - y1 + 1) / 2, (x2 - x1 + 1) / 2])
            centre = np.array([y1, x1]) + half
            if self.crop_mode == "square":
                half[:] = half.max()
            first, last = (_rounded(centre + sign * half * scale) for sign in (-1, 1))
            before = np.maximum(0, -first)
            after = np.maximum(0, last - np.array([rows, columns]) + 1)
            factor = side / (last - first + 1)
            (y1, x1), (y2, x2) = first + before, last - after
            height, width = _rounded((last - after - first - before + 1) * factor)
            padded = _rounded(after * factor) if mirrored else _rounded(before * factor)
            top, left = int(_rounded(before * factor)[0]), int(padded[1])
            height, width = min(int(height), side - top), min(int(width), side - left)
        if not (0 <= x1 <= x2 < columns and 0 <= y1 <= y2 < rows) or min(height, width) < 1:
            raise DataError(
                f"{self.list}: picture {number}: window {box} is not in its {rows} x {columns} pixels"
            )
        part = bilinear(picture[y1 : y2 + 1, x1 : x2 + 1], height, width)
        return (part[:, ::-1] if mirrored else part).transpose(2, 0, 1), top, left


def _rounded(values: Any) -> np.ndarray:
    """Rounds as C does: a half away from zero."""
    values = np.asarray(values, np.float64)
    return (np.sign(values) * np.floor(np.abs(values) + 0.5)).astype(np.int64)
