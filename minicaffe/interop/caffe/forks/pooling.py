"""Poolings of forks: of windows with gaps (DilatedPooling), and of regions (image, x0, y0, x1, y1)."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Traits
from minicaffe.core.layers.blob import Shape, same_type
from minicaffe.core.layers.registry import register
from minicaffe.core.layers.window import Windowed
from minicaffe.core.ops import arrays
from minicaffe.core.ops import pool as ops
from minicaffe.core.ops.geometry import Window, pool_output_size
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks.whole import Whole, hat, labels, rounded, used

FARTHEST = 1e6  # columns and rows from the map's corner, in which each region has points


@register
class DilatedPooling(Windowed, Whole):
    """The maximum (MAX) or the mean (AVE) of pixels that are `dilation` apart: a net's strides taken out.

    (n, c, h, w) -> (n, c, oh, ow), oh = ceil((h + 2 pad - dilation (kernel - 1) - 1) / stride) + 1. As in
    Pooling a last window that starts outside the image is dropped if there is a pad; padding is never the
    maximum, in a mean its zeros count, and a window without a pixel is 0. Prototxt has it as a Pooling with
    `dilation` in pooling_param. Source: F. Tschopp's Caffe; F. Tschopp, Efficient CNNs for Pixelwise
    Classification on Heterogeneous Hardware Systems, 2015.

    Example: (2, 3, 7, 7) -> {type: DilatedPooling, kernel_size: 2, dilation: 2} -> (2, 3, 5, 5)
    """

    pool: Annotated[Literal["MAX", "AVE"], "what to take of a window"] = "MAX"
    dilation: Annotated[
        tuple[int, ...], "step between a window's pixels: d or [h, w]; 1 if not given", AtLeast(1)
    ] = ()
    round_mode: Annotated[Literal["CEIL", "FLOOR"], "how the output size is rounded"] = "CEIL"

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        self.window = window = self.keyed_window(2)
        # A window's size with its gaps
        self.spans = [d * (k - 1) + 1 for k, d in zip(window.kernel, window.dilation, strict=True)]
        ceil, clip = self.round_mode == "CEIL", any(window.pad)
        sizes = zip(x[2:], self.spans, window.stride, window.pad, strict=True)
        oh, ow = (pool_output_size(*of_axis, ceil, clip) for of_axis in sizes)
        self.x_shape = x
        return (*x[:2], oh, ow)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each window (oh, ow) the pixels, padding among them; and whether any is of the image."""
        image, out = self.x_shape[2:], self.out[0].shape[2:]
        padded = Window(self.window.kernel, self.window.stride, (0, 0), self.window.dilation)
        large = tuple(n + 2 * p for n, p in zip(image, self.window.pad, strict=True))
        number, seen = np.zeros(out), np.zeros(out, bool)
        for _, outputs, _ in padded.elements(large, out):
            number[outputs] += 1
        for _, outputs, _ in self.window.elements(image, out):
            seen[outputs] = True
        return number, seen

    def allocate(self) -> None:
        number, seen = self.counts()
        self.shares = self.from_host(1 / np.maximum(number, 1))
        self.empty_windows = None if seen.all() else self.from_host(~seen, bool)

    def views(self, x: Any, y: Any) -> list[tuple[Any, Any]]:
        """For each of a window's places: the pixels of x that are there, and the windows of y they are of."""
        elements = self.window.elements(x.shape[2:], y.shape[2:])
        whole = (slice(None), slice(None))
        return [(x[whole + pixels], y[whole + outputs]) for _, outputs, pixels in elements]

    def forward(self, x: Any) -> Any:
        xp, shape = self.xp, self.out[0].shape
        if self.pool == "AVE":
            y = xp.zeros(shape, self.sum_dtype)
            for pixels, means in self.views(self.wide(x), y):
                means += pixels
            return self.put(y * self.shares, self.out[0])
        y, self.which = xp.full(shape, -np.inf, x.dtype), xp.full(shape, -1, np.int32)
        places = zip(self.views(x, y), self.views(x, self.which), strict=True)
        for i, ((pixels, largest), (_, winner)) in enumerate(places):
            better = (pixels > largest) | (winner < 0)
            xp.copyto(largest, pixels, where=better)
            xp.copyto(winner, i, where=better)
        if self.empty_windows is not None:
            xp.copyto(y, 0, where=self.empty_windows)
        return self.put(y, self.out[0])

    def backward(self, dy: Any) -> Any:
        xp, dx = self.xp, self.xp.zeros(self.x_shape, self.sum_dtype)
        dy = self.wide(dy)
        if self.pool == "AVE":
            for pixels, means in self.views(dx, dy * self.shares):
                pixels += means
            return self.put(dx, self.grad[0])
        places = zip(self.views(dx, dy), self.views(dx, self.which), strict=True)
        for i, ((pixels, gradient), (_, winner)) in enumerate(places):
            pixels += xp.where(winner == i, gradient, 0)
        return self.put(dx, self.grad[0])


