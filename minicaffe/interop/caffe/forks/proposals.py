"""Boxes decoded from predictions on the host: Proposal, BoxOutput, DecodeBBox, Yolov3DetectionOutput."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Traits
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.registry import register
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks import boxes
from minicaffe.interop.caffe.forks.whole import Whole

OVERLAPS = {  # of one box and others: what they share over their union, the smaller one, the first
    "IOU": boxes.overlap,
    "IOMU": lambda box, others: boxes.share(
        box, others, lambda _: np.minimum(boxes.areas(box), boxes.areas(others))
    ),
    "IOFU": lambda box, others: boxes.share(box, others, lambda _: boxes.areas(box)),
}


class OnHost(Whole):
    """A layer that computes on the host, whose tops may have fewer rows than declared."""

    traits = Traits(capturable=False, sizes_vary=True, float32_tops=(0, 1))


@register
class Proposal(OnHost):
    """Regions where objects may be: anchors moved by what was predicted, the best of those that overlap.

    Bottoms, for k anchors a place: scores (1, 2 k, h, w), of which the last k are the objects'; predictions
    (1, 4 k, h, w), of each anchor dx, dy, dw, dh; im_info (1, 3): rows, columns and scale of the picture; a
    fourth number is the scale of its columns. Tops: regions (count, 5): 0, x0, y0, x1, y1; optionally their
    scores (count,). The best first; count is post_nms_topn at most.

    Anchors are squares of base_size made of each ratio (rows over columns) and scale, feat_stride apart. One
    is moved by (dx, dy) of its size, stretched by exp(dw), exp(dh), and cut to the picture; with a side below
    min_size times the scale its score is 0. Of the pre_nms_topn best those are kept that overlap no better
    one by over nms_thresh. It runs on the host, waits for the device, and has no gradient. Source: Proposal
    of PVANET's and OpenVINO's Caffe; S. Ren et al., Faster R-CNN, 2015.

    Example: (1, 4, 2, 2), (1, 8, 2, 2), (1, 3) ->
    {type: Proposal, ratio: 1, scale: [1, 2], post_nms_topn: 1} -> (1, 5)
    """

    feat_stride: Annotated[int, "pixels between places", AtLeast(1)] = 16
    base_size: Annotated[int, "side of the square that anchors are made of", AtLeast(1)] = 16
    min_size: Annotated[
        int, "the least side of a region, times the picture's scale", AtLeast(0)
    ] = 16
    ratio: Annotated[tuple[float, ...], "rows over columns of the anchors"]
    scale: Annotated[tuple[float, ...], "sizes of the anchors, in squares' sides"]
    pre_nms_topn: Annotated[int, "the best regions that are looked at", AtLeast(1)] = 6000
    post_nms_topn: Annotated[int, "the most regions there are", AtLeast(1)] = 300
    nms_thresh: Annotated[float, "the largest overlap that is kept", AtLeast(0)] = 0.7

    traits = replace(OnHost.traits, label_bottoms=(0, 1, 2), float32_bottoms=(2,))

    def setup(self, scores: Shape, moves: Shape, info: Shape) -> list[Shape]:
        for key in ("ratio", "scale"):
            if not getattr(self, key) or min(getattr(self, key)) <= 0:
                raise ShapeError(f"{key}: expected numbers above 0, got {getattr(self, key)}")
        k = len(self.ratio) * len(self.scale)
        if len(scores) != 4 or scores[:2] != (1, 2 * k):
            raise ShapeError(f"needs scores (1, {2 * k}, h, w) for {k} anchors, got {scores}")
        if moves != (1, 4 * k, *scores[2:]):
            raise ShapeError(f"needs predictions {(1, 4 * k, *scores[2:])}, got {moves}")
        if math.prod(info) < 3:
            raise ShapeError(f"needs im_info (1, 3): rows, columns, scale; got {info}")
        self.area, self.k = scores[2:], k
        most = min(self.post_nms_topn, self.pre_nms_topn, k * math.prod(self.area))
        return [(max(most, 1), 5), (max(most, 1),)][: max(len(self.top), 1)]

    def anchors(self) -> np.ndarray:
        """The anchors (k, 4) of the first place, by ratio, then by scale, in float64."""
        corners, middle = [], 0.5 * (self.base_size - 1)
        for ratio in self.ratio:
            wide = math.floor(math.sqrt(self.base_size**2 / ratio) + 0.5)
            high = math.floor(wide * ratio + 0.5)
            for scale in self.scale:
                x, y = 0.5 * (wide * scale - 1), 0.5 * (high * scale - 1)
                corners.append([middle - x, middle - y, middle + x, middle + y])
        return np.array(corners)

    def forward(self, scores: Any, moves: Any, info: Any) -> Any:
        scores, moves, info = self.on_host(scores), self.on_host(moves), self.on_host(info).ravel()
        (h, w), k = self.area, self.k
        at = np.stack(np.meshgrid(np.arange(w), np.arange(h)), axis=-1) * self.feat_stride
        at = np.concatenate([at, at], axis=-1)[:, :, None]
        anchors = (at + self.anchors()).reshape(-1, 4).astype(scores.dtype)
        moved = moves.reshape(k, 4, h, w).transpose(2, 3, 0, 1).reshape(-1, 4)
        size = anchors[:, 2:] - anchors[:, :2] + 1
        with np.errstate(over="ignore", invalid="ignore"):
            middle = moved[:, :2] * size + (anchors[:, :2] + size / 2)
            half = np.exp(moved[:, 2:]) * size / 2
            regions = np.concatenate([middle - half, middle + half], axis=1)
            regions = np.maximum(np.minimum(regions, info[[1, 0, 1, 0]] - 1), 0)
            least = self.min_size * info[[min(3, len(info) - 1), 2]]
            large = regions[:, 2:] - regions[:, :2] + 1 >= least
        score = scores[0, k:].transpose(1, 2, 0).ravel() * large.all(axis=1)
        best = np.argsort(-score, kind="stable")[: self.pre_nms_topn]
        ends = regions[best] + np.array([0, 0, 1, 1], regions.dtype)  # a pixel is one wide
        best = best[boxes.suppress(ends, self.nms_thresh)][: self.post_nms_topn]
        rows = np.zeros((len(best), 5), regions.dtype)
        rows[:, 1:] = regions[best]
        return self.put_rows(rows, score[best])


def normalizers(mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[Any, Any]:
    """Mean and deviation of what is predicted, 0 and 1 without both. Raises ShapeError.

    >>> normalizers((), (0.1, 0.1, 0.2, 0.2))
    (array([0., 0., 0., 0.]), array([1., 1., 1., 1.]))
    """
    if not mean or not std:
        return np.zeros(4), np.ones(4)
    for key, values in (("bbox_mean", mean), ("bbox_std", std)):
        if len(values) != 4:
            raise ShapeError(f"{key}: expected 4 numbers, got {len(values)}")
    return np.array(mean), np.array(std)


@register
class BoxOutput(OnHost):
    """The regions that maps of several scales propose: decoded, the best of those that overlap.

    Bottoms, one a scale: (n, k + 4, h, w), of each place k scores, the first the background's, and dx, dy, dw,
    dh, times bbox_std plus bbox_mean; dx and dy are held to 1 / field_xyr, dw and dh to log(field_whr). The
    region at (i, j) has its middle at ((j + 1/2) rate + dx field_w, (i + 1/2) rate + dy field_h), and the size
    (exp(dw) field_w, exp(dh) field_h), rate = downsample_rate; if it starts outside the picture, (h rate,
    w rate), it is moved there, and then cut. Its score is the largest but the background's, less that; of at
    least fg_thr. In each picture those of sides of at least min_size are looked at, the max_nms_num best,
    and kept if they overlap no better one by over iou_thr, the max_post_nms_num best; 0: all.

    Tops: (count, 5, 1, 1): image, x0, y0, x1, y1, by image, the best first; optionally (count, 6, 1, 1), with
    the score. Without any a row 0, 1, 1, 10, 10, and one of zeros. It runs on the host, waits for the device,
    and has no gradient. Source: BoxOutput of MS-CNN's Caffe; Z. Cai et al., A Unified Multi-scale Deep
    Convolutional Neural Network for Fast Object Detection, 2016.

    Example: (1, 6, 2, 2) -> {type: BoxOutput, field_w: 8, field_h: 16, downsample_rate: 8, min_size: 4,
    max_post_nms_num: 1} -> (1, 5, 1, 1), (1, 6, 1, 1)
    """

    fg_thr: Annotated[float, "the least score"] = 0.0
    iou_thr: Annotated[float, "the largest overlap that is kept", AtLeast(0)] = 0.5
    nms_type: Annotated[
        Literal["IOU", "IOMU", "IOFU"], "overlap over the union, the smaller, the better one"
    ] = "IOU"
    field_h: Annotated[tuple[int, ...], "rows of a region, of each bottom", AtLeast(1)]
    field_w: Annotated[tuple[int, ...], "columns of a region, of each bottom", AtLeast(1)]
    downsample_rate: Annotated[tuple[int, ...], "pixels between places, of each bottom", AtLeast(1)]
    field_whr: Annotated[float, "how much larger or smaller a region becomes"] = 2.0
    field_xyr: Annotated[float, "regions move by no more than their size over it"] = 2.0
    max_nms_num: Annotated[int, "the best regions that are looked at; 0: all", AtLeast(0)] = 0
    max_post_nms_num: Annotated[int, "the most regions of a picture; 0: all", AtLeast(0)] = 0
    min_size: Annotated[float, "the least side of a region"] = 15.0
    bbox_mean: Annotated[tuple[float, ...], "the mean of dx, dy, dw, dh, with bbox_std"] = ()
    bbox_std: Annotated[tuple[float, ...], "their standard deviation, with bbox_mean"] = ()

    def setup(self, first: Shape, *more: Shape) -> list[Shape]:
        bottoms = (first, *more)
        self.traits = replace(self.traits, label_bottoms=tuple(range(len(bottoms))))
        for key in ("field_h", "field_w", "downsample_rate"):
            if len(getattr(self, key)) != len(bottoms):
                raise ShapeError(
                    f"{key}: expected {len(bottoms)} numbers, one a bottom, got {len(getattr(self, key))}"
                )
        for x in bottoms:
            if len(x) != 4 or x[0] != first[0] or x[1] < 6:
                raise ShapeError(f"needs bottoms (n, k + 4, h, w), k at least 2, got {x}")
        if self.field_whr < 1 or self.field_xyr <= 0:
            raise ShapeError("field_whr is at least 1, and field_xyr above 0")
        if len(self.top) > 2:
            raise ShapeError(f"has 1 or 2 tops (regions, with scores), got {len(self.top)}")
        self.mean, self.std = normalizers(self.bbox_mean, self.bbox_std)
        self.n, most = first[0], sum(math.prod(x[2:]) for x in bottoms)
        for limit in (self.max_nms_num, self.max_post_nms_num):
            most = min(most, limit) if limit else most
        count = max(self.n * most, 1)
        tops: list[Shape] = [(count, 5, 1, 1), (count, 6, 1, 1)]
        return tops[: max(len(self.top), 1)]

    def forward(self, *xs: Any) -> Any:
        parts = [self.decoded(k, self.on_host(x)) for k, x in enumerate(xs)]
        regions, score = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        rows = np.concatenate([self.of_image(i, regions[i], score[i]) for i in range(self.n)])
        tops = rows[:, :5], rows
        if not len(rows):
            tops = np.array([[0, 1, 1, 10, 10]], rows.dtype), np.zeros((1, 6), rows.dtype)
        return self.put_rows(*tops)

    def decoded(self, k: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The regions x0, y0, width, height (n, h w, 4) of a bottom, place by place, and their scores."""
        (n, c, h, w), kind = x.shape, x.dtype.type
        rate, field = self.downsample_rate[k], np.array([self.field_w[k], self.field_h[k]], kind)
        score = x[:, 1 : c - 4].max(axis=1) - x[:, 0]
        moved = x[:, c - 4 :].transpose(0, 2, 3, 1) * self.std.astype(kind) + self.mean.astype(kind)
        far, large = kind(1 / self.field_xyr), kind(math.log(self.field_whr))
        at = (np.stack(np.meshgrid(np.arange(w), np.arange(h)), axis=-1) + kind(0.5)) * kind(rate)
        size = field * np.exp(np.clip(moved[..., 2:], -large, large))
        start = np.clip(moved[..., :2], -far, far) * field + at.astype(kind) - size / 2
        start = np.maximum(start, 0)
        size = np.minimum(size, np.array([w * rate, h * rate], kind) - start)
        return np.concatenate([start, size], axis=-1).reshape(n, h * w, 4), score.reshape(n, h * w)

    def of_image(self, image: int, regions: np.ndarray, score: np.ndarray) -> np.ndarray:
        """The regions of one image that are kept: rows (kept, 6)."""
        counts = (score >= self.fg_thr) & (regions[:, 2:] >= self.min_size).all(axis=1)
        regions, score = regions[counts][::-1], score[counts][::-1]  # of equal ones, the last first
        best = np.argsort(-score, kind="stable")[: self.max_nms_num or None]
        rows = np.empty((len(best), 6), regions.dtype)
        rows[:, 0], rows[:, 5] = image, score[best]
        rows[:, 1:3] = regions[best, :2]
        rows[:, 3:5] = regions[best, :2] + regions[best, 2:]
        order = boxes.suppress(rows[:, 1:5], self.iou_thr, measure=OVERLAPS[self.nms_type])
        return rows[order[: self.max_post_nms_num or None]]


