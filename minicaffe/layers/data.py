"""The layer Data: a data set of IDX files, in memory, or an LMDB database, read batch by batch."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.backend import random_stream
from minicaffe.data import datasets, datum, lmdb_file, picture_files, wire
from minicaffe.errors import DataError, ShapeError
from minicaffe.layers.base import register
from minicaffe.layers.blob import Shape
from minicaffe.layers.pictures import Order, Pictures, shuffled
from minicaffe.ops.batch import gather
from minicaffe.spec.types import AtLeast


@register
class Data(Pictures):
    """y = (image - mean) scale, a batch of a data set.

    -> (batch_size, c, h, w), the images, and, if there is a second top, (batch_size,), their labels.

    The k-th batch holds the entries k batch_size, ... of the data set repeated without end, each
    repetition shuffled by (seed, epoch), or in its own order without shuffle. `source` is the name of a
    data set or a folder of four IDX files, of which TRAIN reads the training images, TEST the test images;
    or a folder with an LMDB database of Caffe's Datums, raw or encoded (those need Pillow, and have the
    channels blue, green, red), which stays on disk. Pictures of an LMDB may differ in size if they are
    cropped. Raises DataError for a data set that is missing or damaged. Source: Caffe's Data and
    DataTransformer.

    Example: -> {type: Data, source: digits, batch_size: 4} -> (4, 1, 28, 28)
    """

    source: Annotated[str, "mnist, fashion-mnist, digits, a folder of IDX files or of an LMDB"]
    shuffle: Annotated[
        bool | None, "visit in random order; default: in TRAIN, but not of an LMDB"
    ] = None
    backend: Annotated[
        Literal["LMDB", "LEVELDB"] | None, "the kind of database; default: what the folder holds"
    ] = None
    rand_skip: Annotated[int, "begin at a random entry below this one", AtLeast(0)] = 0
    prefetch: Annotated[
        int, "batches that Caffe reads ahead; they are read when due", AtLeast(1)
    ] = 4
    force_encoded_color: Annotated[bool, "the same as transform: {force_color: true}"] = False

    records = cast("lmdb_file.Lmdb | None", None)

    def setup(self) -> list[Shape]:
        if self.records is None:
            self.records = self._database()
        given = self.transform
        if given.force_gray and (given.force_color or self.force_encoded_color):
            raise ShapeError("transform: give either force_color or force_gray, not both")
        if self.records is not None:
            self.count, self.blue_first = len(self.records), True
            self.image = self._read(0)[0].shape if self.count else ()
        else:
            if given.force_color or given.force_gray or self.force_encoded_color:
                raise ShapeError("transform: force_color and force_gray are for encoded images")
            self.split = cast(Any, "train" if self.phase == "TRAIN" else "test")
            self.count, *image = datasets.shape(self.source, self.split, self.context.folder)
            self.image = (image[0], image[1], image[2])
        if not self.count:
            raise DataError(f"data set {self.source!r} holds no images")
        return self.shapes()

    def _database(self) -> lmdb_file.Lmdb | None:
        """The LMDB database that is meant, if one is."""
        places = datasets.places(self.source, self.context.folder) if self.source else []
        for place in places:
            if lmdb_file.is_one(place) and self.backend != "LEVELDB":
                return lmdb_file.Lmdb(place)
            if self.backend == "LEVELDB" or os.path.isfile(place / "CURRENT"):
                raise lmdb_file.needs_leveldb(place)
        if self.backend is not None:
            looked = ", ".join(map(str, places))
            raise DataError(
                f"backend {self.backend}: there is no LMDB database; looked in {looked}"
                "; IDX files, and data sets by name, are found without the key backend"
            )
        return None

    def allocate(self) -> None:
        default = self.phase == "TRAIN" and self.records is None
        wanted = default if self.shuffle is None else self.shuffle
        self.order = Order(self.name, self.count, shuffled if wanted else None, self.rand_skip)
        if self.records is not None:
            origin = str(self.records.path)
            self.dataset = datasets.Source(self.source, origin, self.count)
            self.stage()
            return
        if self.dataset is None:
            self.load()
        # of each image of a batch: the entry, top and left of the crop, and whether it is mirrored
        self.places = np.zeros((4, self.batch_size), np.int64)
        self.there = self.context.device.asarray(self.places)  # the same array on the CPU

    def load(self) -> None:
        """Take the data set, once: images, labels and the mean, on the device."""
        data = datasets.load(self.source, self.split, self.context.folder)
        if data.images.shape != (self.count, *self.image):
            raise DataError(f"data set {self.source!r} changed while it was read")
        device, labelled = self.context.device, len(self.top) > 1
        mean = np.empty(self.image, self.sum_dtype)
        mean[...] = self.mean()
        self.images, self.mean_image = device.asarray(data.images), device.asarray(mean)
        self.all_labels = device.asarray(data.labels.astype(self.sum_dtype)) if labelled else None
        self.dataset = data

    def forward(self) -> Any:
        if self.records is not None:
            self.order.take(self.context.seed, self.context.passes, self.index)
            draws = self.draws()
            for b, entry in enumerate(self.index):
                picture, label = self._read(int(entry))
                self.put(b, picture, label, draws[b], f"{self.records.path}: entry {entry}")
            return self.send()
        self.draw()
        if self.there is not self.places:
            self.context.device.copy_from_host(self.there, self.places)
        given = self.images, self.all_labels, self.there, self.mean_image, self.transform.scale
        gather(*given, *self.out, *[None] * (2 - len(self.out)))
        return self.out

    def _read(self, entry: int) -> tuple[np.ndarray, int]:
        """A picture (c, h, w) of the database, and its label."""
        assert self.records is not None
        place = f"{self.records.path}: entry {entry}"
        with wire.damage_told(place, "Datum"):
            found = datum.read(self.records[entry])
        given = self.transform
        if found.encoded is None:
            if given.force_color or given.force_gray or self.force_encoded_color:
                raise DataError(f"{place}: force_color and force_gray are for encoded images")
            assert found.pixels is not None
            return found.pixels, found.label
        colour = given.force_color or self.force_encoded_color
        kind: Any = "colour" if colour else "grey" if given.force_gray else "as it is"
        return picture_files.decode(found.encoded, place, kind).transpose(2, 0, 1), found.label

    def draw(self) -> None:
        """Choose the next batch on the host: entries, crops and mirrors."""
        index, *crop, mirror = self.places
        n, seed, passes = self.batch_size, self.context.seed, self.context.passes
        self.order.take(seed, passes, index)
        if not self.transform.crop_size and not self.transform.mirror:
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