class OnHost(Whole):
    """A pooling of regions (image, x0, y0, x1, y1) of maps, which are read on the host."""

    traits = replace(Whole.traits, **labels(1))

    def setup(self, x: Shape, rois: Shape) -> Shape:
        """Returns (r, c). Raises ShapeError if the bottoms are not maps (n, c, h, w) and regions (r, 5)."""
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        if not rois or math.prod(rois[1:]) != 5:
            raise ShapeError(f"needs regions (r, 5) as its second bottom, got {rois}")
        self.x_shape = x
        return rois[0], x[1]

    def regions(self, rois: Any) -> np.ndarray:
        """The regions (r, 5). Raises DataError for an image outside the batch."""
        rois = self.on_host(rois).reshape(-1, 5)
        ops.check_regions(rois, self.x_shape[0])
        return rois


@dataclass(kw_only=True, eq=False, repr=False)
class Binned(OnHost):
    """A pooling of regions in a grid of bins."""

    pooled_h: Annotated[int, "rows of bins", AtLeast(1)]
    pooled_w: Annotated[int, "columns of bins", AtLeast(1)]
    spatial_scale: Annotated[float, "size of the maps divided by that of the picture"] = 1.0

    def setup(self, x: Shape, rois: Shape) -> Shape:
        return (*super().setup(x, rois), self.pooled_h, self.pooled_w)


@register
class ROIPooling(Binned):
    """The largest entry in each bin of a grid over each region. Bottoms: maps, regions.

    (n, c, h, w), (r, 5) -> (r, c, pooled_h, pooled_w). A region is (image, x0, y0, x1, y1), in pixels of the
    picture, widened on each side by pad_ratio of its size, x1 - x0 + 1; spatial_scale converts it to the maps.
    It is rounded to whole places, at least one. Neighbouring bins may share a row or a column; a bin outside
    the image is 0. The maps have a gradient. Raises DataError for an image outside the batch. Source: the
    ROIPooling of Fast R-CNN; R. Girshick, Fast R-CNN, 2015; pad_ratio is MS-CNN's.

    Example: (2, 8, 6, 6), (3, 5) -> {type: ROIPooling, pooled_h: 2, pooled_w: 3} -> (3, 8, 2, 3)
    """

    pad_ratio: Annotated[float, "share of its size by which a region is widened", AtLeast(0)] = 0.0

    traits = Traits(recordable=True, **labels(1))

    def setup(self, x: Shape, rois: Shape) -> Shape:
        self.images, self.count = x[0], rois[0]
        self.y_shape = super().setup(x, rois)
        return self.y_shape

    def allocate(self) -> None:
        kinds = (np.int64, np.bool_, self.dtype) if self.runs_backward else ()
        self.scratch = [self.empty(self.y_shape, kind) for kind in kinds]
        self.which = self.empty(self.y_shape, np.int32)
        self.which.fill(-1)  # no winner before the first forward pass
        self.better = self.empty(self.y_shape[1:2], np.bool_)
        self.copy = None  # the regions in float32, if they are 16 bits
        if self.dtype != self.sum_dtype:
            self.copy = self.empty((self.count, 5), self.sum_dtype)
        if self.pad_ratio:
            self.pad, self.one = (self.empty((self.count, 2), self.sum_dtype) for _ in range(2))
            self.one.fill(1)
            self.padded = self.empty((self.count, 5), self.sum_dtype)

    def widened(self, rois: Any) -> Any:
        """`padded`: the regions with pad_ratio of their size on each side."""
        start, end = rois[:, 1:3], rois[:, 3:]
        arrays.minus(end, start, self.pad)
        arrays.add(self.one, self.pad)
        arrays.scale(self.pad, self.pad_ratio, self.pad)
        arrays.copy(rois[:, :1], self.padded[:, :1])
        arrays.minus(start, self.pad, self.padded[:, 1:3])
        arrays.plus(end, self.pad, self.padded[:, 3:])
        return self.padded

    def forward(self, x: Any, rois: Any) -> Any:
        rois = same_type(rois.reshape(-1, 5), self.copy)
        self.rois = self.widened(rois) if self.pad_ratio else rois
        operands = x, self.rois, self.spatial_scale
        return ops.roi_pool(*operands, self.out[0], self.which, self.better, self.refused)

    def backward(self, dy: Any) -> Any:
        operands = dy, self.which, self.rois, self.spatial_scale
        return ops.roi_pool_gradient(*operands, self.grad[0], self.scratch), None

    def check(self) -> None:
        ops.check_regions(self.context.device.to_host(self.rois), self.images)


