"""The layer ImageData: pictures listed in a text file."""

from __future__ import annotations

from typing import Annotated

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import register
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import ShapeError
from minicaffe.storage import lists
from minicaffe.tools.data.layers.fed import Fed, size_of
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader.picture_set import ListSet


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

    forward = Fed.fed
