"""MemoryData: batches of arrays that the user's program sets."""

from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.core.ops.take import take
from minicaffe.errors import DataError, ShapeError, SpecError
from minicaffe.tools.data.layers.pictures import Transform


@register
class MemoryData(Layer):
    """Batches of arrays: net.layers["data"].reset(images, labels) sets images (n, c, h, w) and labels (n,).

    n is a multiple of batch_size. The k-th pass since then returns batch_size entries from k batch_size on;
    after the last entry the first follows. Tops: images (batch_size, channels, height, width) and labels
    (batch_size, 1, 1, 1). Arrays are used as they are, and kept on the device; a copy of the net has none.
    Raises DataError if none were set. Source: Caffe's MemoryData.

    Example: -> {type: MemoryData, batch_size: 2, channels: 3, height: 4, width: 5} ->
    (2, 3, 4, 5), (2, 1, 1, 1)
    """

    batch_size: Annotated[int, "images in a batch", AtLeast(1)]
    channels: Annotated[int, "channels of an image", AtLeast(1)]
    height: Annotated[int, "rows of an image", AtLeast(1)]
    width: Annotated[int, "columns of an image", AtLeast(1)]
    transform: Annotated[Transform, "refused: arrays are taken as they are"] = Transform()

    traits = Traits(takes_share=True, float32_tops=(1,), inferred_as="Input")
    arrays = None

    def setup(self) -> list[Shape]:
        if self.transform != Transform():
            raise SpecError("transform: arrays are taken as they are; transform them before reset")
        self.image = (self.channels, self.height, self.width)
        self.start, self.samples = self.context.share.of(self.batch_size)
        self.whole = self.context.share.of_whole(self.samples)
        return [(self.samples, *self.image), (self.samples, 1, 1, 1)]

    def resize(self, top: str, shape: Shape) -> None:
        """Change the number of images in a batch. Raises ShapeError for any other change."""
        wanted = self.top_shapes()[self.top.index(top)]
        if shape[1:] != wanted[1:]:
            raise ShapeError(f"{top}: expected {wanted} but for the first number, got {shape}")
        self._check_batch(shape[0])
        self.batch_size = shape[0]

    def allocate(self) -> None:
        self.order = np.arange(self.start, self.start + self.samples, dtype=np.int32)
        self.places = np.zeros_like(self.order)
        self.there = self.context.device.asarray(self.places)  # the same array on the CPU

    @property
    def held_batches(self) -> int:
        return len(self.arrays[0]) // self.whole if self.arrays else 0

    def reset(self, images: Any, labels: Any) -> None:
        """Use host arrays from the next pass on. Raises ShapeError, and then keeps the arrays it has."""
        images, labels = np.asarray(images), np.asarray(labels)
        if images.ndim != 4 or images.shape[1:] != self.image or not len(images):
            wanted = ", ".join(map(str, self.image))
            raise ShapeError(f"{self.name}: images: expected (n, {wanted}), got {images.shape}")
        if labels.shape[:1] != images.shape[:1] or labels.size != len(images):
            problem = f"labels: expected ({len(images)},), one an image, got {labels.shape}"
            raise ShapeError(f"{self.name}: {problem}")
        self._check_batch(self.whole, len(images))
        device, n = self.context.device, len(images)
        self.arrays = (
            device.asarray(images.astype(self.dtype).reshape(n, -1)),
            device.asarray(labels.astype(self.sum_dtype).reshape(n, 1)),
        )
        self.first = self.context.passes

    def forward(self) -> Any:
        if self.arrays is None:
            raise DataError(
                f"no arrays were given: net.layers[{self.name!r}].reset(images, labels) gives them, "
                "in pycaffe net.set_input_arrays(images, labels)"
            )
        passes, n = self.context.passes, len(self.arrays[0])
        passes -= self.first if passes >= self.first else 0  # else the count restarted
        np.add(self.order, passes * self.whole % n, out=self.places)
        if self.there is not self.places:
            self.context.device.copy_from_host(self.there, self.places)
        for array, top in zip(self.arrays, self.out, strict=True):
            take(array, self.there, top.reshape(self.samples, -1))
        return self.out

    def backward(self, *tops: Any) -> Any:
        return []

    def _check_batch(self, batch: int, n: int | None = None) -> None:
        """Raise ShapeError unless the arrays are a multiple of a batch."""
        n = n if n is not None else 0 if self.arrays is None else len(self.arrays[0])
        if n % batch:
            problem = f"{n} images are no multiple of a batch of {batch}, which they must be"
            raise ShapeError(f"{self.name}: {problem}")
