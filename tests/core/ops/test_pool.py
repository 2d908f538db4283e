"""Pooling against loops: ties, negative images in padding, windows cut at the edge or past it."""

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import (
    blank,
    cases,
    close,
    dtypes,
    need_loops,
    numbers,
    pool_windows,
    put,
    same,
    seeds,
)
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.device import device as device_called
from minicaffe.core.ops import pool
from minicaffe.core.ops.geometry import Window

pytestmark = pytest.mark.usefixtures("threads", "small_blocks")
samples, channels = st.integers(0, 4), st.integers(1, 2)
EDGES = [
    ((1, 1), Window((1, 1))),
    ((1, 1), Window((3, 2), (1, 1), (2, 1))),
    ((1, 2), Window((2, 3), (2, 2))),  # a window larger than the image
    ((4, 5), Window((4, 5))),  # global
    ((5, 7), Window((2, 3), (2, 2))),  # the last window of each row is cut
    ((5, 6), Window((1, 2), (3, 5))),  # windows past the image, pixels in no window
    ((5, 4), Window((3, 4), (2, 1), (1, 3))),
    ((4, 3), Window((2, 3), (3, 2), (1, 2))),
    ((1, 1), Window((2, 2), (2, 2))),  # a window larger than the image
    ((2, 1), Window((4, 3), (3, 3), (0, 0))),
    ((18, 19), Window((16, 17), (1, 2), (1, 0))),  # winners that no byte counts
]
edges = pytest.mark.parametrize(("image", "window"), EDGES)


@pytest.fixture
def small_blocks(monkeypatch):
    """Small blobs are worth several threads, and several blocks."""
    monkeypatch.setattr("minicaffe.core.ops.pool.BLOCK", 40)
    for function in (pool.max_pool, pool.max_pool_gradient, pool.ave_pool, pool.ave_pool_gradient):
        monkeypatch.setattr(function.op, "worth", 20)


def max_pool(device, x, window, out):
    shape = (*x.shape[:2], *out)
    y, which = blank(device, shape, x.dtype), blank(device, shape, np.int32)
    x_there = put(device, x)
    assert pool.max_pool(x_there, window, y, which, blank(device, shape, bool)) is y
    same(device, x_there, x)
    return y, which


def check_max(device, x, window, ceil=True):
    out = ref.pool_sizes(x.shape[2:], window, ceil)
    y, which = max_pool(device, x, window, out)
    expected, winners = ref.max_pool(x, window, out)
    same(device, y, expected)
    same(device, which, winners)
    check_values(device, x, window, expected)


def check_values(device, x, window, expected):
    """Without the winners the results are the same, and no more than `workspace` is needed."""
    y, which, flags = (blank(device, expected.shape, t) for t in (x.dtype, np.int32, bool))
    work = blank(device, pool.workspace(window, x.shape[2:], expected.shape[2:]), x.dtype)
    pool.max_pool(put(device, x), window, y, which, flags, work, keep=False)
    same(device, y, expected)


def check_max_gradient(device, x, window, seed, ceil=True):
    out = ref.pool_sizes(x.shape[2:], window, ceil)
    _, winners = ref.max_pool(x, window, out)
    (dy,) = numbers(seed, (*x.shape[:2], *out), dtype=x.dtype)
    scratch = blank(device, dy.shape, bool), blank(device, dy.shape, x.dtype)
    dx, which = blank(device, x.shape, x.dtype), put(device, winners, np.int32)
    dy_there = put(device, dy)
    pool.max_pool_gradient(dy_there, which, window, dx, *scratch)
    close(device, dx, ref.max_pool_gradient(dy, winners, window, x.shape))
    same(device, dy_there, dy)
    same(device, which, winners)


def check_ave(device, x, window, seed, ceil=True):
    out = ref.pool_sizes(x.shape[2:], window, ceil)
    (dy,) = numbers(seed, (*x.shape[:2], *out), dtype=x.dtype)
    x_there, dy_there = put(device, x), put(device, dy)
    y = pool.ave_pool(x_there, window, blank(device, dy.shape, x.dtype))
    close(device, y, ref.ave_pool(x, window, out))
    share = blank(device, dy.shape, x.dtype)
    dx = pool.ave_pool_gradient(dy_there, window, blank(device, x.shape, x.dtype), share)
    close(device, dx, ref.ave_pool_gradient(dy, window, x.shape))
    same(device, x_there, x)
    same(device, dy_there, dy)


def tied(n, c, image, dtype, seed):
    """An image of few and mostly negative values: ties in most windows, and 0 would win most."""
    return np.random.default_rng(seed).integers(-3, 1, (n, c, *image)).astype(dtype)


@cases(40)
@given(samples, channels, pool_windows, st.booleans(), dtypes, seeds)
def test_max_against_loops(device, n, c, drawn, ceil, dtype, seed):
    image, window = drawn
    check_max(device, tied(n, c, image, dtype, seed), window, ceil)


@cases(40)
@given(samples, channels, pool_windows, st.booleans(), dtypes, seeds)
def test_max_gradient_against_loops(device, n, c, drawn, ceil, dtype, seed):
    image, window = drawn
    check_max_gradient(device, tied(n, c, image, dtype, seed), window, seed, ceil)


@cases(40)
@given(samples, channels, pool_windows, st.booleans(), dtypes, seeds)
def test_ave_against_loops(device, n, c, drawn, ceil, dtype, seed):
    image, window = drawn
    (x,) = numbers(seed, (n, c, *image), dtype=dtype)
    check_ave(device, x, window, seed + 1, ceil)


@edges
def test_edges_against_loops(device, image, window):
    for dtype in (np.float32, np.float64):
        x = tied(2, 3, image, dtype, 1)
        check_max(device, x, window)
        check_max_gradient(device, x, window, 2)
        check_ave(device, x, window, 3)


@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 9, 12, 16, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pairs_of_pixels_in_rows_of_any_width(device, width, dtype):
    """A vector of windows at a time, whose last are those of the row."""
    x = tied(3, 2, (6, 2 * width), dtype, width)
    x[1, 0, :4, ::2] = -np.inf
    check_max(device, x, Window((2, 2), (2, 2)))
    check_max_gradient(device, x, Window((2, 2), (2, 2)), width)


@cases(60)
@given(pool_windows, dtypes, seeds)
def test_every_form_agrees(cuda, monkeypatch, drawn, dtype, seed):
    """Also where a net has diverged: NaN and infinity."""
    need_loops()
    image, window = drawn
    x, out = tied(2, 1, image, dtype, seed), ref.pool_sizes(image, window)
    odd = np.random.default_rng(seed).random(x.shape)
    x[odd < 0.2], x[odd > 0.9], x[odd > 0.95] = np.nan, np.inf, -np.inf
    results = []
    for compiled, device in (
        (False, device_called("cpu")),
        (True, device_called("cpu")),
        (None, cuda),
    ):
        monkeypatch.setattr("minicaffe.backends.cpu.available", lambda yes=compiled: yes)
        results.append([device.to_host(array) for array in max_pool(device, x, window, out)])
    for there in results[1:]:
        np.testing.assert_array_equal(there[0], results[0][0])
        np.testing.assert_array_equal(there[1], results[0][1])
