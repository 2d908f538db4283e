"""The layers of the SSD detector: PriorBox, DetectionOutput, with the files it writes, DetectionEvaluate."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.core.config.tree import load
from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops import arrays
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks import boxes as ops
from minicaffe.interop.caffe.forks.whole import Whole
from minicaffe.interop.caffe.label_map import names_in
from minicaffe.storage import checkpoint, lists
from minicaffe.tools.data.box_recipe import Resize

LEAST = float(np.finfo(np.float32).min)


@dataclass
class DetectionFiles:
    """Detections of the pictures of a test, in the order of `names`, written when the last one is there."""

    folder: Path
    prefix: str
    format: str
    classes: dict[int, str]
    names: list[str]
    sizes: list[tuple[int, int]]  # height, width
    background: int
    passes: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)  # of a test, so far
    rows: list[tuple[str, int, float, np.ndarray]] = field(default_factory=list)

    @classmethod
    def opened(cls, given: SaveOutput, background: int) -> DetectionFiles:
        """The files of a SaveOutput. Raises MinicaffeError for a list that is missing or none."""
        sizes, count = given.name_size_file, given.num_test_image
        file, text = load(given.label_map_file, "prototxt", own=True)
        classes = names_in(text, file, shown=False)
        names, found = [], []
        for number, line in enumerate(lists.text(Path(sizes)).splitlines(), 1):
            words = line.split()
            if not words:
                continue
            if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
                raise DataError(
                    f"{sizes}:{number}: expected a name, a height and a width, got {line!r}"
                )
            names.append(words[0])
            found.append((int(words[1]), int(words[2])))
        if not 0 < (count or len(names)) <= len(names):
            raise DataError(
                f"save_output_param: num_test_image {count}: {sizes} names {len(names)} pictures"
            )
        count = count or len(names)
        how = Path(given.output_directory), given.output_name_prefix, given.output_format
        return cls(*how, classes, names[:count], found[:count], background)

    def add(self, number: int, images: int, rows: np.ndarray) -> bool:
        """Take the rows of a pass, the `number`-th of a test; returns whether files were written.

        The passes may come in any order. One that is there already begins a new test. Pictures that follow the
        last one named are not taken.
        """
        if number in self.passes:
            self.passes = {}
        self.passes[number] = images, rows
        if sum(count for count, _ in self.passes.values()) < len(self.names):
            return False
        first, self.rows = 0, []
        for count, found in (self.passes[n] for n in sorted(self.passes)):
            self._take(found, first)
            first += count
        self._write()
        self.passes = {}
        return True

    def _take(self, rows: np.ndarray, first: int) -> None:
        """Take the rows of pictures, the `first` of a test."""
        for row in rows:
            place = first + int(row[0])
            if row[1] < 0 or place >= len(self.names) or np.isnan(row).any():
                continue
            if int(row[1]) not in self.classes:
                raise DataError(f"save_output_param: label_map_file: has no class {int(row[1])}")
            h, w = self.sizes[place]
            box = row[3:7].clip(0, 1) * np.array([w, h, w, h])
            self.rows.append((self.names[place], int(row[1]), float(row[2]), box))

    def _write(self) -> None:
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"save_output_param: output_directory {self.folder}: {error.strerror}"
            ) from None
        for name, text in self._texts().items():
            put = partial(lambda data, file: file.write(data), text.encode())
            checkpoint.replace(str(self.folder / name), put)

    def _texts(self) -> dict[str, str]:
        """What is written, by file."""
        whole = [(name, label, score, box.astype(int)) for name, label, score, box in self.rows]
        if self.format == "VOC":
            return {
                f"{self.prefix}{called}.txt": "".join(
                    f"{name} {score:.6g} {' '.join(map(str, box))}\n"
                    for name, own, score, box in whole
                    if own == label
                )
                for label, called in self.classes.items()
                if label != self.background
            }
        if self.format == "ILSVRC":
            lines = [
                f"{name} {label} {score:.6g} {' '.join(map(str, box))}\n"
                for name, label, score, box in whole
            ]
            return {f"{self.prefix}.txt": "".join(lines)}
        found = [
            {
                "image_id": _number(name),
                "category_id": _number(self.classes[label]),
                "bbox": [
                    round(float(v), 2) for v in (box[0], box[1], box[2] - box[0], box[3] - box[1])
                ],
                "score": round(score, 6),
            }
            for name, label, score, box in self.rows
        ]
        return {f"{self.prefix}.json": json.dumps(found, indent=1) + "\n"}


def _number(text: str) -> int | str:
    """A name that is a number, as COCO's are, as one."""
    return int(text) if text.isdigit() else text


