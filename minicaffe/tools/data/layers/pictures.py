"""The bases of layers that read pictures: batch size, `transform`, mean, shapes; and those fed by a reader."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.backends.dispatch import threads
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.context import Order
from minicaffe.core.ops.batch import gather
from minicaffe.core.ops.random import random_key
from minicaffe.errors import DataError, ShapeError, SpecError
from minicaffe.storage.lists import find
from minicaffe.storage.wire import read_array
from minicaffe.tools.data.augment import Recipe
from minicaffe.tools.data.box_recipe import BoxRecipe
from minicaffe.tools.data.feed import IN_A_ROW, Crew, Damage, Feed, Key, Maker
from minicaffe.tools.data.picture_files import LARGEST
from minicaffe.tools.data.pictures import Fit
from minicaffe.tools.data.reader.base import Reader
from minicaffe.tools.data.reader.picture_set import Size

Bounds = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ResizedCrop:
    """A part of a picture, of random area and shape in bounds, scaled to the crop (Szegedy et al. 2015)."""

    scale: Annotated[Bounds, "least and largest share of the area", AtLeast(0)] = (0.08, 1.0)
    ratio: Annotated[Bounds, "least and largest width / height", AtLeast(0)] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        for name, (least, *most), top in (("scale", self.scale, 1), ("ratio", self.ratio, 1e6)):
            if len(most) != 1 or not 0 < least <= most[0] <= top:
                limit = " at most 1" if top == 1 else ""
                got = ", ".join(map(str, (least, *most)))
                raise SpecError(f"{name}: expected [least, largest] above 0{limit}, got [{got}]")


@dataclass(frozen=True, kw_only=True)
class ColorJitter:
    """How far colours are changed at random: factors from 1 - x to 1 + x, and hue by up to x turns."""

    brightness: Annotated[float, "largest change of the factor of all values", AtLeast(0)] = 0.0
    contrast: Annotated[float, "the same for the distance to the mean grey", AtLeast(0)] = 0.0
    saturation: Annotated[float, "the same for the distance to a pixel's grey", AtLeast(0)] = 0.0
    hue: Annotated[float, "turns of the hue, either way", AtLeast(0)] = 0.0

    def __post_init__(self) -> None:
        if self.hue > 0.5:
            raise SpecError(f"hue: expected at most 0.5, half a turn, got {self.hue}")


@dataclass(frozen=True, kw_only=True)
class Transform:
    """How an image is changed before the net reads it: Caffe's TransformationParameter, and more.

    In this order: resize, rotation, crop (plain or random_resized_crop), color_jitter, mean, scale, mirror.
    rotation, random_resized_crop and color_jitter are for TRAIN: in TEST the picture is resized and its centre
    cut out.
    """

    scale: Annotated[float, "factor, after the mean is subtracted"] = 1.0
    mean_value: Annotated[tuple[float, ...], "mean to subtract: one number, or one a channel"] = ()
    mean_file: Annotated[
        str | None, "mean image (c, h, w) to subtract: an .npy or .binaryproto file"
    ] = None
    mirror: Annotated[bool, "flip left and right at random"] = False
    crop_size: Annotated[
        int | None,
        "side of a square to cut out: at random in TRAIN, central in TEST; 0 for none",
        AtLeast(0),
    ] = None
    force_color: Annotated[bool, "encoded images: 3 channels, even if grey"] = False
    force_gray: Annotated[bool, "encoded images: 1 channel, even if coloured"] = False
    resize: Annotated[
        int | None,
        "scale the shorter side to so many pixels; with random_resized_crop in TEST only",
        AtLeast(1),
    ] = None
    random_resized_crop: Annotated[
        ResizedCrop | None, "in TRAIN: cut out a part of any area and shape, scaled to crop_size"
    ] = None
    rotation: Annotated[
        float, "in TRAIN: rotate by up to so many degrees, either way", AtLeast(0)
    ] = 0.0
    rotation_fill: Annotated[float, "value of pixels that a rotation leaves empty"] = 0.0
    color_jitter: Annotated[
        ColorJitter | None, "in TRAIN: change brightness, contrast, saturation, hue"
    ] = None

    @property
    def by_pixels(self) -> bool:
        """Whether TRAIN needs more than a plain crop, mirror, mean and scale."""
        changed = self.random_resized_crop, self.color_jitter
        return bool(self.rotation) or any(one is not None for one in changed)


@dataclass(kw_only=True, eq=False, repr=False)
class Pictures(Layer):
    """A layer whose tops are pictures (batch_size, c, h, w) and, if there are two, labels (batch_size,)."""

    batch_size: Annotated[int, "images in a batch", AtLeast(1)]
    transform: Annotated[Transform, "resize, turn, crop, colours, mean, scale, mirror"] = (
        Transform()
    )

    dataset = cast(Any, None)  # the source of the batches, once it is known
    traits = Traits(takes_share=True, float32_tops=(1,), label_kind="number", inferred_as="Input")
    prepared = False  # by the net itself
    blue_first = False  # three channels are blue, green, red, as in OpenCV and Caffe
    image = cast("tuple[int, int, int]", ())  # (c, h, w) that the crop is cut out of
    label_shape = cast("Shape", ())  # of one label: () of a number

    @property
    def samples(self) -> int:
        """How many samples of a batch this rank has."""
        return self.context.share.of(self.batch_size)[1]

    def shapes(self) -> list[Shape]:
        """The tops' shapes, of pictures of shape `image`."""
        c, h, w = self.image
        self.check_tops("images, labels", c)
        transform, crop = self.transform, self.transform.crop_size
        if transform.random_resized_crop and not crop:
            raise ShapeError("transform: random_resized_crop needs crop_size, what it is scaled to")
        if transform.random_resized_crop and transform.mean_file:
            raise ShapeError("transform: random_resized_crop goes with mean_value, not mean_file")
        jitter = transform.color_jitter
        colours = jitter and (jitter.saturation or jitter.hue)
        if jitter and (c not in (1, 3) or (c == 1 and colours)):
            raise ShapeError(
                f"transform: color_jitter: expected 3 channels, or 1 and no saturation or hue, got {c}"
            )
        any_size = self.phase == "TRAIN" and transform.random_resized_crop
        if crop and crop > min(h, w) and not any_size:
            raise ShapeError(f"transform: crop_size {crop} is larger than the images of {h} x {w}")
        area = (crop, crop) if crop else (h, w)
        return [(self.samples, c, *area), (self.samples, *self.label_shape)][: len(self.top)]

    def check_tops(self, tops: str, channels: int) -> None:
        """Raise ShapeError for other than one or two tops, and for means that are not those of channels."""
        if not 1 <= len(self.top) <= 2:
            raise ShapeError(f"has 1 or 2 tops ({tops}), got {len(self.top)}")
        means = self.transform.mean_value
        if means and self.transform.mean_file:
            raise ShapeError("transform: give either mean_value or mean_file, not both")
        if len(means) not in (0, 1, channels):
            expected = f"expected 1 or {channels} numbers, got {len(means)}"
            raise ShapeError(f"transform: mean_value: {expected}")

    def resize(self, top: str, shape: Shape) -> None:
        """Change the number of samples in a batch. Raises ShapeError for any other change."""
        wanted = self.top_shapes()[self.top.index(top)]
        if shape[:1] == () or shape[1:] != wanted[1:]:
            images = "".join(f", {size}" for size in wanted[1:]) or ","
            raise ShapeError(
                f"{top}: expected (n{images}), the data set's but for the number of samples, got {shape}"
            )
        self.batch_size = shape[0]

    def mean(self) -> Any:
        """The mean to subtract, of a shape that broadcasts to (c, h, w)."""
        if self.transform.mean_file is None:
            return np.reshape(self.transform.mean_value or (0.0,), (-1, 1, 1))
        path = find(self.transform.mean_file, [self.context.folder], "transform: mean_file")
        mean = read_array(path)
        while mean.ndim > 3 and mean.shape[0] == 1:  # Caffe's have an axis for one sample
            mean = mean[0]
        if not self.takes_mean(mean.shape):
            raise DataError(f"mean_file {path}: expected the shape {self.image}, got {mean.shape}")
        if mean.dtype.kind not in "fiu":
            raise DataError(f"mean_file {path}: expected numbers, got {mean.dtype}")
        return mean

    @property
    def fit(self) -> Fit:
        """How a picture of another size is brought to the size of `image`, see `tools/data/pictures`."""
        if type(self) is Pictures or bool(getattr(self, "new_height", 0)):
            return "stretch"
        return "cover" if self.transform.resize else "contain"

    @property
    def inverts(self) -> bool:
        """Whether a grey picture with a light border is inverted: for digits and deploy nets."""
        return (type(self) is Pictures and not self.prepared) or takes_digits(self)

    def alone(self) -> Pictures:
        """The layer of its pictures alone, where a picture of labels is read with each."""
        return self

    def takes_mean(self, shape: Shape) -> bool:
        """Whether a mean image may have this shape."""
        return shape == self.image

    @property
    def centre(self) -> tuple[int, int, int, int]:
        """What the phase TEST sees of a picture: the top, left, height and width of its middle."""
        h, w = self.image[1:]
        size = self.transform.crop_size
        return ((h - size) // 2, (w - size) // 2, size, size) if size else (0, 0, h, w)

    def as_tested(self, image: np.ndarray) -> np.ndarray:
        """Images (..., c, h, w) as in the phase TEST: mean, central crop, scale."""
        top, left, h, w = self.centre
        part = np.s_[..., top : top + h, left : left + w]
        return ((image - self.mean()) * self.transform.scale)[part]

    def backward(self, *tops: Any) -> Any:
        return []


def takes_digits(data: Pictures) -> bool:
    """Whether a data layer's pictures are MNIST's digits, by the name of its source."""
    name = Path(getattr(data, "source", "")).name
    return name in ("mnist", "digits") or name.startswith("mnist_")  # such as mnist_test_lmdb


MOST = 8  # workers by default
NAMED = 5  # damaged entries that are reported by name


@dataclass(kw_only=True, eq=False, repr=False)
class Fed(Pictures):
    """A layer whose batches are made from the pictures of `reader`."""

    rand_skip: Annotated[int, "begin at a random entry below this one", AtLeast(0)] = 0
    workers: Annotated[
        int | None, "how many read ahead; 0: none; default: one per core, at most 8", AtLeast(0)
    ] = None
    feed: Annotated[
        Literal["threads", "processes"], "what the workers are; for processes there are threads now"
    ] = "threads"
    prefetch: Annotated[int, "batches read ahead, which is the memory they take", AtLeast(1)] = 4
    on_error: Annotated[
        Literal["raise", "skip"], "a damaged picture: stop, or take the next one and count it"
    ] = "raise"

    reader = cast("Reader", None)
    feeding = cast("Feed", None)

    def measure(self, reader: Reader) -> list[Shape]:
        """The tops' shapes for the pictures of a reader; the first picture sets the size."""
        self.read_from(reader)
        c, h, w = reader.shape or self._first().shape
        self.image = (c, *self.recipe.whole(h, w))
        return self.shapes()

    def read_from(self, reader: Reader) -> None:
        """Take a reader, if it holds pictures, and no fewer than rand_skip."""
        self.reader, self.blue_first = reader, reader.blue_first
        self.label_shape = reader.label_shape
        if not len(reader):
            raise DataError(f"data set {reader.name!r} holds no images")
        if self.rand_skip > len(reader):
            raise ShapeError(f"rand_skip {self.rand_skip} is more than {len(reader)} images")

    def _first(self) -> np.ndarray:
        for entry in range(min(IN_A_ROW, len(self.reader))):
            try:
                return self.reader[entry][0]
            except DataError as error:
                if self.on_error == "raise":
                    raise
                said = error
        raise said

    @property
    def recipe(self) -> Recipe:
        """How a picture is prepared, without the mean."""
        transform = self.transform
        part, jitter = transform.random_resized_crop, transform.color_jitter
        return Recipe(
            chance=self.phase == "TRAIN",
            resize=transform.resize,
            degrees=transform.rotation,
            fill=transform.rotation_fill,
            crop=transform.crop_size or None,
            share=(part.scale[0], part.scale[1]) if part else None,
            ratio=(part.ratio[0], part.ratio[1]) if part else (1, 1),
            jitter=astuple(jitter) if jitter else None,
            mirror=transform.mirror,
            scale=transform.scale,
            blue_first=self.blue_first,
        )

    def begin(self, shuffle: bool) -> None:
        """Allocate the memory of a batch; the first pass allocates that of batches read ahead."""
        if self.feeding is not None:
            self.feeding.close()
        self.feeding, self.dataset = cast(Any, None), self.dataset or self.reader
        mix = np.random.Generator.shuffle if shuffle else None
        self.order = Order(self.name, len(self.reader), mix, self.rand_skip)
        self.index, self.epochs = np.zeros((2, self.samples), np.int64)
        self.skipped: dict[int, int] = {}  # damaged entries of an epoch, how often each was skipped
        self.named: set[int] = set()
        self.counting = 0, -1  # the epoch, and the last pass

    def in_bytes(self) -> None:
        """Choose whether batches are read as bytes; if so, allocate what finishes them: mean and scale."""
        kind, recipe = self._first().dtype, self.recipe
        mean = np.asarray(self.mean(), self.sum_dtype)
        colours = recipe.chance and recipe.jitter is not None
        plain = kind == np.uint8 and mean.shape[1:] == (1, 1) and not colours
        if kind == np.uint8 and recipe.degrees and not 0 <= recipe.fill <= 255:
            raise ShapeError(f"transform: rotation_fill: expected 0 to 255, got {recipe.fill}")
        self.maker_recipe: Recipe | BoxRecipe = replace(recipe, mean=mean, finished=not plain)
        self.made_dtype = np.dtype(np.uint8) if plain else np.dtype(self.sum_dtype)
        if plain:
            device, n = self.context.device, self.samples
            shape = self.out[0].shape
            self.mean_image = device.asarray(np.broadcast_to(mean, shape[1:]).copy())
            places = np.zeros((4, n), np.int64)
            places[0] = np.arange(n)
            self.places = device.asarray(places)
            if device.is_cuda:
                self.pixels = device.xp.empty(shape, np.uint8)
                self.labels = device.xp.empty(n, self.sum_dtype)

    def entry(self, b: int, passes: int) -> str:
        """Names sample b of a pass; if damaged pictures are skipped, it or one after it."""
        index, epochs = np.zeros((2, self.samples), np.int64)
        self.order.take(self.context.seed, passes, index, epochs, self.context.share)
        return self.reader.place(int(index[b]))

    @property
    def made_shape(self) -> Shape:
        """The shape of a batch as the workers make it."""
        return tuple(self.out[0].shape)

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        """The batch of this pass, pictures and labels, as the workers made it; until `done`."""
        if self.feeding is None or not self.feeding.usable:
            self.feeding = self._feed()
        pictures, labels, damaged = self.feeding.get(self.context.seed, self.context.passes)
        self._tell(damaged)
        return pictures, labels

    def done(self) -> None:
        """The batch that `take` returned may be written over."""
        self.feeding.done()

    def forward(self) -> Any:
        pictures, labels = self.take()
        device = self.context.device
        if self.made_dtype != np.uint8:
            for top, batch in zip(self.out, (pictures, labels), strict=False):
                device.copy_from_host(top, batch)
        else:
            if device.is_cuda:
                device.copy_from_host(self.pixels, pictures)
                pictures = self.pixels
                if not self.label_shape:
                    device.copy_from_host(self.labels, labels)
                    labels = self.labels
            tops = (*self.out, *[None] * (2 - len(self.out)))
            if self.label_shape and tops[1] is not None:
                device.copy_from_host(tops[1], labels)
                tops = (tops[0], None)
            finish = self.places, self.mean_image, self.transform.scale
            gather(pictures, labels if tops[1] is not None else None, *finish, *tops)
        self.done()
        return self.out

    def _feed(self) -> Feed:
        """The workers, with the batches that they have made."""
        workers = self.workers
        if self.feed == "processes":  # of models written before version 0.2
            self.context.tell(f"{self.name}: feed: processes: threads read, which are as fast")
        if workers is None:
            workers = min(MOST, threads())
        ahead = self.prefetch if workers else 1
        shape, labels = (ahead, *self.made_shape), np.dtype((self.sum_dtype, self.label_shape))
        size = int(np.prod(shape)) * self.made_dtype.itemsize
        backend.device("cpu").check_fits(size, f"prefetch of {ahead} batches")
        maker = Maker(self.reader, self.maker_recipe, self.on_error == "skip")
        return Feed(Crew(workers, maker, shape, self.made_dtype, labels), self._choose)

    def _choose(self, key: Key) -> tuple[np.ndarray, np.ndarray, int]:
        """Entries and epochs of the samples of a pass, and the key of their random numbers."""
        seed, passes = key
        self.order.take(seed, passes, self.index, self.epochs, self.context.share)
        return self.index, self.epochs, self.random_key(seed)

    def random_key(self, seed: int) -> int:
        """The key that, with epoch and entry, determines a sample's random numbers."""
        return random_key(seed, "transform", self.name)[0]

    def _tell(self, damaged: list[Damage]) -> None:
        """Report damaged pictures, the first few by name, and at the end of an epoch their number."""
        passes = self.context.passes
        batch = self.context.share.of_whole(self.samples)
        epoch = self.order.first(self.context.seed, passes, batch) // len(self.reader)
        if epoch != self.counting[0] or passes <= self.counting[1]:
            self.tell_damage()
        self.counting = epoch, passes
        for entry, said in damaged:
            self.skipped[entry] = self.skipped.get(entry, 0) + 1
            if entry not in self.named and len(self.named) < NAMED:
                self.named.add(entry)
                self.context.tell(f"{self.name}: skipped: {said}")

    def tell_damage(self) -> None:
        """Report how many damaged pictures were replaced since the epoch, or the test, began."""
        if self.skipped:
            self.context.tell(
                f"{self.name}: damaged pictures of {self.reader.name} in epoch {self.counting[0] + 1}"
                f" of {self.phase}: {len(self.skipped)}, samples replaced by the next:"
                f" {sum(self.skipped.values())}"
            )
            self.skipped = {}


def size_of(height: int, width: int) -> Size | None:
    """The size that pictures are scaled to, or None. Raises ShapeError for an invalid size."""
    if bool(height) != bool(width):
        raise ShapeError("new_height and new_width are given together, or neither")
    if height * width > LARGEST:
        raise ShapeError(
            f"a picture of {height} x {width} pixels is not made: new_height, new_width"
        )
    return (height, width) if height else None