@register
class PSROIPooling(OnHost):
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

    def setup(self, x: Shape, rois: Shape) -> Shape:
        g, wanted = self.group_size, self.output_dim * self.group_size**2
        if len(x) != 4 or x[1] != wanted:
            raise ShapeError(
                f"needs a bottom (n, c, h, w) of output_dim group_size^2 = {wanted} channels, got {x}"
            )
        return (super().setup(x, rois)[0], self.output_dim, g, g)

    def forward(self, x: Any, rois: Any) -> Any:
        xp, (n, c, h, w) = self.xp, self.x_shape
        rois = self.regions(rois)
        self.corners, share = self.bins(rois)
        self.share = self.from_host(share)
        # Of what is left of a place and above it
        total = xp.zeros((n, c, h + 1, w + 1), np.float64)
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
        rows = [base + (y * (w + 1))[:, None, :, None] for y in (y0, y1)]
        columns = [x[:, None, None, :] for x in (x0, x1)]
        return [[self.from_host(y + x, np.int64) for x in columns] for y in rows], share

    def backward(self, dy: Any) -> Any:
        xp, (n, c, h, w) = self.xp, self.x_shape
        part = dy * self.share
        (a, b), (d, e) = self.corners
        total = self.summed([a, b, d, e], [part, -part, -part, part], n * c * (h + 1) * (w + 1))
        total = total.reshape(n, c, h + 1, w + 1)[:, :, :0:-1, :0:-1]
        return xp.cumsum(xp.cumsum(total, axis=3), axis=2)[:, :, ::-1, ::-1], None