class Priors(Layer):
    """Boxes of set sizes, `boxes`, around each place of a map; a subclass has the keys."""

    traits = Traits(keeps_top=True, recordable=True, label_bottoms=(0, 1), float32_tops=(0,))
    variance: tuple[float, ...]
    boxes: np.ndarray
    clip: bool
    offset: float

    def lay(self, x: Shape, image: Shape) -> None:
        """Take the sizes of the map and the image. Raises ShapeError for invalid keys."""
        if len(x) != 4 or len(image) != 4:
            raise ShapeError(f"needs bottoms of 4 axes (n, c, h, w), got {x} and {image}")
        for key in ("aspect_ratio", "variance", "step", "step_h", "step_w"):
            given = getattr(self, key, None)
            if given is not None and np.min(given, initial=1) <= 0:
                raise ShapeError(f"{key}: expected numbers above 0, got {given}")
        if len(self.variance) not in (0, 1, 4):
            raise ShapeError(f"variance: expected 1 or 4 numbers, got {len(self.variance)}")
        self.area, pixels = x[2:], self.pair("img", "img_size")
        self.image = image[2:] if pixels is None else (int(pixels[0]), int(pixels[1]))

    def pair(self, key: str, whole: str) -> tuple[float, float] | None:
        """A key's values, set as one number or as _h and _w; None if neither is set."""
        one, h, w = getattr(self, whole), getattr(self, f"{key}_h"), getattr(self, f"{key}_w")
        if h is None and w is None:
            return None if one is None else (one, one)
        if one is not None or h is None or w is None:
            raise ShapeError(f"give either {whole} or both {key}_h and {key}_w")
        return h, w

    def corners(self) -> np.ndarray:
        """The boxes (h w k, 4), in float64."""
        given = self.pair("step", "step")
        step = given or tuple(i / a for i, a in zip(self.image, self.area, strict=True))
        made = ops.priors(self.area, self.image, (step[0], step[1]), self.offset, self.boxes)
        return np.clip(made, 0, 1, out=made) if self.clip else made

    def allocate(self) -> None:
        made = self.corners()
        both = np.empty((1, 2, made.size), self.sum_dtype)
        both[0, 0] = made.ravel()
        both[0, 1].reshape(-1, 4)[:] = self.variance or 0.1
        self.priors = self.context.device.asarray(both)

    def forward(self, x: Any, image: Any) -> Any:
        return arrays.copy(self.priors, self.out[0])


@register
class PriorBox(Priors):
    """Boxes of set sizes around each place of a map, and their variances. Bottoms: the map, the image.

    (n, c, h, w), (n, c, H, W) -> (1, 2, 4 k h w) for k boxes per place, as fractions of the image: x0, y0, x1,
    y1 of each, row by row, column by column; then their four variances. Each min_size adds a square, another
    of side sqrt(min_size max_size) if max_size is given, and a box per aspect ratio; sizes are rounded down to
    whole numbers, as in SSD. No gradient. Source: PriorBox of SSD; W. Liu et al., SSD, 2016.

    Example: (1, 8, 3, 4), (1, 3, 30, 40) -> {type: PriorBox, min_size: 8, aspect_ratio: 2} -> (1, 2, 144)
    """

    min_size: Annotated[tuple[float, ...], "sides of the squares, in pixels", AtLeast(1)]
    max_size: Annotated[
        tuple[float, ...], "one larger for each min_size: a square between them", AtLeast(1)
    ] = ()
    aspect_ratio: Annotated[tuple[float, ...], "widths over heights of more boxes"] = ()
    flip: Annotated[bool, "boxes of the inverse ratios too"] = True
    clip: Annotated[bool, "cut the boxes to the image"] = False
    variance: Annotated[tuple[float, ...], "one number, or one per side; default: 0.1"] = ()
    img_size: Annotated[int | None, "side of the image; default: the bottom's", AtLeast(1)] = None
    img_h: Annotated[int | None, "height of the image", AtLeast(1)] = None
    img_w: Annotated[int | None, "width of the image", AtLeast(1)] = None
    step: Annotated[float | None, "pixels between places; default: image over map"] = None
    step_h: Annotated[float | None, "pixels between rows"] = None
    step_w: Annotated[float | None, "pixels between columns"] = None
    offset: Annotated[float, "of the boxes' centre from a place's corner, in steps"] = 0.5

    def setup(self, x: Shape, image: Shape) -> Shape:
        self.lay(x, image)
        if not self.min_size:
            raise ShapeError("min_size: expected a number at least")
        if self.max_size and (
            len(self.max_size) != len(self.min_size)
            or any(b <= a for a, b in zip(self.min_size, self.max_size, strict=True))
        ):
            raise ShapeError("max_size: expected one for each min_size, larger than that")
        ratios = ops.aspect_ratios(self.aspect_ratio, self.flip)
        self.boxes = ops.sizes(self.min_size, self.max_size, ratios)
        return (1, 2, math.prod(self.area) * len(self.boxes) * 4)


