"""Pooling of regions against loops: halves, regions outside and inside out, bins that share or are empty."""

import math

import numpy as np
import pytest
from core.ops.cases import blank, cases, close, dtypes, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops import pool as roi_pool
from minicaffe.errors import DataError

pytestmark = pytest.mark.usefixtures("threads")
shapes = st.tuples(*[st.integers(1, most) for most in (2, 3, 7, 6)])
grids = st.tuples(st.integers(1, 8), st.integers(1, 4))


def half_up(value):
    """C's round: of two whole numbers as near, the one away from 0."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))


def reference(x, rois, scale, grid):
    """Each bin's largest entry and where it is, looked for in the whole plane; lengths in x's type."""
    (_, c, h, w), number = x.shape, x.dtype.type
    y, which = np.zeros((len(rois), c, *grid)), np.full((len(rois), c, *grid), -1)
    for r, (image, *corners) in enumerate(rois):
        x0, y0, x1, y1 = (half_up(number(v) * number(scale)) for v in corners)
        ends = []
        for first, last, count in ((y0, y1, grid[0]), (x0, x1, grid[1])):
            size = number(max(last - first + 1, 1)) / number(count)
            ends.append(
                [
                    (first + math.floor(number(p) * size), first + math.ceil(number(p + 1) * size))
                    for p in range(count)
                ]
            )
        for k, p, q in np.ndindex(c, *grid):
            inside = [
                (x[int(image), k, a, b], -(a * w + b))
                for a in range(h)
                for b in range(w)
                if ends[0][p][0] <= a < ends[0][p][1] and ends[1][q][0] <= b < ends[1][q][1]
            ]
            if inside:
                best, place = max(inside)
                y[r, k, p, q], which[r, k, p, q] = best, -place
    return y, which


def pooled(device, x, rois, scale, y, which):
    flags = blank(device, x.shape[1], bool), np.zeros(1, np.int32)
    return roi_pool.roi_pool(x, rois, scale, y, which, *flags)


@cases(60)
@given(shapes, st.integers(1, 5), grids, st.sampled_from([1.0, 0.5, 0.0625]), dtypes, seeds)
def test_against_loops(device, shape, count, grid, scale, dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.choice([-2.0, 0.5, 1.0, 3.0], shape).astype(dtype)  # equal ones abound
    # Some reach beyond the image, some end before they begin; a good many lie at halves
    corners = rng.integers(-6, 18, (count, 4)) / rng.choice([1, 2, 3], (count, 1))
    rois = np.column_stack([rng.integers(0, shape[0], count), corners]).astype(dtype)
    if scale < 0.1:
        rois[:, 1:] *= 16
    out = (count, shape[1], *grid)
    y, which = blank(device, out, dtype), blank(device, out, np.int32)
    there = put(device, x), put(device, rois)
    assert pooled(device, *there, scale, y, which) is y
    wanted, winners = reference(x, rois, scale, grid)
    same(device, y, wanted)
    same(device, which, winners)
    same(device, there[0], x)

    dy = rng.normal(size=out).astype(dtype)
    scratch = [blank(device, out, kind) for kind in (np.int64, bool, dtype)]
    dx, dy_there = blank(device, shape, dtype), put(device, dy)
    roi_pool.roi_pool_gradient(dy_there, which, there[1], scale, dx, scratch)
    expected = np.zeros(shape)
    for r, k, p, q in np.argwhere(winners >= 0):
        a, b = divmod(winners[r, k, p, q], shape[3])
        expected[int(rois[r, 0]), k, a, b] += float(dy[r, k, p, q])
    close(device, dx, expected)
    same(device, dy_there, dy)


def test_numbers_beyond_measure_and_none(device):
    """They are far off; a region with none of the image in it gives 0."""
    x = put(device, np.ones((1, 1, 2, 2), np.float32))
    rois = np.array([[0, 1e30, 0, 1e30, 1], [0, -1e30, 0, 1e30, 1], [0, np.nan, 0, np.nan, 1]])
    y, which = blank(device, (3, 1, 1, 1), np.float32), blank(device, (3, 1, 1, 1), np.int32)
    pooled(device, x, put(device, rois, np.float32), 1.0, y, which)
    same(device, y.ravel(), [0, 1, 0])
    same(device, which.ravel(), [-1, 0, -1])


@pytest.mark.parametrize("image", [-1, 2, np.nan])
def test_an_image_that_is_not_there(device, image):
    x, rois = np.ones((2, 1, 3, 3)), np.array([[1, 0, 0, 1, 1.0], [image, 0, 0, 1, 1]])
    y, which = blank(device, (2, 1, 1, 1), float), blank(device, (2, 1, 1, 1), np.int32)

    def run():
        return pooled(device, put(device, x), put(device, rois), 1.0, y, which)

    if device.is_cuda:
        got = device.to_host(run()).ravel()
        assert got[0] == 1 and np.isnan(got[1])
    else:
        with pytest.raises(DataError, match=r"region 1 is of image .*; there are 2: 0..1"):
            run()
