"""How good detections are: DetectionEvaluate, and the average precision of a test."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks import boxes as ops
from minicaffe.interop.caffe.forks.annotated import Resize
from minicaffe.interop.caffe.forks.whole import Whole

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