@register
class ROIWarping(Binned):
    """The largest of the points in each bin of a grid over each region, read between pixels.

    Bottoms: maps (n, c, h, w), regions (r, 5): image, x0, y0, x1, y1, in pixels of the picture. Top: (r, c,
    pooled_h, pooled_w). A region is scaled by spatial_scale, then rounded. A bin of b rows has ceil(b) + 1
    points a column, from its first edge to its last, evenly; likewise its rows. A point over half a pixel
    outside the image does not count; a bin without others is 0. The maps have a gradient, the regions none
    (MNC has an approximate one). It reads the regions on the host. Raises DataError for an image outside the
    batch. Source: ROIWarping of MNC's Caffe; J. Dai et al., Instance-aware Semantic Segmentation via
    Multi-task Network Cascades, 2016.

    Example: (2, 8, 6, 6), (3, 5) -> {type: ROIWarping, pooled_h: 2, pooled_w: 3} -> (3, 8, 2, 3)
    """

    def forward(self, x: Any, rois: Any) -> Any:
        rois = self.regions(rois)
        x, pairs = self.wide(x), zip(rois, self.out[0], strict=True)
        self.kept = [self.warp(x[int(roi[0])], roi, top) for roi, top in pairs]
        return self.out

    def warp(self, x: Any, roi: np.ndarray, top: Any) -> tuple[Any, ...]:
        """Pool a region of maps x (c, h, w) into `top`; returns what its gradient needs."""
        (_, c, h, w), (ph, pw) = self.x_shape, top.shape[1:]
        ends = rounded(roi[1:] * roi.dtype.type(self.spatial_scale))
        if not (np.abs(ends) < FARTHEST).all():
            raise DataError(
                f"region {', '.join(f'{v:g}' for v in roi[1:])} is too far from its map"
            )
        axes = (ends[1], ends[3], ph, h), (ends[0], ends[2], pw, w)
        (rows, y_inside, sh), (columns, x_inside, sw) = (self.points(*axis) for axis in axes)
        place = slice(None), used(rows), used(columns)
        rows, columns = self.from_host(rows[:, place[1]]), self.from_host(columns[:, place[2]])
        values = self.matmul(self.matmul(rows, x[place]), columns.T)  # (c, ph sh, pw sw)
        outside = self.from_host(np.where(y_inside[:, None] & x_inside, 0.0, -np.inf))
        values = (values + outside).reshape(c, ph, sh, pw, sw).transpose(0, 1, 3, 2, 4)
        values = values.reshape(c, ph, pw, sh * sw)
        most = values.max(axis=3)
        is_inside = most != -np.inf  # NaN is shown
        top[...] = self.xp.where(is_inside, most, 0)
        won = (self.xp.arange(sh * sw) == values.argmax(axis=3)[..., None]) & is_inside[..., None]
        return (int(roi[0]), *place), rows, columns, won.reshape(c, ph, pw, sh, sw)

    def points(
        self, first: float, last: float, bins: int, size: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Of an axis the weights of its points, which are inside, and how many a bin has."""
        length = max(last - first, 0) / bins
        steps = max(math.ceil(length), 1)
        at = np.arange(bins)[:, None] + np.arange(steps + 1) / steps
        return *hat((first + at * length).ravel(), size), steps + 1

    def backward(self, dy: Any) -> Any:
        c, dx = self.x_shape[1], self.xp.zeros(self.x_shape, self.sum_dtype)
        for (place, rows, columns, won), part in zip(self.kept, dy, strict=True):
            spread = self.wide(part)[..., None, None] * won
            spread = spread.transpose(0, 1, 3, 2, 4).reshape(c, rows.shape[0], columns.shape[0])
            dx[place] += self.matmul(self.matmul(rows.T, spread), columns)
        return dx, None


@register
class ROIAlign(Binned):
    """The maps at the corners of a grid over each region, read between pixels. Bottoms: maps, regions.

    (n, c, h, w), (r, 5) -> (r, c, pooled_h + 1, pooled_w + 1). A region is (image, x0, y0, x1, y1) in pixels
    of the picture, widened on each side by pad_ratio of its size, x1 - x0 + 1, times spatial_scale, less 1/2.
    Corners over half a pixel outside the maps are 0, and so is a region without an area. The maps have a
    gradient. It reads the regions on the host. Raises DataError for an image outside the batch. Its mean over
    2 x 2 corners, a Pooling, is what others call so. Source: ROIAlign of Cascade R-CNN's Caffe; K. He et al.,
    Mask R-CNN, 2017.

    Example: (2, 8, 6, 6), (3, 5) -> {type: ROIAlign, pooled_h: 2, pooled_w: 3} -> (3, 8, 3, 4)
    """

    pad_ratio: Annotated[float, "share of its size by which a region is widened", AtLeast(0)] = 0.0

    def setup(self, x: Shape, rois: Shape) -> Shape:
        r, c, h, w = super().setup(x, rois)
        return (r, c, h + 1, w + 1)

    def forward(self, x: Any, rois: Any) -> Any:
        rois = self.regions(rois)
        x, regions = self.wide(x), list[Any]()
        pad = (rois[:, 3:] - rois[:, 1:3] + 1) * rois.dtype.type(self.pad_ratio)
        scale = rois.dtype.type(self.spatial_scale)
        starts, ends = (rois[:, 1:3] - pad) * scale - 0.5, (rois[:, 3:] + pad) * scale - 0.5
        bins = np.array([self.pooled_w, self.pooled_h])
        for roi, start, size, top in zip(rois, starts, ends - starts, self.out[0], strict=True):
            if not (size > 0).all():
                top[...] = 0
                regions.append(None)
                continue
            axes = zip(start, size, bins, self.x_shape[:1:-1], strict=True)
            columns, rows = (
                hat(first + np.arange(count + 1) * (length / count), pixels)[0]
                for first, length, count, pixels in axes
            )
            place = int(roi[0]), slice(None), used(rows), used(columns)
            rows, columns = self.from_host(rows[:, place[2]]), self.from_host(columns[:, place[3]])
            top[...] = self.matmul(self.matmul(rows, x[place]), columns.T)
            regions.append((place, rows, columns))
        self.kept = regions
        return self.out

    def backward(self, dy: Any) -> Any:
        dx = self.xp.zeros(self.x_shape, self.sum_dtype)
        for region, part in zip(self.kept, dy, strict=True):
            if region is not None:
                place, rows, columns = region
                dx[place] += self.matmul(self.matmul(rows.T, self.wide(part)), columns)
        return dx, None
