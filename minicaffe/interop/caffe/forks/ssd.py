"""The layers of the SSD detector: priors, the loss, detections, the files of these, and their mAP."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np

from minicaffe.core.config.tree import load
from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Layer, Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import Loss
from minicaffe.core.layers.registry import register
from minicaffe.core.ops import arrays
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks import boxes as ops
from minicaffe.interop.caffe.forks.whole import Whole, labels
from minicaffe.interop.caffe.label_map import names_in
from minicaffe.storage import checkpoint, lists
from minicaffe.tools.data.box_recipe import Resize

LEAST = float(np.finfo(np.float32).min)
Code = Literal["CORNER", "CENTER_SIZE", "CORNER_SIZE"]  # of what is predicted of a box


@dataclass
class DetectionFiles:
    """Detections of the pictures of a test, in the order of `names`, written when the last one is there."""

    output: SaveOutput
    classes: dict[int, str]
    names: list[str]
    sizes: list[tuple[int, int]]  # height, width
    background: int
    passes: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)  # of a test, so far
    rows: list[tuple[str, int, float, np.ndarray]] = field(default_factory=list)

    @classmethod
    def opened(cls, output: SaveOutput, background: int) -> DetectionFiles:
        """The files of a SaveOutput. Raises MinicaffeError for a list that is missing or none."""
        sizes, count = output.name_size_file, output.num_test_image
        file, text = load(output.label_map_file, "prototxt", own=True)
        classes = names_in(text, file, shown=False)
        names, areas = [], []
        for i, line in enumerate(lists.text(Path(sizes)).splitlines(), 1):
            words = line.split()
            if not words:
                continue
            if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
                raise DataError(f"{sizes}:{i}: expected a name, a height and a width, got {line!r}")
            names.append(words[0])
            areas.append((int(words[1]), int(words[2])))
        if not 0 < (count or len(names)) <= len(names):
            problem = f"num_test_image {count}: {sizes} names {len(names)} pictures"
            raise DataError(f"save_output_param: {problem}")
        count = count or len(names)
        return cls(output, classes, names[:count], areas[:count], background)

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
        for count, detections in (self.passes[n] for n in sorted(self.passes)):
            self._take(detections, first)
            first += count
        folder = Path(self.output.output_directory)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            problem = f"output_directory {folder}: {error.strerror}"
            raise DataError(f"save_output_param: {problem}") from None
        for name, text in self._texts().items():
            checkpoint.replace(folder / name, text.encode())
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

    def _texts(self) -> dict[str, str]:
        prefix, kind = self.output.output_name_prefix, self.output.output_format
        if kind == "COCO":
            entries = []
            for name, label, score, (x0, y0, x1, y1) in self.rows:
                names = name, self.classes[label]  # of which COCO's are numbers
                image, category = (int(one) if one.isdigit() else one for one in names)
                bbox = [round(float(v), 2) for v in (x0, y0, x1 - x0, y1 - y0)]
                keys = {"image_id": image, "category_id": category, "bbox": bbox}
                entries.append({**keys, "score": round(score, 6)})
            return {f"{prefix}.json": json.dumps(entries, indent=1) + "\n"}
        lines = [
            (name, label, f"{score:.6g} {' '.join(map(str, box.astype(int)))}\n")
            for name, label, score, box in self.rows
        ]
        if kind == "ILSVRC":
            whole = "".join(f"{name} {label} {rest}" for name, label, rest in lines)
            return {f"{prefix}.txt": whole}
        return {
            f"{prefix}{called}.txt": "".join(
                f"{name} {rest}" for name, label, rest in lines if label == own
            )
            for own, called in self.classes.items()
            if own != self.background
        }


@dataclass(kw_only=True, eq=False, repr=False)
class Priors(Layer):
    """Boxes of set sizes, `boxes`, around each place of a map."""

    clip: Annotated[bool, "cut the boxes to the image"] = False
    variance: Annotated[tuple[float, ...], "one number, or one per side; default: 0.1"] = ()
    img_size: Annotated[int | None, "side of the image; default: the bottom's", AtLeast(1)] = None
    img_h: Annotated[int | None, "height of the image", AtLeast(1)] = None
    img_w: Annotated[int | None, "width of the image", AtLeast(1)] = None
    step: Annotated[float | None, "pixels between places; default: image over map"] = None
    step_h: Annotated[float | None, "pixels between rows"] = None
    step_w: Annotated[float | None, "pixels between columns"] = None
    offset: Annotated[float, "of the boxes' centre from a place's corner, in steps"] = 0.5

    traits = Traits(keeps_top=True, recordable=True, label_bottoms=(0, 1), float32_tops=(0,))

    def setup(self, x: Shape, image: Shape) -> Shape:
        if len(x) != 4 or len(image) != 4:
            raise ShapeError(f"needs bottoms of 4 axes (n, c, h, w), got {x} and {image}")
        for key in ("aspect_ratio", "variance", "step", "step_h", "step_w"):
            numbers = getattr(self, key, None)
            if numbers is not None and np.min(numbers, initial=1) <= 0:
                raise ShapeError(f"{key}: expected numbers above 0, got {numbers}")
        if len(self.variance) not in (0, 1, 4):
            raise ShapeError(f"variance: expected 1 or 4 numbers, got {len(self.variance)}")
        self.area, pixels = x[2:], self.pair("img", "img_size")
        self.image = image[2:] if pixels is None else (int(pixels[0]), int(pixels[1]))
        self.boxes = self.sides()
        return (1, 2, math.prod(self.area) * len(self.boxes) * 4)

    def sides(self) -> np.ndarray:
        """Width and height (k, 2) of the boxes, in pixels. Raises ShapeError for a subclass's keys."""
        raise NotImplementedError

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
        own = self.pair("step", "step")
        step = own or tuple(i / a for i, a in zip(self.image, self.area, strict=True))
        corners = ops.priors(self.area, self.image, (step[0], step[1]), self.offset, self.boxes)
        return np.clip(corners, 0, 1, out=corners) if self.clip else corners

    def allocate(self) -> None:
        corners = self.corners()
        both = np.empty((1, 2, corners.size), self.sum_dtype)
        both[0, 0] = corners.ravel()
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

    def sides(self) -> np.ndarray:
        if not self.min_size:
            raise ShapeError("min_size: expected a number at least")
        if self.max_size and (
            len(self.max_size) != len(self.min_size)
            or any(b <= a for a, b in zip(self.min_size, self.max_size, strict=True))
        ):
            raise ShapeError("max_size: expected one for each min_size, larger than that")
        ratios = ops.aspect_ratios(self.aspect_ratio, self.flip)
        return ops.sizes(self.min_size, self.max_size, ratios)


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

    def sides(self) -> np.ndarray:
        for key in ("width", "height"):
            sides = getattr(self, key)
            if len(sides) != len(self.width) or not sides or min(sides) <= 0:
                problem = f"expected {len(self.width) or 1} numbers above 0, got {sides}"
                raise ShapeError(f"{key}: {problem}")
        return np.stack([self.width, self.height], axis=1)


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
    """How many pictures, prior boxes and predictions a box (1, or one a class). Raises ShapeError."""
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