@register
class DecodeBBox(OnHost):
    """Regions moved by what was predicted for them, for the next stage of a cascade.

    Bottoms: predictions (r, 8), dx, dy, dw, dh of the background and then of objects, which alone count, times
    bbox_std plus bbox_mean; regions (r, 5): image, x0, y0, x1, y1; in TRAIN optionally boxes (r, k) that they
    are matched with, whose last number is their overlap. A region is moved by (dx, dy) of its size,
    and stretched by exp(dw), exp(dh); its size is x1 - x0 + 1. Top: the regions, (count, 5) or (count, 5, 1,
    1): all in TEST; in TRAIN those with x0 <= x1 and y0 <= y1, and an overlap below gt_iou_thr. Raises
    DataError if none is left. It runs on the host, waits for the device, and has no gradient.
    Source: DecodeBBox of Cascade R-CNN's Caffe; Z. Cai, N. Vasconcelos, Cascade R-CNN, 2018.

    Example: (3, 8), (3, 5) -> {type: DecodeBBox, bbox_mean: [0, 0, 0, 0], bbox_std: [0.1, 0.1, 0.2, 0.2]} ->
    (3, 5)
    """

    gt_iou_thr: Annotated[float, "regions that overlap their box by as much are left out"] = 0.95
    bbox_mean: Annotated[tuple[float, ...], "the mean of dx, dy, dw, dh, with bbox_std"] = ()
    bbox_std: Annotated[tuple[float, ...], "their standard deviation, with bbox_mean"] = ()

    traits = replace(OnHost.traits, label_bottoms=(0, 1, 2), float32_bottoms=(1, 2))

    def setup(self, moves: Shape, rois: Shape, matched: Shape | None = None) -> Shape:
        for what, shape, wide in (("predictions", moves, 8), ("regions", rois, 5)):
            if shape[:1] != rois[:1] or math.prod(shape[1:]) != wide or not shape:
                raise ShapeError(f"needs {what} (r, {wide}), r as many as regions, got {shape}")
        if matched is not None and (matched[:1] != rois[:1] or math.prod(matched[1:]) < 1):
            raise ShapeError(f"needs a box for each of {rois[0]} regions, got {matched}")
        if matched is not None and self.phase != "TRAIN":
            raise ShapeError("a third bottom, the boxes of regions, is there in TRAIN alone")
        self.mean, self.std = normalizers(self.bbox_mean, self.bbox_std)
        return rois

    def forward(self, moves: Any, rois: Any, matched: Any = None) -> Any:
        rows = self.on_host(rois).reshape(-1, 5)
        kind = rows.dtype
        moved = self.on_host(moves).reshape(-1, 8)[:, 4:] * self.std.astype(kind)
        moved = moved + self.mean.astype(kind)
        start, end = rows[:, 1:3], rows[:, 3:]
        size = end - start + 1
        with np.errstate(over="ignore", invalid="ignore"):
            wide = size * np.exp(moved[:, 2:])
            start = moved[:, :2] * size + (start + end) / 2 - (wide - 1) / 2
            regions = np.concatenate([rows[:, :1], start, start + wide - 1], axis=1)
        if self.phase == "TRAIN":
            valid = ~(regions[:, 1:3] > regions[:, 3:]).any(axis=1)
            if matched is not None:
                valid &= ~(self.on_host(matched).reshape(len(rows), -1)[:, -1] >= self.gt_iou_thr)
            regions = regions[valid]
            if not len(regions):
                raise DataError("no region is left: each is inside out or its box's")
        return self.put_rows(regions)


