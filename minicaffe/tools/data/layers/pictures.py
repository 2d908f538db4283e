"""The base of layers that read pictures: batch size, the key `transform`, mean, shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import DataError, ShapeError, SpecError
from minicaffe.storage.lists import find
from minicaffe.storage.wire import read_array
from minicaffe.tools.data.pictures import Fit

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

    @property
    def most(self) -> tuple[float, float, float, float]:
        """The largest changes of brightness, contrast, saturation and hue."""
        return self.brightness, self.contrast, self.saturation, self.hue


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
    blue_first = False  # three channels are blue, green, red, as in OpenCV and Caffe
    image = cast("tuple[int, int, int]", ())  # (c, h, w) that the crop is cut out of

    @property
    def by_area(self) -> bool:
        """Whether the crop is a random part of any size, then scaled."""
        return self.phase == "TRAIN" and self.transform.random_resized_crop is not None

    @property
    def samples(self) -> int:
        """How many samples of a batch this rank has."""
        return self.context.share.of(self.batch_size)[1]

    def shapes(self) -> list[Shape]:
        """The tops' shapes, of pictures of shape `image`."""
        if not 1 <= len(self.top) <= 2:
            raise ShapeError(f"has 1 or 2 tops (images, labels), got {len(self.top)}")
        c, h, w = self.image
        transform = self.transform
        means, crop = transform.mean_value, transform.crop_size
        if means and transform.mean_file:
            raise ShapeError("transform: give either mean_value or mean_file, not both")
        if len(means) not in (0, 1, c):
            raise ShapeError(f"transform: mean_value: expected 1 or {c} numbers, got {len(means)}")
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
        if crop and crop > min(h, w) and not self.by_area:
            raise ShapeError(f"transform: crop_size {crop} is larger than the images of {h} x {w}")
        area = (crop, crop) if crop else (h, w)
        return [(self.samples, c, *area), (self.samples, *self.label_shape)][: len(self.top)]

    @property
    def label_shape(self) -> Shape:
        """The shape of one label: () for a number."""
        return ()

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
        return type(self) is Pictures or takes_digits(self)

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