@register
class PriorBoxClustered(Priors):
    """A PriorBox whose boxes have the widths and heights that are given. Bottoms: the map, the image.

    (n, c, h, w), (n, c, H, W) -> (1, 2, 4 k h w) for k boxes a place, as PriorBox has them. No gradient.
    Source: PriorBoxClustered of OpenVINO's training_toolbox_caffe.

    Example: (1, 8, 3, 4), (1, 3, 30, 40) ->
    {type: PriorBoxClustered, width: [9, 20], height: [12, 7]} -> (1, 2, 96)
    """

    width: Annotated[tuple[float, ...], "widths of the boxes, in pixels"]
    height: Annotated[tuple[float, ...], "their heights"]
    clip: Annotated[bool, "cut the boxes to the image"] = False
    variance: Annotated[tuple[float, ...], "one number, or one per side; default: 0.1"] = ()
    img_size: Annotated[int | None, "side of the image; default: the bottom's", AtLeast(1)] = None
    img_h: Annotated[int | None, "height of the image", AtLeast(1)] = None
    img_w: Annotated[int | None, "width of the image", AtLeast(1)] = None
    step: Annotated[float | None, "pixels between places; default: image over map"] = None
    step_h: Annotated[float | None, "pixels between rows"] = None
    step_w: Annotated[float | None, "pixels between columns"] = None
    offset: Annotated[float, "of the boxes' centre from a place's corner, in steps"] = 0.5

    def setup(self, x: Shape, image: Shape) -> Shape:
        for key in ("width", "height"):
            given = getattr(self, key)
            if len(given) != len(self.width) or not given or min(given) <= 0:
                raise ShapeError(
                    f"{key}: expected {len(self.width) or 1} numbers above 0, got {given}"
                )
        self.lay(x, image)
        self.boxes = np.stack([self.width, self.height], axis=1)
        return (1, 2, math.prod(x[2:]) * len(self.width) * 4)


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """How boxes that overlap a better one are dropped (SSD's NonMaximumSuppressionParameter)."""

    nms_threshold: Annotated[float, "the largest overlap that is kept", AtLeast(0)] = 0.3
    top_k: Annotated[int, "how many of a class's best boxes are used; -1: all"] = -1
    eta: Annotated[float, "a threshold above 0.5 is multiplied by it after each box kept"] = 1.0


@dataclass(frozen=True, kw_only=True)
class SaveOutput:
    """The files of a test's detections that SSD writes, if a folder, a format and both lists are named."""

    output_directory: Annotated[str, "the folder that they are written to; empty: none are"] = ""
    output_name_prefix: Annotated[str, "how their names begin"] = ""
    output_format: Annotated[
        Literal["", "VOC", "COCO", "ILSVRC"], "a file a class, PREFIX.json, or PREFIX.txt"
    ] = ""
    label_map_file: Annotated[str, "a label map: the names of the classes"] = ""
    name_size_file: Annotated[str, "a line a picture, in order: name, height, width"] = ""
    num_test_image: Annotated[
        int, "how many pictures a test has; 0: as many as lines", AtLeast(0)
    ] = 0
    resize_param: Annotated[
        Resize | None, "SSD's, for pictures that are not stretched: without effect"
    ] = None