@register
class Yolov3DetectionOutput(OnHost):
    """YOLO v3's detections: decodes boxes, and drops those that overlap a better one, of any class.

    Bottoms, one a scale: (n, num_box (5 + num_classes), side, side), of each box x, y, w, h, whether there is
    something, and its classes. Of box b at (i, j): the middle is ((j + sigmoid x) / side, (i + sigmoid y) /
    side), the size exp(w), exp(h) times the anchor, biases[2 m], biases[2 m + 1], over side times the bottom's
    anchors_scale; m = mask[g k + b] of scale k, g = len(mask) / mask_group_num. A class's score, sigmoid times
    sigmoid, must be above confidence_threshold; an overlap of nms_threshold or more is too much.

    Top: (1, 1, kept, 7): image, class + 1, score, x0, y0, x1, y1 as shares of the image; by image, the best
    first; a row of -1 an image if nothing is found. It runs on the host, waits for the device, and has no
    gradient. Source: Yolov3DetectionOutput of eric612's MobileNet-YOLO, which takes all images for one.

    Example: (1, 7, 2, 2) -> {type: Yolov3DetectionOutput, num_classes: 2, num_box: 1, biases: [9, 9],
    mask: 0, mask_group_num: 1, anchors_scale: 32} -> (1, 1, 4, 7)
    """

    num_classes: Annotated[int, "classes, without a background", AtLeast(1)]
    num_box: Annotated[int, "boxes a place", AtLeast(1)] = 3
    confidence_threshold: Annotated[float, "a score must be above it"] = 0.01
    nms_threshold: Annotated[float, "an overlap must be below it"] = 0.45
    biases: Annotated[tuple[float, ...], "widths and heights of the anchors, by turns, in pixels"]
    anchors_scale: Annotated[tuple[int, ...], "pixels between places, of each bottom", AtLeast(1)]
    mask_group_num: Annotated[int, "how many bottoms there are", AtLeast(1)] = 2
    mask: Annotated[tuple[int, ...], "the anchors of each bottom, by their number", AtLeast(0)]

    def setup(self, first: Shape, *more: Shape) -> Shape:
        bottoms, wide = (first, *more), 5 + self.num_classes
        self.traits = replace(self.traits, label_bottoms=tuple(range(len(bottoms))))
        if len(bottoms) != self.mask_group_num or len(self.anchors_scale) != len(bottoms):
            raise ShapeError(
                f"needs as many bottoms as mask_group_num {self.mask_group_num}, with an anchors_scale "
                f"each, got {len(bottoms)} and {len(self.anchors_scale)}"
            )
        if self.nms_threshold <= 0:
            raise ShapeError(f"nms_threshold: expected above 0, got {self.nms_threshold}")
        for x in bottoms:
            if len(x) != 4 or x[:2] != (first[0], self.num_box * wide) or x[2] != x[3]:
                raise ShapeError(f"needs bottoms (n, {self.num_box * wide}, side, side), got {x}")
        group, each = len(self.mask) // len(bottoms), self.num_box
        starts = (k * group for k in range(len(bottoms)))
        self.of_bottom = [self.mask[start : start + each] for start in starts]
        if any(len(mask) < each for mask in self.of_bottom):
            raise ShapeError(f"mask: expected num_box {each} a bottom, got {len(self.mask)}")
        if 2 * max(self.mask) + 1 >= len(self.biases):
            raise ShapeError(f"biases: expected two for each of {max(self.mask) + 1} anchors")
        self.count, places = first[0], sum(x[2] ** 2 for x in bottoms)
        return (1, 1, self.count * places * self.num_box * self.num_classes, 7)

    def forward(self, *xs: Any) -> Any:
        parts = [self.decoded(k, self.on_host(x)) for k, x in enumerate(xs)]
        around, scores = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        images = [self.of_image(i, around[i], scores[i]) for i in range(self.count)]
        return self.put_rows(boxes.detections(images), axis=2)

    def decoded(self, k: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The corners (n, p, 4) of a bottom's boxes, place by place, and their scores (n, p, num_classes)."""
        n, side = len(x), x.shape[2]
        x = x.reshape(n, self.num_box, -1, side, side).transpose(0, 3, 4, 1, 2)
        anchors = np.array(self.biases, x.dtype).reshape(-1, 2)[list(self.of_bottom[k])]
        at = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1)[:, :, None]
        with np.errstate(over="ignore"):
            chance = 1 / (1 + np.exp(-np.delete(x, (2, 3), axis=-1)))  # x, y, something, classes
            half = np.exp(x[..., 2:4]) * anchors / (2 * side * self.anchors_scale[k])
        middle = (chance[..., :2] + at) / side
        corners = np.concatenate([middle - half, middle + half], axis=-1)
        scores = chance[..., 3:] * chance[..., 2:3]
        both = corners.reshape(n, -1, 4), scores.reshape(n, -1, self.num_classes)
        return both[0].astype(x.dtype), both[1].astype(x.dtype)

    def of_image(self, image: int, around: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The detections of one image: rows (kept, 7)."""
        pairs = np.argwhere(scores > self.confidence_threshold)  # of a box and its class
        pairs = pairs[np.argsort(-scores[tuple(pairs.T)], kind="stable")]
        below = np.nextafter(scores.dtype.type(self.nms_threshold), scores.dtype.type(-1))
        box, kind = pairs[boxes.suppress(around[pairs[:, 0]], float(below))].T
        return boxes.detected(image, kind + 1, scores[box, kind], around[box])
