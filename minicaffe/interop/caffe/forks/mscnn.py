"""The layers of MS-CNN and Cascade R-CNN: BoxOutput, DecodeBBox, ROIAlign."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops.roi_pool import check
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks import boxes
from minicaffe.interop.caffe.forks.mnc import hat, used
from minicaffe.interop.caffe.forks.regions import check_regions
from minicaffe.interop.caffe.forks.whole import Whole

OVERLAPS = {  # of one box and others: what they share over their union, the smaller one, the first
    "IOU": boxes.overlap,
    "IOMU": lambda box, others: _share(box, others, np.minimum(boxes.areas(box), boxes.areas(others))),
    "IOFU": lambda box, others: _share(box, others, boxes.areas(box)),
}  # fmt: skip


def _share(box: Any, others: Any, whole: Any) -> Any:
    """The area that boxes share over another, 0 where one is empty.

    >>> _share(np.array([0.0, 0, 2, 1]), np.array([[1.0, 0, 3, 1], [2, 0, 3, 1]]), 2.0)
    array([0.5, 0. ])
    """
    side = np.minimum(box[..., 2:], others[..., 2:]) - np.maximum(box[..., :2], others[..., :2])
    inside = np.where((side > 0).all(axis=-1), side[..., 0] * side[..., 1], 0)
    return np.divide(inside, whole, out=np.zeros_like(inside), where=inside != 0)


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
class BoxOutput(Whole):
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

    traits = Traits(capturable=False, sizes_vary=True, float32_tops=(0, 1))

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
        found, score = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        rows = np.concatenate([self.of_image(i, found[i], score[i]) for i in range(self.n)])
        given = rows[:, :5], rows
        if not len(rows):
            given = np.array([[0, 1, 1, 10, 10]], rows.dtype), np.zeros((1, 6), rows.dtype)
        tops = [out[: len(given[0])] for out in self.out]
        for top, array in zip(tops, given, strict=False):
            self.context.device.copy_from_host(top, np.ascontiguousarray(array).reshape(top.shape))
        return tops

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

    def of_image(self, image: int, found: np.ndarray, score: np.ndarray) -> np.ndarray:
        """The regions of one image that are kept: rows (kept, 6)."""
        there = (score >= self.fg_thr) & (found[:, 2:] >= self.min_size).all(axis=1)
        found, score = found[there][::-1], score[there][::-1]  # of equal ones the last comes first
        best = np.argsort(-score, kind="stable")[: self.max_nms_num or None]
        rows = np.empty((len(best), 6), found.dtype)
        rows[:, 0], rows[:, 5] = image, score[best]
        rows[:, 1:3] = found[best, :2]
        rows[:, 3:5] = found[best, :2] + found[best, 2:]
        kept = boxes.suppress(rows[:, 1:5], self.iou_thr, measure=OVERLAPS[self.nms_type])
        return rows[kept[: self.max_post_nms_num or None]]

    def backward(self, *dys: Any) -> Any:
        return [None] * len(self.bottom)


@register
class DecodeBBox(Whole):
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

    traits = Traits(
        capturable=False,
        sizes_vary=True,
        label_bottoms=(0, 1, 2),
        float32_bottoms=(1, 2),
        float32_tops=(0,),
    )

    def setup(self, given: Shape, rois: Shape, matched: Shape | None = None) -> Shape:
        for what, shape, wide in (("predictions", given, 8), ("regions", rois, 5)):
            if shape[:1] != rois[:1] or math.prod(shape[1:]) != wide or not shape:
                raise ShapeError(f"needs {what} (r, {wide}), r as many as regions, got {shape}")
        if matched is not None and (matched[:1] != rois[:1] or math.prod(matched[1:]) < 1):
            raise ShapeError(f"needs a box for each of {rois[0]} regions, got {matched}")
        if matched is not None and self.phase != "TRAIN":
            raise ShapeError("a third bottom, the boxes of regions, is there in TRAIN alone")
        self.mean, self.std = normalizers(self.bbox_mean, self.bbox_std)
        return rois

    def forward(self, given: Any, rois: Any, matched: Any = None) -> Any:
        rows = self.on_host(rois).reshape(-1, 5)
        kind = rows.dtype
        moved = self.on_host(given).reshape(-1, 8)[:, 4:] * self.std.astype(kind)
        moved = moved + self.mean.astype(kind)
        start, end = rows[:, 1:3], rows[:, 3:]
        size = end - start + 1
        with np.errstate(over="ignore", invalid="ignore"):
            wide = size * np.exp(moved[:, 2:])
            start = moved[:, :2] * size + (start + end) / 2 - (wide - 1) / 2
            found = np.concatenate([rows[:, :1], start, start + wide - 1], axis=1)
        if self.phase == "TRAIN":
            kept = ~(found[:, 1:3] > found[:, 3:]).any(axis=1)
            if matched is not None:
                kept &= ~(self.on_host(matched).reshape(len(rows), -1)[:, -1] >= self.gt_iou_thr)
            found = found[kept]
            if not len(found):
                raise DataError("no region is left: each is inside out or its box's")
        top = self.out[0][: len(found)]
        self.context.device.copy_from_host(top, found.reshape(top.shape))
        return top

    def backward(self, dy: Any) -> Any:
        return [None] * len(self.bottom)


@register
class ROIAlign(Whole):
    """The maps at the corners of a grid over each region, read between pixels. Bottoms: maps, regions.

    (n, c, h, w), (r, 5) -> (r, c, pooled_h + 1, pooled_w + 1). A region is (image, x0, y0, x1, y1) in pixels
    of the picture, widened on each side by pad_ratio of its size, x1 - x0 + 1, times spatial_scale, less 1/2.
    Corners over half a pixel outside the maps are 0, and so is a region without an area. The maps have a
    gradient. It reads the regions on the host. Raises DataError for an image outside the batch. Its mean over
    2 x 2 corners, a Pooling, is what others call so. Source: ROIAlign of Cascade R-CNN's Caffe; K. He et al.,
    Mask R-CNN, 2017.

    Example: (2, 8, 6, 6), (3, 5) -> {type: ROIAlign, pooled_h: 2, pooled_w: 3} -> (3, 8, 3, 4)
    """

    pooled_h: Annotated[int, "rows of bins", AtLeast(1)]
    pooled_w: Annotated[int, "columns of bins", AtLeast(1)]
    spatial_scale: Annotated[float, "size of the maps divided by that of the picture"] = 1.0
    pad_ratio: Annotated[float, "share of its size by which a region is widened", AtLeast(0)] = 0.0

    traits = Traits(capturable=False, label_bottoms=(1,), float32_bottoms=(1,))

    def setup(self, x: Shape, rois: Shape) -> Shape:
        check_regions(x, rois)
        self.x_shape = x
        return (rois[0], x[1], self.pooled_h + 1, self.pooled_w + 1)

    def forward(self, x: Any, rois: Any) -> Any:
        rois = self.on_host(rois).reshape(-1, 5)
        check(rois, self.x_shape[0])
        x, kept = self.wide(x), list[Any]()
        pad = (rois[:, 3:] - rois[:, 1:3] + 1) * rois.dtype.type(self.pad_ratio)
        scale = rois.dtype.type(self.spatial_scale)
        starts, ends = (rois[:, 1:3] - pad) * scale - 0.5, (rois[:, 3:] + pad) * scale - 0.5
        bins = np.array([self.pooled_w, self.pooled_h])
        for roi, start, size, top in zip(rois, starts, ends - starts, self.out[0], strict=True):
            if not (size > 0).all():
                top[...] = 0
                kept.append(None)
                continue
            columns, rows = (
                hat(first + np.arange(count + 1) * (length / count), pixels)[0]
                for first, length, count, pixels in zip(
                    start, size, bins, self.x_shape[:1:-1], strict=True
                )
            )
            place = int(roi[0]), slice(None), used(rows), used(columns)
            rows, columns = self.from_host(rows[:, place[2]]), self.from_host(columns[:, place[3]])
            top[...] = self.xp.matmul(self.xp.matmul(rows, x[place]), columns.T)
            kept.append((place, rows, columns))
        self.kept = kept
        return self.out

    def backward(self, dy: Any) -> Any:
        xp, dx = self.xp, self.xp.zeros(self.x_shape, self.sum_dtype)
        for kept, part in zip(self.kept, dy, strict=True):
            if kept is not None:
                place, rows, columns = kept
                dx[place] += xp.matmul(xp.matmul(rows.T, self.wide(part)), columns)
        return dx, None
