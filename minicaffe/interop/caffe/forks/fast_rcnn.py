"""Pooling of regions of an image: ROIPooling."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import same_type
from minicaffe.core.ops import arrays
from minicaffe.core.ops import roi_pool as ops
from minicaffe.interop.caffe.forks.regions import check_regions


@register
class ROIPooling(Layer):
    """The largest entry in each bin of a grid over each region. Bottoms: maps, regions.

    (n, c, h, w), (r, 5) -> (r, c, pooled_h, pooled_w). A region is (image, x0, y0, x1, y1), in pixels of the
    picture, widened on each side by pad_ratio of its size, x1 - x0 + 1; spatial_scale converts it to the maps.
    It is rounded to whole places, at least one. Neighbouring bins may share a row or a column; a bin outside
    the image is 0. The maps have a gradient. Raises DataError for an image outside the batch. Source: the
    ROIPooling of Fast R-CNN; R. Girshick, Fast R-CNN, 2015; pad_ratio is MS-CNN's.

    Example: (2, 8, 6, 6), (3, 5) -> {type: ROIPooling, pooled_h: 2, pooled_w: 3} -> (3, 8, 2, 3)
    """

    pooled_h: Annotated[int, "rows of bins", AtLeast(1)]
    pooled_w: Annotated[int, "columns of bins", AtLeast(1)]
    spatial_scale: Annotated[float, "size of the maps divided by that of the picture"] = 1.0
    pad_ratio: Annotated[float, "share of its size by which a region is widened", AtLeast(0)] = 0.0

    traits = Traits(recordable=True, label_bottoms=(1,), float32_bottoms=(1,))

    def setup(self, x: Shape, rois: Shape) -> Shape:
        check_regions(x, rois)
        self.images, self.count = x[0], rois[0]
        self.y_shape = (rois[0], x[1], self.pooled_h, self.pooled_w)
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
        rois = same_type(self.xp, rois.reshape(-1, 5), self.copy)
        self.rois = self.widened(rois) if self.pad_ratio else rois
        given = x, self.rois, self.spatial_scale
        return ops.roi_pool(*given, self.out[0], self.which, self.better, self.refused)

    def backward(self, dy: Any) -> Any:
        given = dy, self.which, self.rois, self.spatial_scale
        return ops.roi_pool_gradient(*given, self.grad[0], self.scratch), None

    def check(self) -> None:
        ops.check(self.context.device.to_host(self.rois), self.images)
