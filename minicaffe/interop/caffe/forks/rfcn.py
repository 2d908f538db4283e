"""The layers of R-FCN, and the proposals of Faster R-CNN: PSROIPooling, BoxAnnotatorOHEM, Proposal."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops.roi_pool import check
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks import boxes
from minicaffe.interop.caffe.forks.regions import check_regions
from minicaffe.interop.caffe.forks.whole import Whole, rounded


@register
class PSROIPooling(Whole):
    """The mean of each bin of a grid over each region, each bin from maps of its own. Bottoms: maps, regions.

    (n, output_dim g^2, h, w), (r, 5) -> (r, output_dim, g, g), g = group_size: entry (k, i, j) is the mean of
    channel (k g + i) g + j in bin (i, j). A region is (image, x0, y0, x1, y1) in pixels of the picture, which
    it holds to their ends; rounded, then times spatial_scale, at least 0.1 wide and high. Bins are cut to the
    image, an empty one is 0. The maps have a gradient. Raises DataError for an image outside the batch.
    Source: PSROIPooling of R-FCN's Caffe; J. Dai et al., R-FCN, 2016.

    Example: (2, 18, 6, 6), (3, 5) ->
    {type: PSROIPooling, output_dim: 2, group_size: 3, spatial_scale: 0.5} -> (3, 2, 3, 3)
    """

    spatial_scale: Annotated[float, "size of the maps divided by that of the picture"]
    output_dim: Annotated[int, "channels of the top", AtLeast(1)]
    group_size: Annotated[int, "rows of bins, and columns", AtLeast(1)]

    traits = Traits(capturable=False, label_bottoms=(1,), float32_bottoms=(1,))

    def setup(self, x: Shape, rois: Shape) -> Shape:
        g, wanted = self.group_size, self.output_dim * self.group_size**2
        if len(x) != 4 or x[1] != wanted:
            raise ShapeError(
                f"needs a bottom (n, c, h, w) of output_dim group_size^2 = {wanted} channels, got {x}"
            )
        check_regions(x, rois)
        self.x_shape = x
        return (rois[0], self.output_dim, g, g)

    def forward(self, x: Any, rois: Any) -> Any:
        xp, (n, c, h, w) = self.xp, self.x_shape
        rois = self.on_host(rois).reshape(-1, 5)
        check(rois, n)
        self.corners, share = self.bins(rois)
        self.share = self.from_host(share)
        total = xp.zeros(
            (n, c, h + 1, w + 1), np.float64
        )  # of what is left of a place and above it
        total[:, :, 1:, 1:] = xp.cumsum(xp.cumsum(x, axis=3, dtype=np.float64), axis=2)
        total = total.reshape(-1)
        (a, b), (d, e) = (tuple(map(total.take, corners)) for corners in self.corners)
        return (e - d - b + a) * self.share

    def bins(self, rois: np.ndarray) -> tuple[list[list[Any]], np.ndarray]:
        """The places of each bin's corners among sums of areas, and 1 / its pixels, 0 of an empty one."""
        g, (_, c, h, w) = self.group_size, self.x_shape
        kind, image = rois.dtype.type, rois[:, 0].astype(np.int64)
        scale, ends = kind(self.spatial_scale), rounded(rois[:, 1:])
        spans = []
        for axis, size in ((1, h), (0, w)):
            start, stop = ends[:, axis] * scale, (ends[:, axis + 2] + kind(1)) * scale
            length = np.maximum(stop - start, kind(0.1)) / kind(g)
            steps = np.arange(g + 1, dtype=rois.dtype)
            low = np.floor(steps[:-1] * length[:, None] + start[:, None])
            high = np.ceil(steps[1:] * length[:, None] + start[:, None])
            spans.append([np.clip(one, 0, size).astype(np.int64) for one in (low, high)])
        (y0, y1), (x0, x1) = spans
        y1, x1 = np.maximum(y1, y0), np.maximum(x1, x0)
        area = (y1 - y0)[:, :, None] * (x1 - x0)[:, None, :]  # (r, g, g)
        share = np.divide(1, area, out=np.zeros(area.shape), where=area > 0)[:, None]
        channel = np.arange(c).reshape(-1, g, g) + c * image[:, None, None, None]
        base = channel * ((h + 1) * (w + 1))
        corners = [
            [
                self.from_host(
                    base + (y * (w + 1))[:, None, :, None] + x[:, None, None, :], np.int64
                )
                for x in (x0, x1)
            ]
            for y in (y0, y1)
        ]
        return corners, share

    def backward(self, dy: Any) -> Any:
        xp, (n, c, h, w) = self.xp, self.x_shape
        part = dy * self.share
        (a, b), (d, e) = self.corners
        size = n * c * (h + 1) * (w + 1)
        total = self.summed([a, b, d, e], [part, -part, -part, part], size)
        total = total.reshape(n, c, h + 1, w + 1)[:, :, :0:-1, :0:-1]
        return xp.cumsum(xp.cumsum(total, axis=3), axis=2)[:, :, ::-1, ::-1], None