def prior_counts(layer: Any, loc: Shape, scores: Shape, prior: Shape) -> tuple[int, int, int]:
    """Returns the number of pictures, of prior boxes, and of predictions a box: 1, or one a class.

    Raises ShapeError for bottoms that do not fit together.
    """
    if len(prior) < 3 or prior[0] != 1 or prior[1] != 2 or prior[2] % 4:
        raise ShapeError(f"needs prior boxes (1, 2, 4 p) as its third bottom, got {prior}")
    count, places, classes = loc[0] if loc else 1, prior[2] // 4, layer.num_classes
    kinds = 1 if layer.share_location else classes
    for what, shape, each in (("predictions", loc, 4 * kinds), ("scores", scores, classes)):
        if math.prod(shape) != count * places * each or shape[:1] != loc[:1]:
            raise ShapeError(
                f"needs {what} of shape ({count}, {places * each}) for {places} prior boxes, got {shape}"
            )
    return count, places, kinds


@register
class DetectionOutput(Whole):
    """SSD's detections: decodes boxes, and drops those that overlap a better one of their class.

    Bottoms, for p prior boxes: predictions (n, 4 p), or (n, 4 p num_classes) without share_location;
    scores (n, p num_classes); priors (1, 2, 4 p) of PriorBox. Top: (1, 1, kept, 7), one row per box: image,
    class, score, x0, y0, x1, y1; by image, by class, the best first. If nothing is found, the top has a row of
    -1 per image. It is for inference: it runs on the host, waits for the device, and has no gradient.
    Raises DataError for a prior box without an area. Source: DetectionOutput of SSD; W. Liu et al., SSD, 2016;
    `clip` is OpenCV's.

    Example: (1, 8), (1, 6), (1, 2, 8) -> {type: DetectionOutput, num_classes: 3} -> (1, 1, 4, 7)
    """

    num_classes: Annotated[int, "classes, the background among them", AtLeast(1)]
    share_location: Annotated[bool, "one predicted box for all classes"] = True
    background_label_id: Annotated[int, "the background's class; -1: none"] = 0
    nms_param: Annotated[Suppression, "how boxes that overlap are dropped"] = Suppression()
    save_output_param: Annotated[SaveOutput, "files of a test's detections"] = SaveOutput()
    code_type: Annotated[
        Literal["CORNER", "CENTER_SIZE", "CORNER_SIZE"], "what is predicted of a box"
    ] = "CORNER"
    variance_encoded_in_target: Annotated[bool, "do not scale predictions by variances"] = False
    clip: Annotated[bool, "cut the boxes to the image, as OpenCV's SSD can"] = False
    keep_top_k: Annotated[int, "how many of an image's best boxes are kept; -1: all"] = -1
    confidence_threshold: Annotated[float | None, "a score must be above it; default: any is"] = (
        None
    )
    visualize: Annotated[bool, "SSD's windows on a screen: must be false"] = False
    visualize_threshold: Annotated[float, "SSD's, of those windows: without effect"] = 0.6
    save_file: Annotated[str, "SSD's, of those windows: without effect"] = ""

    traits = Traits(
        sizes_vary=True, label_bottoms=(0, 1, 2), float32_bottoms=(2,), float32_tops=(0,)
    )
    files = cast("DetectionFiles | None", None)

    def setup(self, loc: Shape, scores: Shape, prior: Shape) -> Shape:
        nms = self.nms_param
        if self.visualize:
            raise ShapeError("visualize: minicaffe shows no windows; expected false")
        if not 0 < nms.eta <= 1:
            raise ShapeError(f"nms_param: eta: expected above 0 and at most 1, got {nms.eta}")
        self.count, self.places, self.kinds = prior_counts(self, loc, scores, prior)
        self.classes = [c for c in range(self.num_classes) if c != self.background_label_id]
        seen = self.places if nms.top_k < 0 else min(nms.top_k, self.places)
        most = seen * len(self.classes)
        most = most if self.keep_top_k < 0 else min(most, self.keep_top_k)
        return (1, 1, max(most, 1) * self.count, 7)

    def forward(self, loc: Any, scores: Any, prior: Any) -> Any:
        rows = self.found(*map(self.on_host, (loc, scores, prior)))
        self.save(rows)
        return self.put_rows(rows, axis=2)

    def save(self, rows: np.ndarray) -> None:
        """Write the detections of a test, as save_output_param says, when its last picture is there."""
        given = self.save_output_param
        needed = given.output_format, given.label_map_file, given.name_size_file
        if not (given.output_directory and all(needed)):
            return
        if self.files is None:
            self.files = DetectionFiles.opened(given, self.background_label_id)
            self.context.tell(
                f"{self.name}: save_output_param: the detections of each test's first "
                f"{len(self.files.names)} pictures are written to {given.output_directory}"
            )
        self.files.add(self.context.passes, self.count, rows)

    def found(self, loc: np.ndarray, scores: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """The rows of the top, on the host."""
        n, p = self.count, self.places
        corners, variance = prior.reshape(2, p, 4)
        size = corners[:, 2:] - corners[:, :2]
        if self.code_type != "CORNER" and not (size > 0).all():
            bad = int(np.argmin((size > 0).all(axis=1)))
            raise DataError(f"prior box {bad} has no area: {corners[bad].tolist()}")
        given = loc.reshape(n, p, self.kinds, 4).transpose(0, 2, 1, 3)
        scale = None if self.variance_encoded_in_target else variance
        boxes = ops.decode(self.code_type, given, corners, scale)
        boxes = np.clip(boxes, 0, 1, out=boxes) if self.clip else boxes
        scores = scores.reshape(n, p, self.num_classes).transpose(0, 2, 1)
        return ops.detections([self.of_image(i, boxes[i], scores[i]) for i in range(n)])

    def of_image(self, image: int, boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The detections of one image: rows (kept, 7) from boxes (kinds, p, 4) and scores (classes, p)."""
        nms, parts = self.nms_param, [np.empty((0, 7), self.sum_dtype)]
        least = LEAST if self.confidence_threshold is None else self.confidence_threshold
        for c in self.classes:
            own, around = scores[c], boxes[0 if self.share_location else c]
            order = np.flatnonzero(own > least)
            order = order[np.argsort(-own[order], kind="stable")]
            order = order[: nms.top_k] if nms.top_k >= 0 else order
            order = order[ops.suppress(around[order], nms.nms_threshold, nms.eta)]
            parts.append(ops.detected(image, c, own[order], around[order]))
        rows = np.concatenate(parts)
        if 0 <= self.keep_top_k < len(rows):
            best = np.argsort(-rows[:, 2], kind="stable")[: self.keep_top_k]
            rows = rows[np.sort(best)]
        return rows


Version = Literal["Integral", "11point", "MaxIntegral"]


@register
class DetectionEvaluate(Whole):
    """Which detections are right; a test returns the mean over classes of the average precision (mAP).

    Bottoms: detections (1, 1, k, 7) of DetectionOutput; true boxes (1, 1, m, 8) of AnnotatedData. Top:
    (1, 1, num_classes - 1 + k, 5): of each class a row -1, class, number of true boxes, -1, -1; then of each
    detection a row picture, class, score, right, wrong. A detection, by falling score, is right if the true
    box of its class that it overlaps most is overlapped by overlap_threshold, and had no detection before;
    without evaluate_difficult_gt it is neither right nor wrong if that box is difficult.

    A test joins these rows over all its batches. Of a class, precision is the share of the n best detections
    that are right, recall the share of true boxes found by them. Its average precision is the sum of precision
    times each step of recall (Integral); with MaxIntegral of the highest precision at that recall or more, as
    PASCAL VOC 2012 has it; 11point is the mean of that at recalls 0, 0.1, ..., 1, as VOC 2007. It runs on the
    host, and has no gradient. Raises DataError for a true box of a class that is not among num_classes, or of
    the background. Source: DetectionEvaluate and Solver::TestDetection of SSD, whose solver has
    ap_version and show_per_class_result; W. Liu et al., SSD, 2016.

    Example: (1, 1, 4, 7), (1, 1, 3, 8) -> {type: DetectionEvaluate, num_classes: 3} -> (1, 1, 6, 5)
    """

    num_classes: Annotated[int, "classes, the background among them", AtLeast(1), Below(1_000_001)]
    background_label_id: Annotated[int, "the background's class; -1: none"] = 0
    overlap_threshold: Annotated[float, "the least overlap of a right detection"] = 0.5
    evaluate_difficult_gt: Annotated[bool, "true boxes that are difficult count, too"] = True
    ap_version: Annotated[Version, "the average precision of a test"] = "Integral"
    show_per_class_result: Annotated[bool, "a test returns that of each class, too"] = False
    name_size_file: Annotated[
        str, "SSD's, without effect: overlaps are of fractions of the picture"
    ] = ""
    resize_param: Annotated[Resize | None, "SSD's, of name_size_file: without effect"] = None

    traits = Traits(
        sizes_vary=True,
        gathered=True,
        label_bottoms=(0, 1),
        float32_bottoms=(0, 1),
        float32_tops=(0,),
        inferred_as="nothing",
    )

    def setup(self, found: Shape, truth: Shape) -> Shape:
        for what, shape, size in (("detections", found, 7), ("true boxes", truth, 8)):
            if len(shape) != 4 or shape[-1] != size:
                raise ShapeError(f"needs {what} (1, 1, k, {size}), got {shape}")
        if self.overlap_threshold <= 0:
            raise ShapeError(f"overlap_threshold: expected above 0, got {self.overlap_threshold}")
        self.classes = [c for c in range(self.num_classes) if c != self.background_label_id]
        if not self.classes:
            raise ShapeError("num_classes: expected a class beside the background")
        return (1, 1, len(self.classes) + found[2], 5)

    def forward(self, found: Any, truth: Any) -> Any:
        device = self.context.device
        rows = self.judged(*(device.to_host(x).reshape(-1, x.shape[-1]) for x in (found, truth)))
        return self.put_rows(rows, axis=2)

    def judged(self, found: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """The rows of the top."""
        found, truth = found.astype(np.float64), truth.astype(np.float64)
        found, truth = found[found[:, 1] >= 0], truth[truth[:, 0] >= 0]
        ops.check_classes(truth, self.num_classes, self.background_label_id)
        counted = truth if self.evaluate_difficult_gt else truth[truth[:, 7] == 0]
        rows: list[list[float]] = [
            [-1, c, int((counted[:, 1] == c).sum()), -1, -1] for c in self.classes
        ]
        for image in np.unique(found[:, 0]):
            of_image = found[found[:, 0] == image]
            for label in np.unique(of_image[:, 1]):
                own = of_image[of_image[:, 1] == label]
                true = truth[(truth[:, 0] == image) & (truth[:, 1] == label)]
                rows += self.of_class(own[np.argsort(-own[:, 2], kind="stable")], true)
        return np.array(rows, np.float64)

    def of_class(self, found: np.ndarray, truth: np.ndarray) -> list[list[float]]:
        """The rows of a picture's detections of one class, the best first."""
        rows, taken = [], np.zeros(len(truth), bool)
        for one in found:
            right, wrong = 0, 1
            if len(truth):
                overlaps = ops.overlap(one[3:7], truth[:, 3:7])
                best = int(overlaps.argmax())
                if overlaps[best] >= self.overlap_threshold:
                    counts = self.evaluate_difficult_gt or not truth[best, 7]
                    right, wrong = int(counts and not taken[best]), int(counts and taken[best])
                    taken[best] |= counts
            rows.append([one[0], one[1], one[2], right, wrong])
        return rows

    def score(self, rows: np.ndarray) -> dict[str, Any]:
        """The mAP of the rows of all batches of a test, and with show_per_class_result that of each class."""
        rows = rows.reshape(-1, 5).astype(np.float64)
        counts = rows[rows[:, 0] < 0]
        judged = rows[(rows[:, 0] >= 0) & (rows[:, 3:].sum(axis=1) > 0)]
        found = []
        for c in self.classes:
            own = judged[judged[:, 1] == c]
            count = counts[counts[:, 1] == c, 2].sum()
            found.append(average_precision(own[:, 2], own[:, 3], int(count), self.ap_version))
        more = {" of each class": np.array(found)} if self.show_per_class_result else {}
        return {"": float(np.mean(found)), **more}


def average_precision(scores: Any, right: Any, count: int, version: Version) -> float:
    """The average precision of detections by their scores; `right` are 1 or 0, of `count` true boxes.

    >>> average_precision(np.array([0.9, 0.8, 0.7]), np.array([1, 0, 1]), 2, "Integral")
    0.8333333333333333
    """
    if not len(scores) or not count:
        return 0.0
    hits = right[np.argsort(-scores, kind="stable")].cumsum()
    precision, recall = hits / np.arange(1, len(hits) + 1), hits / count
    if version == "Integral":
        return float((precision * np.diff(recall, prepend=0.0)).sum())
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    if version == "MaxIntegral":
        return float((highest * np.diff(recall, prepend=0.0)).sum())
    at = [highest[recall >= level / 10] for level in range(11)]
    return float(sum(rest[0] if len(rest) else 0 for rest in at) / 11)
