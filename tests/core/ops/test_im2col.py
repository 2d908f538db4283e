"""im2col and col2im against loops, and against each other: they are adjoint."""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import (
    EDGES,
    blank,
    cases,
    close,
    conv_windows,
    dtypes,
    numbers,
    put,
    same,
    seeds,
)
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.device import device as device_called
from minicaffe.core.ops.geometry import LAYOUTS, Window, column_shape
from minicaffe.core.ops.im2col import col2im, im2col, side_by_side
from minicaffe.errors import ShapeError

pytestmark = pytest.mark.usefixtures("threads")
samples, channels = st.integers(0, 4), st.integers(1, 3)
ON_BOTH = [layout for layout in LAYOUTS if layout != "points"]  # which the CPU alone has
layouts = pytest.mark.parametrize("layout", ON_BOTH)
WAYS = [
    ("caffe", "gather"),
    ("loopfree", "scatter"),
]  # the kernels on CUDA; one and the same elsewhere
ways = pytest.mark.parametrize(("form", "way"), WAYS)
drawn = (samples, channels, conv_windows(crop=1), seeds)


def sizes(n, c, image, window):
    """The shapes of the images and of their columns (n, r, p)."""
    places = ref.conv_sizes(image, window)
    return (n, c, *image), (n, c * math.prod(window.kernel), math.prod(places))


def lower(device, x, window, layout="caffe", form="caffe"):
    x_there = put(device, x)
    shape = ref.arranged(
        np.zeros(sizes(*x.shape[:2], x.shape[2:], window)[1]), layout, x.shape[1]
    ).shape
    assert column_shape(x.shape, window, layout) == shape
    out = blank(device, shape, x.dtype)
    assert im2col(x_there, window, out, layout, form) is out
    same(device, x_there, x)
    return out


def raised(device, col, window, shape, layout="caffe", way="gather"):
    """col2im of columns (n, r, p)."""
    there = put(device, ref.arranged(col, layout, shape[1]), col.dtype)
    out = blank(device, shape, col.dtype)
    assert col2im(there, window, out, layout, way) is out
    same(device, there, ref.arranged(col, layout, shape[1]))
    return out


@functools.lru_cache(maxsize=2)
def by_loops(n, c, image, window, dtype, seed):
    """Images and columns, and what loops make of each."""
    shape, col_shape = sizes(n, c, image, window)
    x, col = numbers(seed, shape, col_shape, dtype=dtype)
    return x, col, ref.im2col(x, window), ref.col2im(col, window, shape)


def check_both(device, n, c, image, window, layout, form, way, dtype, seed):
    x, col, columns, images = by_loops(n, c, image, window, dtype, seed)
    lowered = lower(device, x, window, layout, form)
    same(device, lowered, ref.arranged(columns, layout, c))  # copies: not one bit may differ
    close(device, raised(device, col, window, x.shape, layout, way), images)


@layouts
@ways
@cases(15)
@given(*drawn, dtypes)
def test_against_loops(device, layout, form, way, n, c, window, seed, dtype):
    check_both(device, n, c, *window, layout, form, way, dtype, seed)


@pytest.mark.parametrize("device", ["cpu", "cpu-compiled"], indirect=True)
@cases(15)
@given(*drawn, dtypes)
def test_points_against_loops(device, n, c, window, seed, dtype):
    check_both(device, n, c, *window, "points", *WAYS[0], dtype, seed)


@given(*drawn)
@cases(12)
def test_images_side_by_side(n, c, window, seed):
    """The same columns of images that lie so, and the same images of columns."""
    image, window = window
    shape, col_shape = sizes(n, c, image, window)
    x, col = numbers(seed, shape, col_shape, dtype=np.float32)
    cpu, there = device_called("cpu"), side_by_side(shape, np.full(x.size, np.nan, np.float32))
    there[...] = x
    columns = blank(cpu, column_shape(shape, window, "points"), np.float32)
    wanted = ref.arranged(ref.im2col(x, window), "points", c)
    same(cpu, im2col(there, window, columns, "points"), wanted)
    col2im(ref.arranged(col, "points", c).astype(np.float32), window, there, "points")
    close(cpu, there, ref.col2im(col, window, shape))


@pytest.mark.parametrize("threads", [3], indirect=True)
@pytest.mark.parametrize("g", [pytest.param(g, id=name) for name, g in EDGES.items()])
def test_edges_against_loops(device, threads, g):
    for form, way in WAYS if device.is_cuda else WAYS[:1]:
        layouts = ON_BOTH if device.is_cuda else LAYOUTS
        for layout, dtype in itertools.product(layouts, (np.float32, np.float64)):
            check_both(device, g.n, g.c, g.image, g.window, layout, form, way, dtype, 1)


@layouts
@ways
@cases(12)
@given(*drawn)
def test_float16(device, layout, form, way, n, c, window, seed):
    """Whole numbers, so that sums are exact."""
    image, window = window
    shape, col_shape = sizes(n, c, image, window)
    rng = np.random.default_rng(seed)
    x, col = (rng.integers(-4, 5, size).astype(np.float16) for size in (shape, col_shape))
    columns = lower(device, x, window, layout, form)
    same(device, columns, ref.arranged(ref.im2col(x, window), layout, c))
    same(device, raised(device, col, window, shape, layout, way), ref.col2im(col, window, shape))


@layouts
@cases(12)
@given(*drawn, st.data())
def test_a_band_of_the_windows(device, layout, n, c, window, seed, data):
    """`places`: of a window that starts further down, the first outputs only; and `add`."""
    image, window = window
    out = ref.conv_sizes(image, window)
    first = data.draw(st.integers(0, out[0] - 1), "first")
    places = (data.draw(st.integers(1, out[0] - first), "rows"), *out[1:])
    lower_down = (window.pad[0] - first * window.stride[0], *window.pad[1:])
    band = dataclasses.replace(window, pad=lower_down)
    shape, (_, r, p) = sizes(n, c, image, window)
    x, col, start = numbers(seed, shape, (n, r, p), shape, dtype=np.float32)
    across = p // out[0]
    rows = slice(first * across, (first + places[0]) * across)

    expected = ref.arranged(ref.im2col(x, window)[..., rows], layout, c)
    columns = blank(device, expected.shape, np.float32)
    same(device, im2col(put(device, x), band, columns, layout, places=places), expected)
    there = put(device, ref.arranged(col[..., rows], layout, c), np.float32)
    kept = np.zeros_like(col)
    kept[..., rows] = col[..., rows]
    lifted = ref.col2im(kept, window, shape)
    for way in ("gather", "scatter"):
        image = blank(device, shape, np.float32)
        close(device, col2im(there, band, image, layout, way, places), lifted)
        image = put(device, start)
        close(device, col2im(there, band, image, layout, way, places, add=True), start + lifted)


def test_an_unknown_layout():
    told = "layout 'colums' is not one of caffe, columns, rows; did you mean"
    with pytest.raises(ShapeError, match=told):
        column_shape((1, 1, 3, 3), Window((2, 2)), "colums")