@register
class BoxAnnotatorOHEM(Whole):
    """Of each image's regions the roi_per_img of the largest losses keep their labels and weights.

    Bottoms: regions (r, 5), whose first number is the image; losses (r,); labels (r,); weights (r, k).
    Tops: labels (r, 1, 1, 1), ignore_label for the others; weights (r, k, 1, 1), 0 for the others. Behind
    their first axes all may have h x w places, (r, 5, h, w). Of equal losses the first counts as larger. It
    runs on the host, waits for the device, and has no gradient.
    Source: BoxAnnotatorOHEM of R-FCN's Caffe; A. Shrivastava et al., Training Region-based Object
    Detectors with Online Hard Example Mining, 2016.

    Example: (4, 5), (4,), (4,), (4, 8) ->
    {type: BoxAnnotatorOHEM, roi_per_img: 2} -> (4, 1, 1, 1), (4, 8, 1, 1)
    """

    roi_per_img: Annotated[int, "regions of an image that count", AtLeast(1)]
    ignore_label: Annotated[int, "the label of the others"] = -1

    traits = Traits(
        capturable=False,
        mixes_samples=True,
        label_bottoms=(0, 1, 2, 3),
        float32_bottoms=(0, 1, 2),
        float32_tops=(0,),
    )

    def setup(self, rois: Shape, loss: Shape, labels: Shape, weights: Shape) -> list[Shape]:
        if len(rois) not in (2, 4) or rois[1] != 5:
            raise ShapeError(f"needs regions (r, 5) or (r, 5, h, w), got {rois}")
        self.r, self.area = rois[0], rois[2:] or (1, 1)
        places = math.prod(self.area)
        for what, shape in (("losses", loss), ("labels", labels)):
            if math.prod(shape) != self.r * places or shape[:1] != rois[:1]:
                raise ShapeError(
                    f"needs {what} of {self.r * places} entries, one a region, got {shape}"
                )
        if len(weights) < 2 or weights[0] != self.r or math.prod(weights[2:]) != places:
            raise ShapeError(f"needs weights ({self.r}, k), a row a region, got {weights}")
        self.k = weights[1]
        return [(self.r, 1, *self.area), (self.r, self.k, *self.area)]

    def forward(self, rois: Any, loss: Any, labels: Any, weights: Any) -> Any:
        r, k, s = self.r, self.k, math.prod(self.area)
        image = self.on_host(rois).reshape(r, 5, s)[:, 0].reshape(-1)
        kept = np.zeros(r * s, bool)
        order = np.argsort(-self.on_host(loss).reshape(-1), kind="stable")
        for one in np.unique(image):
            kept[order[image[order] == one][: self.roi_per_img]] = True
        labels = np.where(kept, self.on_host(labels).reshape(-1), self.ignore_label)
        weights = self.on_host(weights).reshape(r, k, s) * kept.reshape(r, 1, s)
        shapes = (r, 1, *self.area), (r, k, *self.area)
        given = zip((labels, weights), shapes, strict=True)
        return [self.from_host(array.reshape(shape)) for array, shape in given]

    def backward(self, *dys: Any) -> Any:
        return None, None, None, None


