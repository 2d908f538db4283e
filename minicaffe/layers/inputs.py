"""Layers without bottoms: Input, whose blobs the user fills, and Data, which reads a data set."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from minicaffe.backend import random_stream
from minicaffe.data import datasets
from minicaffe.errors import DataError, ShapeError
from minicaffe.layers.base import Layer, register
from minicaffe.layers.blob import Shape
from minicaffe.layers.files import found, read_array
from minicaffe.ops.batch import gather
from minicaffe.spec.types import AtLeast


@dataclass(frozen=True, kw_only=True)
class BlobShape:
    """The shape of one blob."""

    dim: Annotated[tuple[int, ...], "sizes of the axes", AtLeast(1)]


@register
class Input(Layer):
    """Blobs that the user fills: net.forward(data=x). Source: Caffe's Input."""

    shape: Annotated[tuple[BlobShape, ...], "one {dim: [...]} a top, or one for all"]

    keeps_top = tops_apart = True

    def setup(self) -> list[Shape]:
        tops = max(len(self.top), 1)
        if len(self.shape) not in (1, tops):
            raise ShapeError(f"needs 1 or {tops} shapes, got {len(self.shape)}")
        return [shape.dim for shape in self.shape] * (tops // len(self.shape))

    def resize(self, top: str, shape: Shape) -> None:
        """Give one top another shape."""
        shapes = self.top_shapes()
        shapes[self.top.index(top)] = shape
        self.shape = tuple(BlobShape(dim=one) for one in shapes)

    def forward(self) -> Any:
        return self.out

    def backward(self, *tops: Any) -> Any:
        return []


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
        int | None, "side of a square to cut out: at random in TRAIN, central in TEST", AtLeast(1)
    ] = None


@register
class Data(Layer):
    """Batches of a data set. Tops: images (batch_size, c, h, w) and, if asked for, labels (batch_size,).

    The k-th batch holds the entries k batch_size, ... of the data set repeated without end, each
    repetition shuffled by (seed, epoch), or in its own order without shuffle. TRAIN reads the
    training images, TEST the test images. Source: Caffe's Data and DataTransformer.
    """

    source: Annotated[str, "mnist, fashion-mnist, digits, or a folder of IDX files"]
    batch_size: Annotated[int, "images in a batch", AtLeast(1)]
    shuffle: Annotated[bool | None, "visit in random order; default: in TRAIN"] = None
    transform: Annotated[Transform, "scale, mean, mirror, crop"] = Transform()

    dataset = None
    float32_tops = (1,)

    def setup(self) -> list[Shape]:
        if not 1 <= len(self.top) <= 2:
            raise ShapeError(f"has 1 or 2 tops (images, labels), got {len(self.top)}")
        self.split = "train" if self.phase == "TRAIN" else "test"
        self.count, c, h, w = datasets.shape(self.source, self.split, self.context.folder)  # type: ignore[arg-type]
        self.image = (c, h, w)
        if not self.count:
            raise DataError(f"data set {self.source!r} holds no images")
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

    def allocate(self) -> None:
        if self.dataset is None:
            self.load()
        self.order = np.arange(self.count)
        self.shuffled: tuple[int, int] | None = None  # the (seed, epoch) that `order` is of
        # of each image of a batch: the entry, top and left of the crop, and whether it is mirrored
        self.places = np.zeros((4, self.batch_size), np.int64)
        self.there = self.context.device.asarray(self.places)  # the same array on the CPU

    def load(self) -> None:
        """Take the data set, once: images, labels and the mean, on the device."""
        data = datasets.load(self.source, self.split, self.context.folder)  # type: ignore[arg-type]
        if data.images.shape != (self.count, *self.image):
            raise DataError(f"data set {self.source!r} changed while it was read")
        device, labelled = self.context.device, len(self.top) > 1
        mean = np.empty(self.image, self.sum_dtype)
        mean[...] = self.mean()
        self.images, self.mean_image = device.asarray(data.images), device.asarray(mean)
        self.all_labels = device.asarray(data.labels.astype(self.sum_dtype)) if labelled else None
        self.dataset = data

    def mean(self) -> Any:
        """The mean to subtract, of a shape that broadcasts to (c, h, w)."""
        if self.transform.mean_file is None:
            return np.reshape(self.transform.mean_value or (0.0,), (-1, 1, 1))
        path = found(self.transform.mean_file, self.context.folder, "transform: mean_file")
        mean = read_array(path)
        if mean.shape[-3:] != self.image or mean.size != math.prod(self.image):
            raise DataError(f"mean_file {path}: expected the shape {self.image}, got {mean.shape}")
        if mean.dtype.kind not in "fiu":
            raise DataError(f"mean_file {path}: expected numbers, got {mean.dtype}")
        return mean.reshape(self.image)

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Images (..., c, h, w) as the phase TEST would give them to the net: mean, central crop, scale."""
        h, w = self.image[1:]
        size = self.transform.crop_size
        top, left, oh, ow = ((h - size) // 2, (w - size) // 2, size, size) if size else (0, 0, h, w)
        rows, columns = slice(top, top + oh), slice(left, left + ow)
        return ((image - self.mean()) * self.transform.scale)[..., rows, columns]

    def forward(self) -> Any:
        self.draw()
        if self.there is not self.places:
            self.context.device.copy_from_host(self.there, self.places)
        given = self.images, self.all_labels, self.there, self.mean_image, self.transform.scale
        gather(*given, *self.out, *[None] * (2 - len(self.out)))
        return self.out

    def draw(self) -> None:
        """Choose the next batch on the host: entries, crops and mirrors."""
        index, *crop, mirror = self.places
        n, seed, passes = self.batch_size, self.context.seed, self.context.passes
        shuffled = self.phase == "TRAIN" if self.shuffle is None else self.shuffle
        filled = 0
        while filled < n:
            epoch, entry = divmod(passes * n + filled, self.count)
            if shuffled and (seed, epoch) != self.shuffled:
                self.order.sort()
                random_stream(seed, "order", self.name, epoch).shuffle(self.order)
                self.shuffled = (seed, epoch)
            part = self.order[entry : entry + n - filled]
            index[filled : filled + len(part)] = part
            filled += len(part)
        if self.transform.crop_size is None and not self.transform.mirror:
            return
        random = random_stream(seed, "transform", self.name, passes)
        for axis, (size, kept) in enumerate(
            zip(self.image[1:], self.out[0].shape[2:], strict=True)
        ):
            anywhere = self.phase == "TRAIN"
            crop[axis][...] = (
                random.integers(0, size - kept + 1, n) if anywhere else (size - kept) // 2
            )
        if self.transform.mirror:
            mirror[...] = random.integers(0, 2, n)

    def backward(self, *tops: Any) -> Any:
        return []