Boxes = list[np.ndarray]  # the true boxes (k, 5) of each picture
NONE = Suppression(nms_threshold=0)  # no box is suppressed
TINY = float(np.finfo(np.float32).tiny)  # of a share whose logarithm is taken, as in Caffe


@register
class MultiBoxLoss(Loss):
    """SSD's loss: loc_weight L_loc + L_conf over the boxes that are matched, divided as `normalization` says.

    Bottoms, for n pictures and p prior boxes: predictions (n, 4 p), or (n, 4 p num_classes) without
    share_location; scores (n, p num_classes); priors (1, 2, 4 p) of PriorBox; true boxes (1, 1, k, 8) as
    AnnotatedData has them: picture, class, instance, x0, y0, x1, y1, difficult; a row of picture -1 is none.
    Top: the loss, of shape (). Predictions and scores have a gradient.

    Each true box is matched with the prior box that it overlaps most, and with PER_PREDICTION each prior box
    with the true box that it overlaps by overlap_threshold. L_loc is the smooth L1 loss, or half the square,
    between what is predicted of a matched box and what its true box is encoded as (code_type, variances).
    L_conf is the cross-entropy of softmax, or of sigmoids, of the matched and of the hardest of the other
    boxes: with MAX_NEGATIVE neg_pos_ratio times as many, of those that overlap nothing by neg_overlap, by the
    size of their loss; with HARD_EXAMPLE the sample_size boxes of largest loss, matched or not; with NONE all.
    A picture without true boxes counts with NONE only. VALID divides by the number of matched boxes.

    Matching and the choice of boxes run on the host, and wait for the device. Raises DataError for a class
    that is not among num_classes, or is the background. Source: MultiBoxLoss of SSD; W. Liu et al., SSD, 2016.

    Example: (2, 8), (2, 6), (1, 2, 8), (1, 1, 3, 8) -> {type: MultiBoxLoss, num_classes: 3} -> ()
    """

    num_classes: Annotated[int, "classes, the background among them", AtLeast(1)]
    loc_loss_type: Annotated[Literal["L2", "SMOOTH_L1"], "the loss of predicted boxes"] = (
        "SMOOTH_L1"
    )
    conf_loss_type: Annotated[Literal["SOFTMAX", "LOGISTIC"], "the loss of scores"] = "SOFTMAX"
    loc_weight: Annotated[float, "factor of the loss of boxes"] = 1.0
    share_location: Annotated[bool, "one predicted box for all classes"] = True
    match_type: Annotated[
        Literal["BIPARTITE", "PER_PREDICTION"], "one prior box for each true box, or more"
    ] = "PER_PREDICTION"
    overlap_threshold: Annotated[float, "the least overlap of PER_PREDICTION"] = 0.5
    use_prior_for_matching: Annotated[bool, "match prior boxes, not predicted ones"] = True
    background_label_id: Annotated[int, "the background's class", AtLeast(0)] = 0
    use_difficult_gt: Annotated[bool, "true boxes that are difficult count, too"] = True
    do_neg_mining: Annotated[bool | None, "SSD's older key: whether mining_type is not NONE"] = None
    neg_pos_ratio: Annotated[float, "boxes of the background for each that is matched"] = 3.0
    neg_overlap: Annotated[float, "the background's boxes overlap true ones by less"] = 0.5
    code_type: Annotated[Code, "what is predicted of a box"] = "CORNER"
    encode_variance_in_target: Annotated[
        bool, "predictions are not scaled by variances: both sides of the loss are divided by them"
    ] = False
    map_object_to_agnostic: Annotated[bool, "all classes are the one after the background"] = False
    ignore_cross_boundary_bbox: Annotated[
        bool, "boxes that leave the picture are not matched, nor the background"
    ] = False
    bp_inside: Annotated[bool, "coordinates outside the picture have no loss"] = False
    mining_type: Annotated[
        Literal["NONE", "MAX_NEGATIVE", "HARD_EXAMPLE"], "which boxes the scores' loss is of"
    ] = "MAX_NEGATIVE"
    nms_param: Annotated[
        Suppression, "of boxes that overlap, only that of the largest loss is chosen; without eta"
    ] = NONE
    sample_size: Annotated[int, "boxes of a picture that HARD_EXAMPLE chooses", AtLeast(1)] = 64
    use_prior_for_nms: Annotated[bool, "nms_param is of prior boxes, not predicted ones"] = False
    normalization: Annotated[
        Literal["FULL", "VALID", "BATCH_SIZE", "NONE"] | None,
        "what the sum is divided by: n p, matched boxes (default), pictures, or 1",
    ] = None
    normalize: Annotated[
        bool | None, "Caffe's older key, without normalization: true is VALID, false BATCH_SIZE"
    ] = None

    traits = Traits(is_loss=True, capturable=False, mixes_samples=True, **labels(2, 3))

    def setup(self, loc: Shape, scores: Shape, prior: Shape, truth: Shape) -> Shape:
        classes, mines = self.num_classes, self.mining_type != "NONE"
        if self.do_neg_mining not in (None, mines):
            why = f"{str(self.do_neg_mining).lower()} contradicts mining_type {self.mining_type}"
            raise ShapeError(f"do_neg_mining: {why}")
        if self.mining_type == "MAX_NEGATIVE" and self.neg_pos_ratio <= 0:
            raise ShapeError(f"neg_pos_ratio: expected above 0, got {self.neg_pos_ratio:g}")
        if mines and not self.share_location:
            raise ShapeError(f"mining_type {self.mining_type} needs share_location")
        if self.background_label_id >= classes:
            problem = f"expected below num_classes {classes}, got {self.background_label_id}"
            raise ShapeError(f"background_label_id: {problem}")
        if self.map_object_to_agnostic and classes != 2:
            raise ShapeError(f"map_object_to_agnostic: expected num_classes 2, got {classes}")
        self.count, self.places, self.kinds = prior_counts(self, loc, scores, prior)
        if not truth or truth[-1] != 8:
            raise ShapeError(f"needs true boxes (1, 1, k, 8) as its fourth bottom, got {truth}")
        nms = mines and self.nms_param.nms_threshold > 0 and not self.use_prior_for_nms
        hard = self.mining_type == "HARD_EXAMPLE"
        # Whether predicted boxes decide what is matched or chosen
        self.looks_at_predictions = hard or nms or not self.use_prior_for_matching
        return ()

    def forward(self, loc: Any, scores: Any, prior: Any, truth: Any) -> Any:
        xp, device = self.xp, self.context.device
        n, p = self.count, self.places
        self.prior, self.variance = device.to_host(prior).astype(np.float64).reshape(2, p, 4)
        boxes = self.true_boxes(device.to_host(truth))
        predicted = loc.reshape(n, p, self.kinds, 4).astype(self.sum_dtype, copy=False)
        scores = scores.reshape(n, p, self.num_classes).astype(self.sum_dtype, copy=False)
        if self.looks_at_predictions:
            self.shown = device.to_host(predicted).astype(np.float64)
        matched, most = self.matches(boxes)
        losses, self.change = self.score_losses(scores, self.targets(matched, boxes))
        if self.mining_type == "NONE":
            chosen = np.ones((n, p), bool)
        else:
            chosen = self.mined(matched, most, boxes, device.to_host(losses))
        self.chosen = xp.asarray(chosen)
        self.place = tuple(map(xp.asarray, np.nonzero(matched >= 0)))
        older = "VALID" if self.normalize in (None, True) else "BATCH_SIZE"
        divisors = {"FULL": n * p, "VALID": len(self.place[0]), "BATCH_SIZE": n, "NONE": 1}
        self.divisor = max(1, divisors[self.normalization or older])
        total = (losses * self.chosen).sum(dtype=self.sum_dtype)
        self.differences = None
        if len(self.place[0]):
            goal, scale = self.encoded(matched, boxes)
            image, kind, j = self.place
            self.scales = xp.asarray(scale, self.sum_dtype)
            goal = xp.asarray(goal, self.sum_dtype)
            self.differences = (predicted[image, j, kind] - goal) * self.scales
            lost = self.location_losses(xp, self.differences)
            total = total + self.loc_weight * lost.sum(dtype=self.sum_dtype)
        self.out[0][...] = total / self.divisor
        return self.out

    def backward(self, dloss: Any) -> Any:
        scale, (dloc, dscores, *_) = dloss / self.divisor, self.grad
        if self.needs_gradient[0]:
            dloc[...] = 0
            if self.differences is not None:
                image, kind, j = self.place
                smooth = self.loc_loss_type == "SMOOTH_L1"
                slope = self.differences.clip(-1, 1) if smooth else self.differences
                gradient = slope * self.scales * (self.loc_weight * scale)
                dloc.reshape(self.count, self.places, self.kinds, 4)[image, j, kind] = gradient
        if self.needs_gradient[1]:
            shape = self.count, self.places, self.num_classes
            dscores.reshape(shape)[...] = self.change * self.chosen[:, :, None] * scale
        return [dloc, dscores, None, None]

    def true_boxes(self, rows: np.ndarray) -> Boxes:
        """Of each picture its true boxes (k, 5): class, x0, y0, x1, y1."""
        rows = rows.reshape(-1, 8).astype(np.float64)
        rows = rows[rows[:, 0] >= 0]
        if not self.use_difficult_gt:
            rows = rows[rows[:, 7] == 0]
        classes = self.num_classes, self.background_label_id, self.map_object_to_agnostic
        ops.check_classes(rows, *classes)
        if (rows[:, 0] >= self.count).any():
            raise DataError(f"a box is of picture {rows[:, 0].max():g} of a batch of {self.count}")
        return [rows[rows[:, 0] == i][:, [1, 3, 4, 5, 6]] for i in range(self.count)]

    def decoded(self, image: int, kind: int) -> np.ndarray:
        """The predicted boxes (p, 4) of a picture."""
        scale = None if self.encode_variance_in_target else self.variance
        return np.asarray(ops.decode(self.code_type, self.shown[image, :, kind], self.prior, scale))

    def matches(self, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """The true box (n, kinds, p) of each prior box, -1: none, -2: never; their largest overlaps (n, p)."""
        n, p = self.count, self.places
        matched, most = np.full((n, self.kinds, p), -1), np.zeros((n, p))
        for i, truth in enumerate(boxes):
            if not len(truth):
                continue
            if self.use_prior_for_matching:
                index, most[i] = self.of_boxes(self.prior, truth)
                of_kind = truth[index.clip(0), 0] if not self.share_location else 0
                kinds = np.arange(self.kinds)[:, None]
                matched[i] = np.where((index < 0) | (kinds == of_kind), index, -1)
                continue
            for kind in range(self.kinds):
                own = np.arange(len(truth))
                if not self.share_location:
                    own = np.flatnonzero(truth[:, 0] == kind)
                if len(own):
                    index, most[i] = self.of_boxes(self.decoded(i, kind), truth[own])
                    matched[i, kind] = np.where(index < 0, index, own[index.clip(0)])
        return matched, most

    def of_boxes(self, boxes: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The match of boxes (p, 4) with true boxes, and how much each overlaps one at most."""
        overlaps = ops.overlap(boxes[:, None], truth[None, :, 1:])
        outside = np.zeros(len(boxes), bool)
        if self.ignore_cross_boundary_bbox:
            outside |= ((boxes < 0) | (boxes > 1)).any(axis=1)
            overlaps[outside] = 0
        threshold = self.overlap_threshold if self.match_type == "PER_PREDICTION" else None
        return np.where(outside, -2, ops.match(overlaps, threshold)), overlaps.max(axis=1)

    def targets(self, matched: np.ndarray, boxes: Boxes) -> Any:
        """What the scores (n, p, classes) should be: 1 for a box's class (the last of several), else 0."""
        xp, background = self.xp, self.background_label_id
        none = self.conf_loss_type == "LOGISTIC" and self.mining_type == "NONE"
        label = np.full((self.count, self.places), -1 if none else background)
        image, kind, j = np.nonzero(matched >= 0)
        index = matched[image, kind, j]
        own = np.array([boxes[i][g, 0] for i, g in zip(image, index, strict=True)], np.int64)
        if self.map_object_to_agnostic:
            own[:] = background + 1
        label[image, j] = own
        target = xp.asarray(label)[:, :, None] == xp.arange(self.num_classes)
        if self.conf_loss_type == "LOGISTIC":
            target[tuple(map(xp.asarray, (image, j, own)))] = True
        return target.astype(self.sum_dtype)

    def score_losses(self, scores: Any, target: Any) -> tuple[Any, Any]:
        """The loss (n, p) of the scores of each box, and its gradient (n, p, classes)."""
        xp = self.xp
        if self.conf_loss_type == "SOFTMAX":
            shares = xp.exp(scores - scores.max(axis=2, keepdims=True))
            shares /= shares.sum(axis=2, keepdims=True)
            return -xp.log(xp.maximum((shares * target).sum(axis=2), TINY)), shares - target
        shares = 1 / (1 + xp.exp(-xp.abs(scores)))
        losses = xp.maximum(scores, 0) - scores * target - xp.log(shares)
        return losses.sum(axis=2), xp.where(scores >= 0, shares, 1 - shares) - target

    def mined(
        self, matched: np.ndarray, most: np.ndarray, boxes: Boxes, losses: np.ndarray
    ) -> np.ndarray:
        """Which boxes (n, p) the loss of scores is of; of HARD_EXAMPLE others are not matched any more."""
        losses, hard = losses.astype(np.float64), self.mining_type == "HARD_EXAMPLE"
        if hard:
            of_boxes, (image, kind, j) = np.zeros(losses.shape), np.nonzero(matched >= 0)
            if len(image):
                goal, scale = self.encoded(matched, boxes)
                differences = (self.shown[image, j, kind] - goal) * scale
                of_boxes[image, j] = self.location_losses(np, differences).sum(axis=1)
            losses = losses + of_boxes
        chosen = matched[:, 0] >= 0
        for i, truth in enumerate(boxes):
            if not len(truth):
                continue
            own = matched[i, 0]
            free = (own == -1) & (most[i] < self.neg_overlap)
            fit = np.arange(len(own)) if hard else np.flatnonzero(free)
            count = self.sample_size if hard else int((own >= 0).sum() * self.neg_pos_ratio)
            order = fit[np.argsort(-losses[i, fit], kind="stable")]
            if self.nms_param.nms_threshold > 0:
                around = self.prior if self.use_prior_for_nms else self.decoded(i, 0)
                seen = order if self.nms_param.top_k < 0 else order[: self.nms_param.top_k]
                order = seen[ops.suppress(around[seen], self.nms_param.nms_threshold)]
            picked = np.zeros(len(own), bool)
            picked[order[:count]] = True
            if hard:
                own[(own >= 0) & ~picked] = -1
                chosen[i] = own >= 0
            chosen[i] |= picked & (own == -1)
        return chosen

    def encoded(self, matched: np.ndarray, boxes: Boxes) -> tuple[np.ndarray, np.ndarray]:
        """Of matched boxes (m, 4) what is to be predicted, and what the difference is multiplied by."""
        image, kind, j = np.nonzero(matched >= 0)
        index = matched[image, kind, j]
        truth = np.array([boxes[i][g, 1:] for i, g in zip(image, index, strict=True)])
        prior, variance = self.prior[j], self.variance[j]
        inside = not self.encode_variance_in_target
        goal = ops.encode(self.code_type, truth, prior, variance if inside else None)
        scale = np.ones_like(goal) if inside else 1 / variance
        if self.bp_inside:
            at = prior
            if not self.use_prior_for_matching:
                places = zip(image, kind, j, strict=True)
                at = np.array([self.decoded(int(i), int(k))[p] for i, k, p in places])
            scale[(at < 0) | (at > 1)] = 0
        return goal, scale

    def location_losses(self, xp: Any, differences: Any) -> Any:
        """The losses of differences (m, 4) between predicted boxes and what they should be."""
        size = xp.abs(differences)
        square = differences * differences / 2
        return square if self.loc_loss_type == "L2" else xp.where(size < 1, square, size - 0.5)


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
    code_type: Annotated[Code, "what is predicted of a box"] = "CORNER"
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
        most = (self.places if nms.top_k < 0 else min(nms.top_k, self.places)) * len(self.classes)
        most = most if self.keep_top_k < 0 else min(most, self.keep_top_k)
        return (1, 1, max(most, 1) * self.count, 7)

    def forward(self, loc: Any, scores: Any, prior: Any) -> Any:
        rows = self.found(*map(self.on_host, (loc, scores, prior)))
        self.save(rows)
        return self.put_rows(rows, axis=2)

    def save(self, rows: np.ndarray) -> None:
        """Write the detections of a test, as save_output_param says, when its last picture is there."""
        output = self.save_output_param
        needed = output.output_format, output.label_map_file, output.name_size_file
        if not (output.output_directory and all(needed)):
            return
        if self.files is None:
            self.files = DetectionFiles.opened(output, self.background_label_id)
            self.context.tell(
                f"{self.name}: save_output_param: the detections of each test's first "
                f"{len(self.files.names)} pictures are written to {output.output_directory}"
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
        moves = loc.reshape(n, p, self.kinds, 4).transpose(0, 2, 1, 3)
        scale = None if self.variance_encoded_in_target else variance
        boxes = ops.decode(self.code_type, moves, corners, scale)
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
            rows = rows[np.sort(np.argsort(-rows[:, 2], kind="stable")[: self.keep_top_k])]
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
        sizes_vary=True, gathered=True, **labels(0, 1), float32_tops=(0,), inferred_as="nothing"
    )

    def setup(self, detections: Shape, truth: Shape) -> Shape:
        for what, shape, size in (("detections", detections, 7), ("true boxes", truth, 8)):
            if len(shape) != 4 or shape[-1] != size:
                raise ShapeError(f"needs {what} (1, 1, k, {size}), got {shape}")
        if self.overlap_threshold <= 0:
            raise ShapeError(f"overlap_threshold: expected above 0, got {self.overlap_threshold}")
        self.classes = [c for c in range(self.num_classes) if c != self.background_label_id]
        if not self.classes:
            raise ShapeError("num_classes: expected a class beside the background")
        return (1, 1, len(self.classes) + detections[2], 5)

    def forward(self, detections: Any, truth: Any) -> Any:
        host = self.context.device.to_host
        both = (host(x).reshape(-1, x.shape[-1]) for x in (detections, truth))
        detections, truth = (rows.astype(np.float64) for rows in both)
        detections, truth = detections[detections[:, 1] >= 0], truth[truth[:, 0] >= 0]
        ops.check_classes(truth, self.num_classes, self.background_label_id)
        counted = truth if self.evaluate_difficult_gt else truth[truth[:, 7] == 0]
        rows: list[list[float]] = [
            [-1, c, int((counted[:, 1] == c).sum()), -1, -1] for c in self.classes
        ]
        for image in np.unique(detections[:, 0]):
            of_image = detections[detections[:, 0] == image]
            for label in np.unique(of_image[:, 1]):
                own = of_image[of_image[:, 1] == label]
                true = truth[(truth[:, 0] == image) & (truth[:, 1] == label)]
                rows += self.of_class(own[np.argsort(-own[:, 2], kind="stable")], true)
        return self.put_rows(np.array(rows, np.float64), axis=2)

    def of_class(self, detections: np.ndarray, truth: np.ndarray) -> list[list[float]]:
        """The rows of a picture's detections of one class, the best first."""
        rows, taken = [], np.zeros(len(truth), bool)
        for one in detections:
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
        precisions = []
        for c in self.classes:
            own = judged[judged[:, 1] == c]
            count = counts[counts[:, 1] == c, 2].sum()
            precisions.append(average_precision(own[:, 2], own[:, 3], int(count), self.ap_version))
        more = {" of each class": np.array(precisions)} if self.show_per_class_result else {}
        return {"": float(np.mean(precisions)), **more}


def average_precision(scores: Any, right: Any, count: int, version: Version) -> float:
    """The average precision of detections by their scores; `right` are 1 or 0, of `count` true boxes.

    >>> average_precision(np.array([0.9, 0.8, 0.7]), np.array([1, 0, 1]), 2, "Integral")
    0.8333333333333333
    """
    if not len(scores) or not count:
        return 0.0
    hits = right[np.argsort(-scores, kind="stable")].cumsum()
    precision, recall = hits / np.arange(1, len(hits) + 1), hits / count
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    if version == "11point":
        at = [highest[recall >= level / 10] for level in range(11)]
        return float(sum(rest[0] if len(rest) else 0 for rest in at) / 11)
    height = precision if version == "Integral" else highest
    return float((height * np.diff(recall, prepend=0.0)).sum())