@register
class Proposal(Whole):
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

    traits = Traits(
        capturable=False,
        sizes_vary=True,
        label_bottoms=(0, 1, 2),
        float32_bottoms=(2,),
        float32_tops=(0, 1),
    )

    def setup(self, scores: Shape, given: Shape, info: Shape) -> list[Shape]:
        for key in ("ratio", "scale"):
            if not getattr(self, key) or min(getattr(self, key)) <= 0:
                raise ShapeError(f"{key}: expected numbers above 0, got {getattr(self, key)}")
        k = len(self.ratio) * len(self.scale)
        if len(scores) != 4 or scores[:2] != (1, 2 * k):
            raise ShapeError(f"needs scores (1, {2 * k}, h, w) for {k} anchors, got {scores}")
        if given != (1, 4 * k, *scores[2:]):
            raise ShapeError(f"needs predictions {(1, 4 * k, *scores[2:])}, got {given}")
        if math.prod(info) < 3:
            raise ShapeError(f"needs im_info (1, 3): rows, columns, scale; got {info}")
        self.area, self.k = scores[2:], k
        most = min(self.post_nms_topn, self.pre_nms_topn, k * math.prod(self.area))
        return [(max(most, 1), 5), (max(most, 1),)][: max(len(self.top), 1)]

    def anchors(self) -> np.ndarray:
        """The anchors (k, 4) of the first place, by ratio, then by scale, in float64."""
        made, middle = [], 0.5 * (self.base_size - 1)
        for ratio in self.ratio:
            wide = math.floor(math.sqrt(self.base_size**2 / ratio) + 0.5)
            high = math.floor(wide * ratio + 0.5)
            for scale in self.scale:
                half = 0.5 * (wide * scale - 1), 0.5 * (high * scale - 1)
                made.append(
                    [middle - half[0], middle - half[1], middle + half[0], middle + half[1]]
                )
        return np.array(made)

    def forward(self, scores: Any, given: Any, info: Any) -> Any:
        scores, given, info = self.on_host(scores), self.on_host(given), self.on_host(info).ravel()
        (h, w), k = self.area, self.k
        at = np.stack(np.meshgrid(np.arange(w), np.arange(h)), axis=-1) * self.feat_stride
        at = np.concatenate([at, at], axis=-1)[:, :, None]
        anchors = (at + self.anchors()).reshape(-1, 4).astype(scores.dtype)
        moved = given.reshape(k, 4, h, w).transpose(2, 3, 0, 1).reshape(-1, 4)
        size = anchors[:, 2:] - anchors[:, :2] + 1
        with np.errstate(over="ignore", invalid="ignore"):
            middle = moved[:, :2] * size + (anchors[:, :2] + size / 2)
            half = np.exp(moved[:, 2:]) * size / 2
            found = np.concatenate([middle - half, middle + half], axis=1)
            edge = info[[1, 0, 1, 0]] - 1
            found = np.maximum(np.minimum(found, edge), 0)
            large = (
                found[:, 2:] - found[:, :2] + 1 >= self.min_size * info[[min(3, len(info) - 1), 2]]
            )
        score = scores[0, k:].transpose(1, 2, 0).ravel() * large.all(axis=1)
        best = np.argsort(-score, kind="stable")[: self.pre_nms_topn]
        ends = found[best] + np.array([0, 0, 1, 1], found.dtype)  # a pixel is one wide
        best = best[boxes.suppress(ends, self.nms_thresh)][: self.post_nms_topn]
        rows = np.zeros((len(best), 5), found.dtype)
        rows[:, 1:] = found[best]
        tops = [out[: len(best)] for out in self.out]
        for top, array in zip(tops, (rows, score[best]), strict=False):
            self.context.device.copy_from_host(top, array)
        return tops
