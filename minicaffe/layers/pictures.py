"""What layers that read pictures have in common: which entries a batch holds, the transform, the mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np

from minicaffe.backend import random_stream
from minicaffe.data.lists import find
from minicaffe.errors import DataError, ShapeError
from minicaffe.layers.base import Layer
from minicaffe.layers.blob import Shape
from minicaffe.layers.files import read_array
from minicaffe.spec.types import AtLeast


@dataclass(frozen=True, kw_only=True)
class Transform:
    """What is done to an image on its way into the net (Caffe's TransformationParameter)."""

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
    force_color: Annotated[bool, "encoded images: 3 channels, though they be grey"] = False
    force_gray: Annotated[bool, "encoded images: 1 channel, though they be coloured"] = False


class Order:
    """Which entries each batch holds: all again and again, `shuffle`d by (seed, epoch) or as they are."""

    def __init__(
        self, name: str, count: int, shuffle: Callable[..., Any] | None, rand_skip: int = 0
    ):
        self.name, self.shuffle, self.rand_skip = name, shuffle, rand_skip
        self.order = np.arange(count)
        self.shuffled: tuple[int, int] | None = None  # the (seed, epoch) that `order` is of

    def take(self, seed: int, passes: int, index: np.ndarray) -> None:
        """Write the entries of the batch of a pass into `index`."""
        n, filled = len(index), 0
        first = passes * n
        if self.rand_skip:
            first += int(random_stream(seed, "skip", self.name).integers(self.rand_skip))
        while filled < n:
            epoch, entry = divmod(first + filled, len(self.order))
            if self.shuffle is not None and (seed, epoch) != self.shuffled:
                self.order.sort()
                self.shuffle(random_stream(seed, "order", self.name, epoch), self.order)
                self.shuffled = (seed, epoch)
            part = self.order[entry : entry + n - filled]
            index[filled : filled + len(part)] = part
            filled += len(part)


def shuffled(random: np.random.Generator, order: np.ndarray) -> None:
    """All entries in any order."""
    random.shuffle(order)


@dataclass(kw_only=True, eq=False, repr=False)
class Pictures(Layer):
    """A layer of pictures (batch_size, c, h, w) and, if there is a second top, labels (batch_size,)."""

    batch_size: Annotated[int, "images in a batch", AtLeast(1)]
    transform: Annotated[Transform, "scale, mean, mirror, crop, channels"] = Transform()

    dataset = cast(Any, None)  # what the batches are from, once it is known
    float32_tops = (1,)
    blue_first = False  # three channels are blue, green, red, as OpenCV gives them to Caffe
    image = cast("tuple[int, int, int]", ())  # (c, h, w) before the transform

    def shapes(self) -> list[Shape]:
        """The tops' shapes, of pictures of shape `image`."""
        if not 1 <= len(self.top) <= 2:
            raise ShapeError(f"has 1 or 2 tops (images, labels), got {len(self.top)}")
        c, h, w = self.image
        means, crop = self.transform.mean_value, self.transform.crop_size
        if means and self.transform.mean_file:
            raise ShapeError("transform: give either mean_value or mean_file, not both")
        if len(means) not in (0, 1, c):
            raise ShapeError(f"transform: mean_value: expected 1 or {c} numbers, got {len(means)}")
        if crop and crop > min(h, w):
            raise ShapeError(f"transform: crop_size {crop} is larger than the images of {h} x {w}")
        area = (crop, crop) if crop else (h, w)
        return [(self.batch_size, c, *area), (self.batch_size,)][: len(self.top)]

    def resize(self, top: str, shape: Shape) -> None:
        """Another number of samples in a batch. Raises ShapeError for any other change."""
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

    def takes_mean(self, shape: Shape) -> bool:
        """Whether a mean image of a shape will do."""
        return shape == self.image

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Images (..., c, h, w) as the phase TEST would give them to the net: mean, central crop, scale."""
        h, w = self.image[1:]
        size = self.transform.crop_size
        top, left, oh, ow = ((h - size) // 2, (w - size) // 2, size, size) if size else (0, 0, h, w)
        rows, columns = slice(top, top + oh), slice(left, left + ow)
        return ((image - self.mean()) * self.transform.scale)[..., rows, columns]

    def stage(self) -> None:
        """Take the host's memory for a batch: on the CPU it is the tops themselves."""
        here = not self.context.device.is_cuda
        self.staged = [top if here else np.empty(top.shape, self.sum_dtype) for top in self.out]
        self.index = np.zeros(self.batch_size, np.int64)
        self.mean_image = np.asarray(self.mean(), self.sum_dtype)

    def send(self) -> Any:
        """What was staged goes to the tops."""
        for top, staged in zip(self.out, self.staged, strict=True):
            if top is not staged:
                self.context.device.copy_from_host(top, staged)
        return self.out

    def put(self, b: int, picture: np.ndarray, label: int, draws: np.ndarray, where: str) -> None:
        """Stage a picture (c, h, w): crop, mean, scale, mirror. `draws` are three numbers of [0, 1).

        Raises DataError, saying `where` the picture is from, if it does not fit.
        """
        out = self.staged[0][b]
        c, h, w = picture.shape
        _, oh, ow = out.shape
        crop = bool(self.transform.crop_size)
        if c != len(out) or ((h, w) != (oh, ow) and not (crop and h >= oh and w >= ow)):
            least = "at least " if crop else ""
            raise DataError(
                f"{where}: expected a picture of {len(out)} channels and {least}{oh} x {ow}, "
                f"got {c} channels of {h} x {w}"
            )
        down, right, turn = draws
        spare = h - oh, w - ow
        anywhere = self.phase == "TRAIN"
        top, left = (
            int(draw * (room + 1)) if anywhere else room // 2
            for draw, room in zip((down, right), spare, strict=True)
        )
        seen = (slice(None), slice(top, top + oh), slice(left, left + ow))
        mean = self.mean_image
        if mean.shape[1:] != (1, 1):
            if mean.shape != picture.shape:
                raise DataError(f"{where}: is of {picture.shape}, the mean image of {mean.shape}")
            mean = mean[seen]
        mirrored = self.transform.mirror and turn < 0.5
        np.subtract(picture[seen], mean, out=out[..., ::-1] if mirrored else out)
        np.multiply(out, self.transform.scale, out=out)
        if len(self.staged) > 1:
            self.staged[1][b] = label

    def draws(self) -> np.ndarray:
        """Three numbers of [0, 1) for each picture of a batch, a function of (seed, layer, pass)."""
        seed, passes = self.context.seed, self.context.passes
        return random_stream(seed, "transform", self.name, passes).random((self.batch_size, 3))

    def backward(self, *tops: Any) -> Any:
        return []
