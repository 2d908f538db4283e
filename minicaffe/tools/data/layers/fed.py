"""Layers fed by a reader: threads read and prepare its pictures ahead of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.backends.dispatch import threads
from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.context import Order
from minicaffe.core.ops.batch import gather
from minicaffe.core.ops.random import random_key
from minicaffe.errors import DataError, ShapeError
from minicaffe.tools.data.augment import Recipe
from minicaffe.tools.data.feed import IN_A_ROW, AnyRecipe, Crew, Damage, Feed, Key, Maker
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.data.picture_files import LARGEST
from minicaffe.tools.data.reader.base import Reader
from minicaffe.tools.data.reader.picture_set import Size

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
        if not len(reader):
            raise DataError(f"data set {reader.name!r} holds no images")
        if self.rand_skip > len(reader):
            raise ShapeError(f"rand_skip {self.rand_skip} is more than {len(reader)} images")

    def _first(self) -> np.ndarray:
        """The first picture that can be read."""
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
            jitter=jitter.most if jitter else None,
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
        self.maker_recipe: AnyRecipe = replace(recipe, mean=mean, finished=not plain)
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
        """The tops, filled with the batch of this pass."""
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
        shape, labels = (ahead, *self.made_shape), self.label_dtype
        size = int(np.prod(shape)) * self.made_dtype.itemsize
        backend.device("cpu").check_fits(size, f"prefetch of {ahead} batches")
        maker = Maker(self.reader, self.maker_recipe, self.on_error == "skip")
        return Feed(Crew(workers, maker, shape, self.made_dtype, labels), self._choose)

    @property
    def label_shape(self) -> Shape:
        return () if self.reader is None else self.reader.label_shape

    @property
    def label_dtype(self) -> np.dtype:
        """The type of a sample's label; of labels of some shape, a type of that shape."""
        return np.dtype((self.sum_dtype, self.label_shape))

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
        begin = self.order.first(self.context.seed, passes, batch)
        epoch = begin // len(self.reader)
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
