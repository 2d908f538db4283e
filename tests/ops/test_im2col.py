"""im2col and col2im against loops, and against each other: they are adjoint."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import references as ref
from ops.cases import (
    EDGES,
    blank,
    cases,
    close,
    conv_axis,
    dtypes,
    numbers,
    put,
    same,
    seeds,
    windows,
)

from minicaffe.backend import device as device_called
from minicaffe.ops.geometry import Window
from minicaffe.ops.im2col import col2im, im2col

channels = st.integers(1, 3)
edges = [pytest.param(g, id=f"{g.h}x{g.w}-{g.window.kernel}-{g.window.pad}") for g in EDGES]


def check_both(device, c, image, window, dtype, seed):
    rows = c * math.prod(window.kernel)
    shape, col_shape = (c, *image), (rows, *ref.conv_sizes(image, window))
    x, c_hat = numbers(seed, shape, col_shape, dtype=dtype)
    x_there, c_there = put(device, x), put(device, c_hat)
    columns = im2col(x_there, window, blank(device, col_shape, dtype))
    same(device, columns, ref.im2col(x, window))  # copies: not one bit may differ
    back = col2im(c_there, window, blank(device, shape, dtype))
    close(device, back, ref.col2im(c_hat, window, shape))
    same(device, x_there, x)
    same(device, c_there, c_hat)


@cases(240)
@given(channels, windows(conv_axis()), dtypes, seeds)
def test_against_loops(device, c, drawn, dtype, seed):
    check_both(device, c, *drawn, dtype, seed)


@pytest.mark.parametrize("g", edges)
def test_edges_against_loops(device, g):
    for dtype in (np.float32, np.float64):
        check_both(device, g.c, (g.h, g.w), g.window, dtype, 1)


@cases(240)
@given(channels, windows(conv_axis()), seeds)
def test_col2im_is_the_adjoint_of_im2col(device, c, drawn, seed):
    """<im2col(x), c> = <x, col2im(c)>, exactly: the numbers are whole."""
    image, window = drawn
    shape = (c, *image)
    col_shape = (c * math.prod(window.kernel), *ref.conv_sizes(image, window))
    rng = np.random.default_rng(seed)
    x, c_hat = (rng.integers(-9, 10, size).astype(float) for size in (shape, col_shape))
    columns = im2col(put(device, x), window, blank(device, col_shape, float))
    back = col2im(put(device, c_hat), window, blank(device, shape, float))
    assert (device.to_host(columns) * c_hat).sum() == (x * device.to_host(back)).sum()


@cases(160)
@given(channels, windows(conv_axis()), dtypes, seeds)
def test_both_devices_agree(cuda, c, drawn, dtype, seed):
    """The columns bit for bit; the image too, as both add kernel element by kernel element."""
    image, window = drawn
    shape = (c, *image)
    col_shape = (c * math.prod(window.kernel), *ref.conv_sizes(image, window))
    x, c_hat = numbers(seed, shape, col_shape, dtype=dtype)
    there, here = (
        [
            device.to_host(im2col(put(device, x), window, blank(device, col_shape, dtype))),
            device.to_host(col2im(put(device, c_hat), window, blank(device, shape, dtype))),
        ]
        for device in (cuda, device_called("cpu"))
    )
    np.testing.assert_array_equal(there[0], here[0])
    np.testing.assert_array_equal(there[1], here[1])


def test_an_image_that_is_a_view_of_a_batch(device):
    (x,) = numbers(3, (2, 2, 4, 5), dtype=np.float32)
    window = Window((2, 3))
    batch = put(device, x)
    columns = im2col(batch[1], window, blank(device, (12, 3, 3), np.float32))
    same(device, columns, ref.im2col(x[1], window))
