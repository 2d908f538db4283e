"""The layer Data: reads a data set of any supported kind, batch by batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.core.ops.batch import gather
from minicaffe.errors import DataError, ShapeError, SpecError
from minicaffe.storage import lists
from minicaffe.tools.data import datasets, lmdb_file, readers
from minicaffe.tools.data.datasets import Split
from minicaffe.tools.data.feed import draws
from minicaffe.tools.data.layers.pictures import Fed, size_of
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader.base import SHARE, Reader, sides
from minicaffe.tools.data.reader.picture_set import ListSet

PARTS = 4  # of a GPU's memory: a data set larger than one such part stays in host memory


@register
class Data(Fed):
    """y = (image - mean) scale, a batch of a data set.

    -> (batch_size, c, h, w), the images, and, if there is a second top, (batch_size,), their labels, or
    (batch_size, labels), 0 and 1, of a table whose pictures have several labels.

    The k-th batch holds the entries k batch_size, ... of the data set repeated without end, each
    repetition shuffled by (seed, epoch), or in its own order without shuffle. The crop and the other random
    changes of an entry are a function of (seed, epoch, entry). `source` is the name
    of a data set, or the path of a folder or file of any supported kind (docs/data.md): TRAIN reads the
    training images, TEST the test images. If a set has no test images, is not an LMDB and is read by both
    phases of a model with a solver, TRAIN leaves out a fifth of each class, which TEST reads (`split`).
    Small sets are kept in memory; of others `workers` read `prefetch` batches ahead. Encoded pictures
    need Pillow, and have the channels blue, green, red. Pictures may differ in size if they are cropped, or
    scaled to new_height x new_width. Raises DataError for a data set that is missing or damaged.
    Source: Caffe's Data and DataTransformer.

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

    images = cast(Any, None)  # the data set on the device, where it is kept there

    def setup(self) -> list[Shape]:
        return self.measure(self.reader or self._opened())

    def _opened(self) -> Reader:
        """The data set that `source` names."""
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
            raise SpecError(
                f"split: layers that read {self.source} say {shares}; expected one number"
            )
        if reader.own_split and self.split:
            raise DataError(f"split: {reader.origin} has test entries of its own; leave split out")
        by_default = SHARE if self.in_both is not None and not reader.in_order else 0.0
        share = asked.pop() if asked else by_default
        if not share or reader.own_split:
            return reader
        parts = sides(reader, share)
        if parts is None and share != by_default:
            raise DataError(
                f"split: {reader.origin} has no class of two entries, one of which could be held out"
            )
        return reader if parts is None else parts[self.phase == "TEST"]

    def allocate(self) -> None:
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
    which is relative to the current folder or the list's. The pictures are scaled to
    new_height x new_width, or have one size; channels are blue, green, red. The k-th batch holds the
    entries k batch_size, ... of the list repeated without end, each repetition shuffled by (seed, epoch) with
    `shuffle`. As in Data, pictures are prepared by (seed, epoch, entry), ahead of time by `workers`. Needs
    Pillow; raises DataError for a file that is missing, damaged or of another size.
    Source: Caffe's ImageData and DataTransformer.

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
