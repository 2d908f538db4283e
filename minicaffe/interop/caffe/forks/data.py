"""The pictures that forks read: with boxes (SSD), as clips of videos, with labels of each pixel."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.errors import DataError, ShapeError
from minicaffe.storage import lists
from minicaffe.tools.data import box_recipe, datasets, lmdb_file, picture_files
from minicaffe.tools.data.augment import Recipe, bilinear
from minicaffe.tools.data.datum import AnnotatedSet
from minicaffe.tools.data.layers.data import ImageData, LabelMaps
from minicaffe.tools.data.layers.pictures import Fed, Transform, size_of
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader.base import Entry, Reader
from minicaffe.tools.data.reader.picture_set import Size


@dataclass(frozen=True, kw_only=True)
class BoxTransform(Transform):
    """What is done to a picture with boxes: SSD's TransformationParameter.

    In this order: distort_param, expand_param, a part by batch_sampler, resize_param, noise_param, crop, mean,
    scale, mirror; in TEST as in TRAIN, but for the crop, which is then central.
    """

    crop_h: Annotated[int, "rows of the crop, with crop_w, instead of crop_size", AtLeast(0)] = 0
    crop_w: Annotated[int, "columns of the crop", AtLeast(0)] = 0
    resize_param: Annotated[
        tuple[box_recipe.Resize, ...],
        "the size of all pictures; MobileNet-YOLO's several sizes are not made",
    ] = ()
    noise_param: Annotated[box_recipe.Noise | None, "how pictures are spoilt"] = None
    distort_param: Annotated[box_recipe.Distort | None, "how colours are changed"] = None
    expand_param: Annotated[box_recipe.Expand | None, "a larger canvas"] = None
    emit_constraint: Annotated[
        box_recipe.EmitConstraint | None, "which boxes stay; default: of which something is left"
    ] = None


@register
class AnnotatedData(Fed):
    """y = (picture - mean) scale, a batch of pictures with boxes, and the boxes.

    -> (batch_size, c, h, w), the pictures, and, if there is a second top, (1, 1, k, 8), the true boxes: the
    picture's place in the batch, class, instance, x0, y0, x1, y1 as fractions of the picture, difficult; k is
    batch_size times the most boxes of a picture, and rows of no box are all -1 (SSD's top has none of those).

    `source` is an LMDB database of AnnotatedDatums, as SSD's convert_annoset and `minicaffe convert-images
    --boxes` write it. Colours, canvas, part, size, noise, crop and mirror of a picture are a function of
    (seed, epoch, entry). A part is one of those that the batch_samplers find, or the whole picture if there
    is none. Pictures need one size, by resize_param or crop. Needs Pillow for encoded pictures; raises
    DataError for a database that is missing or damaged.

    Source: AnnotatedData of SSD; W. Liu et al., SSD, 2016.

    Example: -> {type: AnnotatedData, source: boxes_lmdb, batch_size: 2} -> (2, 3, 24, 32), (1, 1, 6, 8)
    """

    source: Annotated[str, "an LMDB database of AnnotatedDatums"]
    batch_sampler: Annotated[
        tuple[box_recipe.BatchSampler, ...], "parts of a picture, one of which is taken"
    ] = ()
    label_map_file: Annotated[str, "names of the classes: without effect on training"] = ""
    anno_type: Annotated[Literal["BBOX"] | None, "what the database holds: boxes"] = None
    shuffle: Annotated[bool, "visit in random order"] = False
    backend: Annotated[Literal["LMDB", "LEVELDB"], "the kind of database"] = "LMDB"
    transform: Annotated[
        BoxTransform, "colours, canvas, size, noise, crop, mean, scale, mirror"
    ] = BoxTransform()

    traits = replace(Fed.traits, label_kind="boxes")

    def setup(self) -> list[Shape]:
        transform = self.transform
        for key in ("resize", "random_resized_crop", "rotation", "color_jitter"):
            if getattr(transform, key):
                raise ShapeError(
                    f"transform: {key} does not move boxes: resize_param, batch_sampler, distort_param do"
                )
        if transform.force_color and transform.force_gray:
            raise ShapeError("transform: give either force_color or force_gray, not both")
        h, w = bool(transform.crop_h), bool(transform.crop_w)
        if h != w or (h and transform.crop_size):
            raise ShapeError("transform: give crop_size, or both crop_h and crop_w")
        if (count := len(transform.resize_param)) > 1:
            problem = f"expected one, got {count}: the pictures of all batches have one size"
            raise ShapeError(f"transform: resize_param: {problem}")
        resized = self.resized()
        if resized and resized.resize_mode == "FIT_SMALL_SIZE" and not self.crop:
            why = "resize_param: FIT_SMALL_SIZE makes pictures of several sizes; it needs crop_size"
            raise ShapeError(f"transform: {why}")
        if transform.mean_file and (transform.expand_param or self.batch_sampler):
            raise ShapeError(
                "transform: expand_param and batch_sampler go with mean_value, not mean_file"
            )
        return self.measure(self.reader or self.opened())

    def opened(self) -> AnnotatedSet:
        folders = datasets.places(self.source, self.context.folder) if self.source else []
        if self.backend == "LEVELDB":
            place = folders[0] if folders else Path(self.source)
            raise lmdb_file.needs_leveldb(place, "convert-images --boxes)")
        folder = next(filter(lmdb_file.is_one, folders), None)
        if folder is None:
            problem = f"looked in {', '.join(map(str, folders)) or 'no folder'}"
            raise DataError(f"source: there is no LMDB database {self.source!r}; {problem}")
        transform = self.transform
        colour: Any = "grey" if transform.force_gray else None  # setup refuses both
        return AnnotatedSet(folder, self.source, "colour" if transform.force_color else colour)

    @property
    def crop(self) -> tuple[int, int] | None:
        transform = self.transform
        if transform.crop_size:
            return transform.crop_size, transform.crop_size
        return (transform.crop_h, transform.crop_w) if transform.crop_h else None

    def measure(self, reader: Reader) -> list[Shape]:
        self.read_from(reader)
        c, h, w = self._first().shape
        self.largest, resized = h * w, self.resized()
        if resized is not None:
            varies = resized.resize_mode == "FIT_SMALL_SIZE"
            h, w = resized.size(h, w) if varies else (resized.height, resized.width)
        self.image = c, h, w
        if c != 3 and self.transform.distort_param is not None:
            raise ShapeError(f"transform: distort_param: expected pictures of 3 channels, got {c}")
        annotated: Any = reader
        self.most = max(1, annotated.boxes(self.on_error == "skip")) if len(self.top) > 1 else 1
        self.label_shape = (self.most, 8)
        return self.shapes()

    def shapes(self) -> list[Shape]:
        (c, h, w), crop = self.image, self.crop
        self.check_tops("pictures, boxes", c)
        resized = self.resized()
        noise, expand = self.transform.noise_param, self.transform.expand_param
        for key, numbers in (
            ("resize_param: pad_value", resized.pad_value if resized else ()),
            ("noise_param: saltpepper_param: value", noise.saltpepper_param.value if noise else ()),
        ):
            if len(numbers) not in (0, 1, c):
                raise ShapeError(f"transform: {key}: expected 1 or {c} numbers, got {len(numbers)}")
        if expand is not None and (self.largest * expand.max_expand_ratio**2) > box_recipe.MOST:
            raise ShapeError(
                f"transform: expand_param: a canvas {expand.max_expand_ratio:g} times as high and wide as "
                f"pictures of {self.largest} pixels is too large"
            )
        if h * w > box_recipe.MOST:
            raise ShapeError(f"transform: resize_param: pictures of {h} x {w} are too large")
        varies = resized is not None and resized.resize_mode == "FIT_SMALL_SIZE"
        if crop and not varies and (crop[0] > h or crop[1] > w):
            problem = f"a crop of {crop[0]} x {crop[1]} is larger than the pictures of {h} x {w}"
            raise ShapeError(f"transform: {problem}")
        pictures: Shape = (self.samples, c, *(crop or (h, w)))
        return [pictures, (1, 1, self.samples * self.most, 8)][: len(self.top)]

    def resized(self) -> box_recipe.Resize | None:
        return next(iter(self.transform.resize_param), None)

    def allocate(self) -> None:
        self.begin(self.shuffle)
        self.in_bytes()
        transform, rest = self.transform, self.maker_recipe
        assert isinstance(rest, Recipe)
        self.maker_recipe = box_recipe.BoxRecipe(
            rest=replace(rest, crop=max(self.crop) if self.crop else None, sized_by="resize_param"),
            boxes=self.most,
            distortion=transform.distort_param,
            expand=transform.expand_param,
            fill=transform.mean_value,
            samplers=tuple(one for one in self.batch_sampler if one.use_original_image),
            resized=self.resized(),
            noise=transform.noise_param,
            emit=transform.emit_constraint,
        )

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        pictures, rows = super().take()
        return pictures, self.true_boxes(rows) if len(self.out) > 1 else rows

    def true_boxes(self, rows: np.ndarray) -> np.ndarray:
        """The second top from the rows (n, most, 8) of the samples: boxes first, then those that are none."""
        boxes = rows.copy()
        is_box = boxes[:, :, 1] >= 0
        boxes[:, :, 0] = np.where(is_box, np.arange(len(rows))[:, None], -1)
        boxes, is_box = boxes.reshape(-1, 8), is_box.ravel()
        return np.concatenate([boxes[is_box], boxes[~is_box]]).reshape(self.out[1].shape)


NAMES = ("image_{:04d}", "{:06d}")  # of frames: video-caffe's, C3D's
FRAMES = [name + ending for ending in (".jpg", ".png") for name in NAMES]


class ClipSet(Reader):
    """The clips that a list names, a folder, the first frame's number and the label in each line.

    A clip is an array (c length, h, w), channel by channel: all frames of blue come first.
    """

    blue_first = True
    unit = "clips"

    def __init__(
        self, path: Path, name: str, length: int, colour: Colour, size: Size | None, root: str
    ):
        self.name, self.list, self.origin, self.root = name, path, str(path), root
        self.length, self.colour, self.size = length, colour, size
        words = lists.words(path)
        if not words or len(words) % 3:
            raise DataError(
                f"{path}: expected a folder, a frame's number and a label in each line, found "
                f"{len(words)} words"
            )
        self.folders = words[::3]
        numbers = [lists.integer(path, word, "a number") for i, word in enumerate(words) if i % 3]
        self.first, self.labels = numbers[::2], numbers[1::2]

    def __len__(self) -> int:
        return len(self.folders)

    def __getitem__(self, i: int) -> Entry:
        frames = [self._frame(i, self.first[i] + k) for k in range(self.length)]
        if len({frame.shape for frame in frames}) > 1:
            raise DataError(f"{self.place(i)}: its frames are of several sizes")
        clip = np.stack(frames).transpose(3, 0, 1, 2)
        return clip.reshape(-1, *clip.shape[2:]), self.labels[i]

    def label(self, i: int) -> int:
        return self.labels[i]

    def key(self, i: int) -> str:
        return f"{self.folders[i]} {self.first[i]}"

    def place(self, i: int) -> str:
        return f"{self.root}{self.folders[i]}: frame {self.first[i]}"

    def _frame(self, i: int, number: int) -> np.ndarray:
        """A frame (h, w, c)."""
        folder = self.root + self.folders[i]
        for home in (Path(folder), self.list.parent / folder):
            for pattern in FRAMES:
                path = home / pattern.format(number)
                if path.is_file():
                    picture = picture_files.read(path, self.colour)
                    return picture if self.size is None else bilinear(picture, *self.size)
        raise DataError(f"{folder}: has no frame {number}, such as {FRAMES[0].format(number)}")


@register
class VideoData(ImageData):
    """y = (frame - mean) scale, a batch of clips of videos.

    -> (batch_size, c, new_length, h, w), and, if there is a second top, (batch_size,), their labels.

    `source` names a text file: a folder, the number of the first frame and a label in each line. Frames are
    pictures image_0001.jpg or 000001.jpg and on in the folder, which `root_folder` is put before, relative to
    the current folder or the list's. They are scaled to new_height x new_width, or have one size; all frames
    of a clip are cut and mirrored alike, by (seed, epoch, entry). Order, `workers` and `on_error` are
    ImageData's. Needs Pillow; raises DataError for a frame that is missing or damaged, or of another size.
    Files of video are not read. Source: VideoData of C. Choy's video-caffe; D. Tran et al., C3D, 2015.

    Example: -> {type: VideoData, source: clips.txt, batch_size: 2, new_length: 2} -> (2, 3, 2, 6, 7), (2,)
    """

    source: Annotated[str, "a text file: a folder, the first frame and a label in each line"]
    batch_size: Annotated[int, "clips in a batch", AtLeast(1)] = 1
    new_length: Annotated[int, "frames of a clip", AtLeast(1)] = 1
    root_folder: Annotated[str, "put before each folder"] = ""

    traits = replace(Fed.traits, capturable=False, label_kind="")  # clips
    wide_top = cast(Any, None)  # the first top in the type of sums

    def setup(self) -> list[Shape]:
        transform = self.transform
        forced = transform.force_color or transform.force_gray
        if transform.by_pixels or transform.resize or transform.mean_file or forced:
            raise ShapeError("transform: clips take mirror, crop_size, mean_value and scale")
        size = size_of(self.new_height, self.new_width)
        if self.reader is None:
            path = lists.find(self.source, [self.context.folder], "source")
            colour: Colour = "colour" if self.is_color else "grey"
            keys = self.new_length, colour, size, self.root_folder
            self.reader = ClipSet(path, self.source, *keys)
        return self.measure(self.reader)

    def shapes(self) -> list[Shape]:
        planes, h, w = self.image
        c, crop = planes // self.new_length, self.transform.crop_size
        self.check_tops("clips, labels", c)
        if crop and crop > min(h, w):
            raise ShapeError(f"transform: crop_size {crop} is larger than the frames of {h} x {w}")
        size = (crop, crop) if crop else (h, w)
        return [(self.samples, c, self.new_length, *size), (self.samples,)][: len(self.top)]

    @property
    def made_shape(self) -> Shape:
        n, c, frames, h, w = self.out[0].shape
        return n, c * frames, h, w

    allocate = LabelMaps.allocate  # by the shapes of `out` and `made_shape`

    def forward(self) -> Any:
        xp, (pixels, labels), device = self.xp, self.take(), self.context.device
        if self.pixels is not None:
            device.copy_from_host(self.pixels, pixels)
            pixels = self.pixels
        xp.subtract(pixels.reshape(self.out[0].shape), self.mean_image[:, None], out=self.wide_top)
        xp.multiply(self.wide_top, self.transform.scale, out=self.wide_top)
        if self.wide_top is not self.out[0]:
            xp.copyto(self.out[0], self.wide_top)
        if len(self.out) > 1:
            device.copy_from_host(self.out[1], labels)
        self.done()
        return self.out


@register
class DenseImageData(LabelMaps):
    """Listed pictures, y = (image - mean) scale, and pictures of their labels, pixel by pixel.

    -> (batch_size, c, h, w), and (batch_size, 1, h, w) if there is a second top. `source` names a text file
    with two paths in each line: a picture's and its labels', grey values of 8 bits. `root_folder` is put
    before each, which is relative to the current folder or the list's. Both are scaled to
    new_height x new_width, labels to the nearest, or all have one size; and cut, at random in TRAIN, in the
    middle in TEST, and mirrored together, by (seed, epoch, entry). Order, `workers` and `on_error` are
    ImageData's. Labels may be smaller by label_divide_factor, of pictures that are scaled and neither cut nor
    mirrored. Needs Pillow; raises DataError for a file that is missing or damaged, or of another size.
    Source: DenseImageData of A. Kendall's caffe-segnet; V. Badrinarayanan et al., SegNet, 2015;
    label_divide_factor is that of T. Saemann's caffe-enet.

    Example: -> {type: DenseImageData, source: pairs.txt, batch_size: 2, crop_height: 4, crop_width: 5} ->
    (2, 3, 4, 5), (2, 1, 4, 5)
    """

    mirror: Annotated[bool, "flip left and right at random"] = False
    crop_height: Annotated[int, "rows to cut out; 0: all", AtLeast(0)] = 0
    crop_width: Annotated[int, "columns to cut out; 0: all", AtLeast(0)] = 0

    label_divide_factor: Annotated[
        int, "ENet's: labels have so many times fewer rows and columns", AtLeast(1)
    ] = 1

    nearest = True

    @property
    def cut(self) -> tuple[int, int] | None:
        return (self.crop_height, self.crop_width) if self.crop_height else None

    @property
    def recipe(self) -> Recipe:
        return replace(super().recipe, mirror=self.mirror, crop=self.crop_height or None)

    def setup(self) -> list[Shape]:
        if bool(self.crop_height) != bool(self.crop_width):
            raise ShapeError("crop_height and crop_width are given together, or neither")
        if self.transform.mirror or self.transform.crop_size:
            raise ShapeError(
                "transform: mirror and crop_size: here mirror, crop_height and crop_width are the layer's keys"
            )
        factor = self.label_divide_factor
        if factor > 1 and (self.mirror or self.crop_height):
            raise ShapeError("label_divide_factor: above 1 without mirror, crop_height, crop_width")
        if factor > 1 and not (self.new_height and self.new_width):
            raise ShapeError("label_divide_factor: above 1 with new_height and new_width")
        if self.new_height % factor or self.new_width % factor:
            size = f"{self.new_height} x {self.new_width}"
            problem = f"{factor} does not divide new_height x new_width, {size}"
            raise ShapeError(f"label_divide_factor: {problem}")
        return super().setup()

    def shapes(self) -> list[Shape]:
        factor = self.label_divide_factor
        images, *labels = super().shapes()
        return [images, *((n, c, h // factor, w // factor) for n, c, h, w in labels)]

    def labelled(self, pixels: Any) -> Any:
        return pixels[:, :, :: self.label_divide_factor, :: self.label_divide_factor]


@register
class ImageLabelmapData(LabelMaps):
    """Listed pictures, y = (image - mean) scale, and of their edges: 1 from the grey value 128 on, else 0.

    -> (batch_size, c, h, w), and (batch_size, 1, h, w) if there is a second top. `source` names a text file
    with two paths in each line: a picture's and its edges'. `root_folder` is put before each, which is
    relative to the current folder or the list's. Both are scaled to new_height x new_width, or all have one
    size; and cut (crop_size), at random in TRAIN, in the middle in TEST, and mirrored together, by (seed,
    epoch, entry). Order, `workers` and `on_error` are ImageData's. Needs Pillow; raises DataError for a file
    that is missing or damaged, or of another size. Source: ImageLabelmapData of S. Xie's HED.

    Example: -> {type: ImageLabelmapData, source: pairs.txt, batch_size: 2, new_height: 9, new_width: 8} ->
    (2, 3, 9, 8), (2, 1, 9, 8)
    """

    batch_size: Annotated[int, "images in a batch", AtLeast(1)] = 1

    def labelled(self, pixels: Any) -> Any:
        return pixels >= 128
