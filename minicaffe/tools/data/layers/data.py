"""The layers that read pictures: of data sets, of lists, windows in them; and those with label maps."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.core.ops.batch import gather
from minicaffe.core.ops.random import random_key
from minicaffe.errors import DataError, ShapeError, SpecError, note
from minicaffe.storage import lists
from minicaffe.tools.data import datasets, lmdb_file, picture_files, readers
from minicaffe.tools.data.augment import bilinear
from minicaffe.tools.data.datasets import Split
from minicaffe.tools.data.feed import draws
from minicaffe.tools.data.layers.pictures import Fed, Pictures, size_of
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.pictures import Fit
from minicaffe.tools.data.reader.base import SHARE, Reader, sides
from minicaffe.tools.data.reader.picture_set import ListSet, PairSet

PARTS = 4  # of a GPU's memory: a data set larger than one such part stays in host memory


@register
class Data(Fed):
    """y = (image - mean) scale, a batch of a data set.

    -> (batch_size, c, h, w), the images, and, if there is a second top, (batch_size,), their labels, or
    (batch_size, labels), 0 and 1, of a table whose pictures have several labels.

    The k-th batch holds the entries k batch_size, ... of the data set repeated without end, each repetition
    shuffled by (seed, epoch), or in its own order without shuffle. The crop and the other random changes of
    an entry are a function of (seed, epoch, entry). `source` is the name of a data set, or the path of a
    folder or file of any supported kind (docs/data.md): TRAIN reads the training images, TEST the test
    images. If a set has no test images, is not an LMDB and is read by both phases of a model with a solver,
    TRAIN leaves out a fifth of each class, which TEST reads (`split`). Small sets are kept in memory; of
    others `workers` read `prefetch` batches ahead. Encoded pictures need Pillow, and have the channels blue,
    green, red. Pictures may differ in size if they are cropped, or scaled to new_height x new_width. Raises
    DataError for a data set that is missing or damaged. Source: Caffe's Data and DataTransformer.

    Example: -> {type: Data, source: digits, batch_size: 4} -> (4, 1, 28, 28)
    """

    source: Annotated[str, "mnist, fashion-mnist, digits, cifar10, or the path of a data set"]
    shuffle: Annotated[
        bool | None, "visit in random order; default: in TRAIN, but not of an LMDB"
    ] = None
    backend: Annotated[
        Literal["LMDB", "LEVELDB"] | None, "the kind of database; default: what the folder holds"
    ] = None
    new_height: Annotated[int, "scale files to so many rows; 0: do not scale", AtLeast(0)] = 0
    new_width: Annotated[int, "scale files to so many columns; 0: do not scale", AtLeast(0)] = 0
    split: Annotated[
        float | None,
        "the share of each class that TRAIN leaves to TEST; default: 0.2 of a set that both read; 0: none",
        AtLeast(0),
        Below(1),
    ] = None
    force_encoded_color: Annotated[bool, "the same as transform: {force_color: true}"] = False

    shape: Annotated[tuple[int, ...], "(c, h, w) of the source, if it may be gone: to predict"] = ()

    images = cast(Any, None)  # the data set on the device, where it is kept there

    def setup(self) -> list[Shape]:
        try:
            return self.measure(self.reader or self._opened())
        except DataError:  # raised when it is to be read
            if len(self.shape) != 3:
                raise
            self.image = self.shape
            return self.shapes()

    def read_instead(self, reader: Reader) -> None:
        """Read another set from the next pass on. Raises DataError for entries of another shape."""
        c, h, w = reader.shape or self.image
        if (c, *self.recipe.whole(h, w)) != self.image or self.label_shape:
            several = f" and {self.label_shape} labels each" if self.label_shape else ""
            raise DataError(f"expected pictures of {self.image}{several}, got {reader.shape}")
        self.read_from(reader)
        self.images = self.dataset = None
        self.source, self.traits = reader.name, type(self).traits
        self.allocate()

    def _opened(self) -> Reader:
        transform = self.transform
        colour = transform.force_color or self.force_encoded_color
        if transform.force_gray and colour:
            raise ShapeError("transform: give either force_color or force_gray, not both")
        places = datasets.places(self.source, self.context.folder) if self.source else []
        if self.backend == "LEVELDB" and places:
            raise lmdb_file.needs_leveldb(places[0])
        if self.backend is not None and not any(map(lmdb_file.is_one, places)):
            looked = ", ".join(map(str, places))
            raise DataError(
                f"backend {self.backend}: there is no LMDB database; looked in {looked}"
                "; IDX files, and data sets by name, are found without the key backend"
            )
        split: Split = "train" if self.phase == "TRAIN" else "test"
        forced: Colour | None = "colour" if colour else "grey" if transform.force_gray else None
        how: Any = {"colour": forced, "size": size_of(self.new_height, self.new_width)}
        return self._side(readers.open(self.source, split, self.context.folder, **how))

    def _side(self, reader: Reader) -> Reader:
        """The part of a set that this phase reads: all of it, the part held out for tests, or the rest."""
        asked = {share for share in (*(self.in_both or ()), self.split) if share is not None}
        if len(asked) > 1:
            shares = " and ".join(f"{share:g}" for share in sorted(asked))
            problem = f"layers that read {self.source} say {shares}; expected one number"
            raise SpecError(f"split: {problem}")
        if reader.own_split and self.split:
            raise DataError(f"split: {reader.origin} has test entries of its own; leave split out")
        by_default = SHARE if self.in_both is not None and not reader.in_order else 0.0
        share = asked.pop() if asked else by_default
        if not share or reader.own_split:
            return reader
        parts = sides(reader, share)
        if parts is None and share != by_default:
            why = f"{reader.origin} has no class of two entries, one of which could be held out"
            raise DataError(f"split: {why}")
        return reader if parts is None else parts[self.phase == "TEST"]

    def allocate(self) -> None:
        if self.reader is None:
            return
        default = self.phase == "TRAIN" and not self.reader.in_order
        self.begin(default if self.shuffle is None else self.shuffle)
        if self.images is None:
            self.load()
        if self.images is None:
            self.in_bytes()
            return
        # of each image of a batch: the entry, top and left of the crop, and whether it is mirrored
        self.traits = replace(self.traits, recordable=True)
        self.slot = self.context.slots.take((4, self.samples), np.int64)
        self.places = np.zeros((4, self.samples), np.int64)
        self.index = self.places[0]

    def load(self) -> None:
        """Load the data set onto the device once, if it can be kept there: images, labels and the mean."""
        arrays = None if self.reader.label_shape else self.reader.arrays()
        if arrays is None:
            return
        images, labels = arrays
        about = self.reader.origin, self.reader.warning
        self.dataset = datasets.Dataset(self.reader.name, images, labels, *about)
        transform = self.transform
        is_changed = transform.resize or (self.phase == "TRAIN" and transform.by_pixels)
        if is_changed or images.dtype != np.uint8:
            return
        device, labelled = self.context.device, len(self.top) > 1
        if device.is_cuda and images.nbytes > device.memory() // PARTS:
            return
        mean = np.empty(self.image, self.sum_dtype)
        mean[...] = self.mean()
        self.images, self.mean_image = device.asarray(images), device.asarray(mean)
        self.all_labels = device.asarray(labels.astype(self.sum_dtype)) if labelled else None

    def prepare(self) -> None:
        if self.images is None:
            return
        self.draw()
        self.slot.put(self.places)

    def forward(self) -> Any:
        if self.reader is None:
            self._opened()  # raises DataError
        if self.images is None:
            return super().forward()
        args = self.images, self.all_labels, self.slot.there, self.mean_image, self.transform.scale
        gather(*args, *self.out, *[None] * (2 - len(self.out)))
        return self.out

    def draw(self) -> None:
        """Choose the next batch on the host: entries, crops and mirrors."""
        _, *crop, mirror = self.places
        seed = self.context.seed
        self.order.take(seed, self.context.passes, self.index, self.epochs, self.context.share)
        if not self.transform.crop_size and not self.transform.mirror:
            return
        *down_right, turn = draws(self.random_key(seed), self.epochs, self.index, 3).T
        sizes = zip(crop, down_right, self.image[1:], self.out[0].shape[2:], strict=True)
        for first, chance, size, cut in sizes:
            spare = size - cut
            first[...] = chance * (spare + 1) if self.phase == "TRAIN" else spare // 2
        if self.transform.mirror:
            mirror[...] = turn < 0.5


@register
class ImageData(Fed):
    """y = (image - mean) scale, a batch of listed pictures.

    -> (batch_size, c, h, w), the images, and, if there is a second top, (batch_size,), their labels.

    `source` names a text file with a path and a label in each line. `root_folder` is put before the path,
    which is relative to the current folder or the list's. The pictures are scaled to new_height x new_width,
    or have one size; channels are blue, green, red. The k-th batch holds the entries k batch_size, ... of the
    list repeated without end, each repetition shuffled by (seed, epoch) with `shuffle`. As in Data, pictures
    are prepared by (seed, epoch, entry), ahead of time by `workers`. Needs Pillow; raises DataError for a
    file that is missing, damaged or of another size. Source: Caffe's ImageData and DataTransformer.

    Example: -> {type: ImageData, source: images.txt, batch_size: 2, new_height: 9, new_width: 8} ->
    (2, 3, 9, 8), (2,)
    """

    source: Annotated[str, "a text file: a path and a label in each line"]
    batch_size: Annotated[int, "images in a batch", AtLeast(1)] = 1
    shuffle: Annotated[bool, "visit in random order"] = False
    new_height: Annotated[int, "scale to so many rows; 0: do not scale", AtLeast(0)] = 0
    new_width: Annotated[int, "scale to so many columns; 0: do not scale", AtLeast(0)] = 0
    is_color: Annotated[bool, "3 channels; without it 1, grey"] = True
    root_folder: Annotated[str, "put before each path"] = ""

    def setup(self) -> list[Shape]:
        if self.transform.force_color or self.transform.force_gray:
            raise ShapeError("transform: force_color and force_gray: here is_color decides")
        size = size_of(self.new_height, self.new_width)
        if self.reader is None:
            path = lists.find(self.source, [self.context.folder], "source")
            colour: Colour = "colour" if self.is_color else "grey"
            self.reader = ListSet(path, self.source, colour, size, self.root_folder)
        return self.measure(self.reader)

    def allocate(self) -> None:
        self.begin(self.shuffle)
        self.in_bytes()


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
            problem = f"picture {number}: window {box} is not in its {rows} x {columns} pixels"
            raise DataError(f"{self.list}: {problem}")
        part = bilinear(picture[y1 : y2 + 1, x1 : x2 + 1], height, width)
        return (part[:, ::-1] if mirrored else part).transpose(2, 0, 1), top, left


def _rounded(values: Any) -> np.ndarray:
    """Rounds as C does: a half away from zero."""
    values = np.asarray(values, np.float64)
    return (np.sign(values) * np.floor(np.abs(values) + 0.5)).astype(np.int64)


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
            problem = "pictures with labels take mirror, crop_size, mean_value and scale"
            raise ShapeError(f"transform: {problem}")
        if self.reader is None:
            colour: Colour = "colour" if self.is_color else "grey"
            how = colour, size_of(self.new_height, self.new_width), self.root_folder
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
