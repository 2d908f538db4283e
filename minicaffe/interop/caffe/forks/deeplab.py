"""Layers of segmentation: Interp and Upsample, which change an image's size, and SegAccuracy."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from minicaffe.core.config.types import AtLeast, Below
from minicaffe.core.layers.base import Layer, Traits, register
from minicaffe.core.layers.blob import Shape
from minicaffe.core.layers.losses import check_labels, same_type
from minicaffe.core.ops import arrays, unpool
from minicaffe.core.ops.geometry import interp_output_size
from minicaffe.core.ops.interp import Axis, interp, interp_gradient
from minicaffe.core.ops.labels import check_classes
from minicaffe.core.ops.take import fold
from minicaffe.errors import ShapeError
from minicaffe.interop.caffe.forks.whole import Whole


@register
class Interp(Layer):
    """Bilinear interpolation whose first and last rows and columns are the image's own ("align corners").

    (n, c, h, w) -> (n, c, oh, ow): a top pixel o is at o (h - 1) / (oh - 1) of the image. The size is
    height and width, or follows from shrink_factor s and zoom_factor z: h becomes (h - 1) / s + 1, then
    h + (h - 1) (z - 1); or it is that of a second bottom. Negative pads crop the image first.
    Source: Interp of DeepLab's Caffe; L.-C. Chen et al., DeepLab, 2016.

    Example: (2, 3, 5, 4) -> {type: Interp, zoom_factor: 2} -> (2, 3, 9, 7)
    """

    height: Annotated[int | None, "rows of the top", AtLeast(1)] = None
    width: Annotated[int | None, "columns of the top", AtLeast(1)] = None
    zoom_factor: Annotated[int | None, "steps between neighbouring pixels", AtLeast(1)] = None
    shrink_factor: Annotated[int | None, "only every n-th pixel", AtLeast(1)] = None
    pad_beg: Annotated[int, "minus the rows and columns cut off before, or 0", Below(1)] = 0
    pad_end: Annotated[int, "minus the rows and columns cut off behind, or 0", Below(1)] = 0

    traits = Traits(recordable=True, label_bottoms=(1,))

    def setup(self, x: Shape, like: Shape | None = None) -> Shape:
        for shape in (x, like or x):
            if len(shape) != 4:
                raise ShapeError(f"needs bottoms of 4 axes (n, c, h, w), got {shape}")
        sizes, factors = (self.height, self.width), (self.zoom_factor, self.shrink_factor)
        given = [any(k is not None for k in keys) for keys in (sizes, factors)] + [like is not None]
        if sum(given) != 1 or (given[0] and None in sizes):
            raise ShapeError(
                "give one of: both height and width; zoom_factor, shrink_factor or both; a second bottom"
            )
        self.kept = tuple(size + self.pad_beg + self.pad_end for size in x[2:])
        if min(self.kept) < 1:
            raise ShapeError(
                f"pad_beg {self.pad_beg} and pad_end {self.pad_end} leave nothing of {x}"
            )
        shrink, zoom = self.shrink_factor or 1, self.zoom_factor or 1
        out = tuple(interp_output_size(n, shrink, zoom) for n in self.kept)
        if like or given[0]:
            out = like[2:] if like else (self.height or 1, self.width or 1)
        self.x_shape, self.y_shape = x, (*x[:2], *out)
        self.context.reserve(math.prod(x[:2]) * out[0] * (x[3] + max(x[3], out[1])))
        return self.y_shape

    def allocate(self) -> None:
        self.rows, self.columns = (
            Axis.of(self.xp, size, kept, out, -self.pad_beg, self.sum_dtype)
            for size, kept, out in zip(self.x_shape[2:], self.kept, self.y_shape[2:], strict=True)
        )

    def forward(self, x: Any, like: Any = None) -> Any:
        return interp(x, self.rows, self.columns, self.out[0], self.context.workspace)

    def backward(self, dy: Any) -> Any:
        interp_gradient(dy, self.rows, self.columns, self.grad[0], self.context.workspace)
        return self.grad


@register
class Upsample(Layer):
    """Moves each pixel to the place that a Pooling's mask, the second bottom, names; other pixels are 0.

    (n, c, h, w), mask (n, c, h, w) -> (n, c, upsample_h, upsample_w), or h and w times `scale`, less 1 with
    pad_out. If several pixels have one place, the last is written, and each has that place's gradient, as in
    Caffe; -1 in the mask is no place. Without a mask each pixel becomes scale_h x scale_w equal pixels.
    Raises DataError for a place outside; on CUDA, without waiting, the first pixel becomes NaN.
    Source: Upsample of SegNet's Caffe; V. Badrinarayanan et al., SegNet, 2015; without a mask, YOLO's.

    Example: (2, 3, 4, 4), (2, 3, 4, 4) -> {type: Upsample, scale: 2} -> (2, 3, 8, 8)
    """

    scale: Annotated[int, "times the rows and columns", AtLeast(1)] = 2
    scale_h: Annotated[int | None, "times the rows; default: scale", AtLeast(1)] = None
    scale_w: Annotated[int | None, "times the columns; default: scale", AtLeast(1)] = None
    upsample_h: Annotated[int | None, "rows of the top, instead of scale", AtLeast(1)] = None
    upsample_w: Annotated[int | None, "columns of the top, instead of scale", AtLeast(1)] = None
    pad_out_h: Annotated[bool, "one row less than scale says"] = False
    pad_out_w: Annotated[bool, "one column less than scale says"] = False

    traits = Traits(recordable=True, label_bottoms=(1,), float32_bottoms=(1,))

    def setup(self, x: Shape, mask: Shape | None = None) -> Shape:
        if len(x) != 4:
            raise ShapeError(f"needs a bottom of 4 axes (n, c, h, w), got {x}")
        if mask not in (None, x):
            raise ShapeError(f"needs a mask of the first bottom's shape {x}, got {mask}")
        scales = (self.scale_h, self.scale_w)
        sizes = (self.upsample_h, self.upsample_w)
        for names, pair in (("scale_h and scale_w", scales), ("upsample_h and upsample_w", sizes)):
            if (pair[0] is None) != (pair[1] is None):
                raise ShapeError(f"give both {names}")
        pads = (self.pad_out_h, self.pad_out_w)
        if mask is None and (sizes != (None, None) or any(pads)):
            raise ShapeError(
                "without a mask there is scale, and no upsample_h, pad_out_h or the like"
            )
        if sizes != (None, None) and (scales != (None, None) or any(pads)):
            raise ShapeError(
                "upsample_h and upsample_w are the size; there is no scale, no pad_out_h or pad_out_w"
            )
        self.scales = tuple(self.scale if one is None else one for one in scales)
        scaled = zip(x[2:], self.scales, pads, strict=True)
        out = [n * scale - pad for n, scale, pad in scaled]
        self.x_shape, self.y_shape = x, (*x[:2], *(sizes if None not in sizes else out))
        if min(self.y_shape[2:]) < 1:
            raise ShapeError(f"pad_out_h and pad_out_w leave nothing of {x}")
        self.masked = mask is not None
        self.context.reserve(math.prod(x) * self.scales[1])
        return self.y_shape

    def allocate(self) -> None:
        self.copy = None
        if self.masked:
            self.place = self.empty(self.x_shape, np.int64)
            self.winner = self.empty(self.y_shape, np.int32)
            if self.dtype != self.sum_dtype:
                self.copy = self.empty(self.x_shape, self.sum_dtype)

    def forward(self, x: Any, mask: Any = None) -> Any:
        n, c, h, w = self.x_shape
        if mask is None:
            sh, sw = self.scales
            blocks = self.out[0].reshape(n * c, h, sh, w, sw)
            arrays.copy(x.reshape(n * c, h, 1, w, 1), blocks)
            return self.out
        self.mask = mask = same_type(self.xp, mask, self.copy)
        unpool.places(mask, self.y_shape[2:], self.place, self.refused)
        unpool.unpool(x, self.place, self.out[0], self.winner)
        return self.out

    def backward(self, dy: Any) -> Any:
        n, c, h, w = self.x_shape
        dx = self.grad[0]
        if self.masked:
            unpool.unpool_gradient(dy, self.place, dx)
            return dx, None
        sh, sw = self.scales
        lines = self.context.workspace[: dx.size * sw].reshape(n * c * h, w * sw)
        fold(dy.reshape(n * c * h, sh, w * sw), lines)
        fold(lines.reshape(dx.size, sw, 1), dx.reshape(dx.size, 1))
        return self.grad

    def check(self) -> None:
        if self.masked:
            unpool.check(self.context.device.to_host(self.mask), self.y_shape[2:])


@register
class SegAccuracy(Whole):
    """How many pixels have the right class: a batch's accuracy, mean recall, mean intersection over union.

    Bottoms: scores (n, c, h, w) and labels (n, 1, h, w). Top: (1, 1, 1, 3): the share of labels that have the
    largest score, of equal ones the last; the mean over the classes that there are of the share found of
    each; the mean over all classes of intersection over union, 1 for a class that is nowhere.
    Raises DataError for a label that is no class nor ignored; on CUDA, without waiting, the top is NaN.
    Source: SegAccuracy of G. Papandreou's DeepLab; L.-C. Chen et al., Semantic Image Segmentation with Deep
    Convolutional Nets and Fully Connected CRFs, 2015.

    Example: (2, 5, 3, 4), (2, 1, 3, 4) -> {type: SegAccuracy, ignore_label: 255} -> (1, 1, 1, 3)
    """

    ignore_label: Annotated[tuple[int, ...], "labels that do not count"] = ()

    traits = replace(
        Whole.traits,
        label_bottoms=(0, 1),
        float32_bottoms=(1,),
        float32_tops=(0,),
        mixes_samples=True,
        inferred_as="nothing",
    )

    def setup(self, x: Shape, labels: Shape) -> Shape:
        if len(x) != 4 or not x[1]:
            raise ShapeError(f"needs scores of 4 axes (n, c, h, w), got {x}")
        check_labels(labels, x[0], x[2] * x[3])
        self.ncs = x[0], x[1], x[2] * x[3]
        return (1, 1, 1, 3)

    def allocate(self) -> None:
        classes = np.arange(self.ncs[1], dtype=self.sum_dtype).reshape(-1, 1)
        self.classes = self.context.device.asarray(classes)
        self.diagonal = self.context.device.asarray(np.eye(self.ncs[1]))

    def forward(self, x: Any, labels: Any) -> Any:
        xp, (n, c, s) = self.xp, self.ncs
        x, labels = x.reshape(self.ncs), self.wide(labels.reshape(n, 1, s))
        if not self.context.device.is_cuda:
            check_classes(labels[~np.isin(labels, self.ignore_label)], None, c)
        found = xp.zeros((c, c), np.float64)  # how many of label i are told to be j
        left = xp.zeros((), np.float64)
        for scores, own in zip(x, labels, strict=True):
            best = c - 1 - scores[::-1].argmax(axis=0)
            counts = xp.ones(own.shape, bool)
            for label in self.ignore_label:
                counts = counts & (own != label)
            right = self.wide((own == self.classes) & counts)
            found += xp.matmul(right, self.wide(best == self.classes).T)
            left += counts.sum()
        hits, of_label = (found * self.diagonal).sum(axis=1), found.sum(axis=1)
        union = of_label + found.sum(axis=0) - hits
        there = of_label > 0
        recall = (hits / xp.maximum(of_label, 1)).sum() / xp.maximum(there.sum(), 1)
        shared = xp.where(union == hits, 1.0, hits / xp.maximum(union, 1))
        scores = [hits.sum() / xp.maximum(left, 1), recall, shared.sum() / c]
        wrong = xp.where(left == found.sum(), 0.0, np.nan)  # some label is no class
        return self.put(xp.stack(scores) + wrong, self.out[0])
