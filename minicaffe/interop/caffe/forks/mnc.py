"""The layers of Multi-task Network Cascades: ROIWarping, MaskPooling and MaskResize."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.ops.roi_pool import check
from minicaffe.errors import DataError, ShapeError
from minicaffe.interop.caffe.forks.regions import check_regions
from minicaffe.interop.caffe.forks.whole import Whole, rounded

FARTHEST = 1e6  # columns and rows from the map's corner, in which each has points


def hat(points: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (points, size) of linear interpolation between pixels, and which points are not outside.

    A point is outside that is over half a pixel from the first and last; else, the nearest pixel counts.

    >>> hat(np.array([0.25, -0.5, 1.6]), 2)
    (array([[0.75, 0.25],
           [1.  , 0.  ],
           [0.  , 0.  ]]), array([ True,  True, False]))
    """
    inside = (points >= -0.5) & (points <= size - 0.5)
    at = np.clip(np.where(inside, points, 0), 0, size - 1)
    weights = np.maximum(1 - np.abs(at[:, None] - np.arange(size)), 0)
    return weights * inside[:, None], inside


def used(weights: np.ndarray) -> slice:
    """The pixels, at least one, from the first to the last that any point reads.

    >>> used(np.array([[0.0, 0.5, 0.5, 0], [0, 0, 1, 0]]))
    slice(1, 3, None)
    """
    read = np.flatnonzero(weights.any(axis=0))
    return slice(int(read[0]), int(read[-1]) + 1) if len(read) else slice(0, 1)


@register
class ROIWarping(Whole):
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

    pooled_h: Annotated[int, "rows of bins", AtLeast(1)]
    pooled_w: Annotated[int, "columns of bins", AtLeast(1)]
    spatial_scale: Annotated[float, "size of the maps divided by that of the picture"] = 1.0

    traits = Traits(capturable=False, label_bottoms=(1,), float32_bottoms=(1,))

    def setup(self, x: Shape, rois: Shape) -> Shape:
        check_regions(x, rois)
        self.x_shape = x
        return (rois[0], x[1], self.pooled_h, self.pooled_w)

    def forward(self, x: Any, rois: Any) -> Any:
        rois = self.on_host(rois).reshape(-1, 5)
        check(rois, self.x_shape[0])
        x, self.kept = self.wide(x), []
        for roi, top in zip(rois, self.out[0], strict=True):
            self.kept.append(self.warp(x[int(roi[0])], roi, top))
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
        rows, columns = (
            self.from_host(weights[:, part])
            for weights, part in ((rows, place[1]), (columns, place[2]))
        )
        values = self.xp.matmul(self.xp.matmul(rows, x[place]), columns.T)  # (c, ph sh, pw sw)
        outside = self.from_host(np.where(y_inside[:, None] & x_inside, 0.0, -np.inf))
        values = (values + outside).reshape(c, ph, sh, pw, sw).transpose(0, 1, 3, 2, 4)
        values = values.reshape(c, ph, pw, sh * sw)
        which = values.argmax(axis=3)
        most = values.max(axis=3)
        found = most != -np.inf  # NaN is shown
        top[...] = self.xp.where(found, most, 0)
        won = (self.xp.arange(sh * sw) == which[..., None]) & found[..., None]
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
        xp, c, dx = self.xp, self.x_shape[1], self.xp.zeros(self.x_shape, self.sum_dtype)
        for (place, rows, columns, won), part in zip(self.kept, dy, strict=True):
            spread = self.wide(part)[..., None, None] * won
            spread = spread.transpose(0, 1, 3, 2, 4).reshape(c, rows.shape[0], columns.shape[0])
            dx[place] += xp.matmul(xp.matmul(rows.T, spread), columns)
        return dx, None


@register
class MaskPooling(Whole):
    """y = x mask, the mask the same for each channel. Bottoms: x (n, c, h, w), mask (n, 1, h, w).

    Both have a gradient. Source: MaskPooling of MNC's Caffe; J. Dai et al., Instance-aware Semantic
    Segmentation via Multi-task Network Cascades, 2016.

    Example: (2, 3, 4, 5), (2, 1, 4, 5) -> {type: MaskPooling} -> (2, 3, 4, 5)
    """

    def setup(self, x: Shape, mask: Shape) -> Shape:
        if len(x) != 4 or mask != (x[0], 1, *x[2:]):
            raise ShapeError(f"needs x (n, c, h, w) and a mask (n, 1, h, w), got {x} and {mask}")
        return x

    def forward(self, x: Any, mask: Any) -> Any:
        self.x, self.mask = self.wide(x), self.wide(mask)
        return self.x * self.mask

    def backward(self, dy: Any) -> Any:
        dy = self.wide(dy)
        return dy * self.mask, (dy * self.x).sum(axis=1, keepdims=True)


@register
class MaskResize(Whole):
    """Maps of another size, linearly between pixels: (n, c, h, w) -> (n, c, output_height, output_width).

    Entry (i, j) is read at (i h / output_height, j w / output_width), so first pixels meet; over half a pixel
    behind the last one it is 0. The gradient is the derivative; MNC's of a larger mask leaves entries out.
    Source: MaskResize of MNC's Caffe; J. Dai et al., Instance-aware Semantic Segmentation via Multi-task
    Network Cascades, 2016.

    Example: (2, 1, 21, 21) -> {type: MaskResize, output_height: 14, output_width: 14} -> (2, 1, 14, 14)
    """

    output_height: Annotated[int, "rows of the top", AtLeast(1)]
    output_width: Annotated[int, "columns of the top", AtLeast(1)]

    def setup(self, x: Shape) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        self.area = x[2:]
        return (*x[:2], self.output_height, self.output_width)

    def weights(self) -> list[np.ndarray]:
        """The weights of rows (output_height, h) and columns (output_width, w)."""
        sizes = zip((self.output_height, self.output_width), self.area, strict=True)
        return [hat(np.arange(out) * (size / out), size)[0] for out, size in sizes]

    def allocate(self) -> None:
        self.rows, self.columns = map(self.from_host, self.weights())

    def forward(self, x: Any) -> Any:
        return self.xp.matmul(self.xp.matmul(self.rows, self.wide(x)), self.columns.T)

    def backward(self, dy: Any) -> Any:
        return self.xp.matmul(self.xp.matmul(self.rows.T, self.wide(dy)), self.columns)
