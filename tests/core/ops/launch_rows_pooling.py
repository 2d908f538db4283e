"""Rows of test_launch.py's table: stochastic pooling and that of regions."""

import numpy as np
from core.ops.cases import blank, numbers, put
from core.ops.launch_rows import drawn, summed, table

from minicaffe.core.ops import pool
from minicaffe.core.ops.geometry import Window

ROWS, row = table()
WINDOW = Window((12, 10))  # 120 pixels: long sums, and 25 windows on a pixel
IMAGES, POOLED = (2, 3, 16, 14), (2, 3, 5, 5)


def image(device, dtype):
    """What pooling by shares asks for: none is negative, and in a window all are 0."""
    x = np.abs(numbers(1, IMAGES, dtype=dtype)[0])
    x[0, 0, :12, :10] = 0
    return put(device, x)


@row
def draw_pool(device, dtype):
    x, noise = image(device, dtype), np.abs(numbers(2, POOLED, dtype=np.float32)[0])
    noise = put(device, noise * np.float32(0.75))  # is less than 1
    y, which, *work = (
        blank(device, POOLED, k) for k in (dtype, np.int32, dtype, dtype, bool, bool)
    )
    return lambda: pool.draw_pool(x, WINDOW, noise, y, which, work), [y, which]


@row
def expected_pool(device, dtype):
    x, y = image(device, dtype), blank(device, POOLED, dtype)
    total = blank(device, POOLED, summed(dtype))
    return lambda: pool.expected_pool(x, WINDOW, y, total), [y, total]


@row
def expected_pool_gradient(device, dtype):
    """Of averages and sums as they may be, of windows that are all 0 too."""
    dy, y, total = (np.abs(a) for a in numbers(2, POOLED, POOLED, POOLED, dtype=dtype))
    total = 60 * total.astype(summed(dtype)) + 4
    total[0, 1] = pool.TINY
    dy, *left = (put(device, a) for a in (dy * dtype(64), y, total))
    given = dy, image(device, dtype), *left, WINDOW
    dx, share = blank(device, IMAGES, dtype), blank(device, POOLED, dtype)
    return lambda: pool.expected_pool_gradient(*given, dx, share), [dx]


ROIS = [  # one at halves, one that leaves the image, one of a pixel, one smaller than its bins
    [0, 1, 3, 9, 12],
    [1, 4, 2, 30, 40],
    [1, 6, 6, 2, 2],
    [0, 2, 0, 4, 4],
] * 40  # so that the sums of the gradient are long


@row
def roi_pool(device, dtype):
    x, rois = *drawn(device, dtype, IMAGES), put(device, ROIS, summed(dtype))
    y, which = (blank(device, (160, 3, 4, 2), kind) for kind in (dtype, np.int32))
    better = blank(device, 3, bool)
    return lambda: pool.roi_pool(x, rois, 0.5, y, which, better, np.zeros(1, np.int32)), [y, which]


@row
def roi_pool_gradient(device, dtype):
    find, (y, which) = roi_pool(device, dtype)
    find()
    dy = put(device, np.abs(numbers(2, y.shape, dtype=dtype)[0]))
    rois, dx = put(device, ROIS, summed(dtype)), blank(device, IMAGES, dtype)
    scratch = [blank(device, y.shape, kind) for kind in (np.int64, bool, dtype)]
    return lambda: pool.roi_pool_gradient(dy, which, rois, 0.5, dx, scratch), [dx]
