"""Max pooling of regions of interest, each into a grid of the same size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op
from minicaffe.errors import DataError

FAR = 1 << 28  # pixels: further off is as far


@op(replays=False)
def roi_pool(
    x: Any, rois: Any, scale: float, out: Any, which: Any, better: Any, refused: Any
) -> Any:
    """out[r, k, p, q] = the largest entry of channel k in bin (p, q) of region r, `which` its place y w + x.

    x (n, c, h, w); rois (r, 5): image, x0, y0, x1, y1, in pixels times 1 / scale, rounded half away from 0, at
    least one pixel. Bin p of `length` rows reaches from floor(p length / oh) to ceil((p + 1) length / oh), cut
    to the image; an empty one is 0, with place -1. `better` (c,) is boolean scratch. Raises DataError for an
    image that is not there; on CUDA, which is not waited for, its region is NaN. A replay sets `refused`, one
    int32, to 1 instead of raising.
    Source: ROIPoolingLayer of R. Girshick's fast-rcnn.

    >>> x, rois = np.arange(16.0).reshape(1, 1, 4, 4), np.array([[0.0, 0, 2, 6, 6]])
    >>> y, which = np.empty((1, 1, 2, 2)), np.empty((1, 1, 2, 2), np.int32)
    >>> roi_pool(x, rois, 0.5, y, which, np.empty(1, bool), np.zeros(1, np.int32)).tolist()
    [[[[9.0, 11.0], [13.0, 15.0]]]]
    """
    (n, _, h, w), bins = x.shape, out.shape[2:]
    check(rois, n)
    for r, roi in enumerate(rois):
        image, spans = _spans(roi, x.dtype.type(scale), (h, w), bins)
        for p, rows in enumerate(spans[0]):
            for q, columns in enumerate(spans[1]):
                best, winner = out[r, :, p, q], which[r, :, p, q]
                best.fill(-np.inf if rows and columns else 0)
                winner.fill(-1)
                for a in rows:
                    for b in columns:
                        value = x[image, :, a, b]
                        np.greater(value, best, out=better)
                        np.copyto(best, value, where=better)
                        np.copyto(winner, a * w + b, where=better)


@op(replays=False)
def roi_pool_gradient(dy: Any, which: Any, rois: Any, scale: float, out: Any, scratch: Any) -> Any:
    """dx = the sum of dy over the bins that each entry won.

    `scratch` is an int64, a boolean array and one of dy's type, of dy's shape.

    >>> dy, which = np.full((1, 1, 1, 2), 5.0), np.array([[[[2, 2]]]], np.int32)
    >>> scratch = [np.empty(dy.shape, kind) for kind in (np.int64, bool, float)]
    >>> rois = np.array([[0.0, 0, 0, 1, 1]])
    >>> roi_pool_gradient(dy, which, rois, 1, np.empty((1, 1, 2, 2)), scratch).tolist()
    [[[[0.0, 0.0], [10.0, 0.0]]]]
    """
    _, c, h, w = out.shape
    places, won, share = scratch
    np.maximum(which, 0, out=places)
    for r in range(len(dy)):
        places[r] += int(rois[r, 0]) * c * h * w
    for k in range(c):
        places[:, k] += k * h * w
    np.multiply(dy, np.greater_equal(which, 0, out=won), out=share)
    out.fill(0)
    np.add.at(out.reshape(-1), places.reshape(-1), share.reshape(-1))


def check(rois: np.ndarray, n: int) -> None:
    """Raise DataError for a region of an image that is not one of n."""
    for r, roi in enumerate(rois):
        if not -1 < roi[0] < n:
            raise DataError(f"region {r} is of image {roi[0]:g}; there are {n}: 0..{n - 1}")


def _spans(
    roi: Any, scale: Any, image: tuple[int, int], out: tuple[int, int]
) -> tuple[int, list[list[range]]]:
    """A region's image; the rows of each row of bins, the columns of each column."""
    x0, y0, x1, y1 = (_pixel(value * scale) for value in roi[1:])
    spans = []
    for first, last, size, count in ((y0, y1, image[0], out[0]), (x0, x1, image[1], out[1])):
        length = scale.dtype.type(max(last - first + 1, 1)) / scale.dtype.type(count)
        spans.append([_span(p, length, first, size) for p in range(count)])
    return int(roi[0]), spans


def _span(p: int, length: Any, first: int, size: int) -> range:
    """The rows or columns of bin p of those of a length, from `first` on, that are in the image."""
    start = math.floor(length.dtype.type(p) * length) + first
    stop = math.ceil(length.dtype.type(p + 1) * length) + first
    return range(min(max(start, 0), size), min(max(stop, 0), size))


def _pixel(value: Any) -> int:
    """The nearest whole number, of two the one away from 0."""
    if not -FAR < value < FAR:
        return FAR if value > 0 else -FAR
    size = math.floor(abs(value))
    return int(math.copysign(size + (abs(value) - size >= 0.5), value))
