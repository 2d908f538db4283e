"""Rows by their numbers, largest numbers, unpooling and interpolation against loops in float64."""

import itertools

import numpy as np
import pytest
from core.ops.cases import blank, cases, close, dtypes, need_loops, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops import argmax, interp, pool, sums
from minicaffe.core.ops import take as rows
from minicaffe.errors import DataError

pytestmark = pytest.mark.usefixtures("threads")
small = st.integers(1, 6)


@cases(60)
@given(st.tuples(small, st.integers(0, 7), st.integers(0, 5)), dtypes, seeds)
def test_rows_are_taken_and_put_back(device, sizes, dtype, seed):
    n, m, width = sizes
    x, dy = numbers(seed, (n, width), (m, width), dtype=dtype)
    index = np.random.default_rng(seed).integers(0, n, m)
    place = blank(device, m, np.int32)
    same(device, rows.places(put(device, index, dtype), n, place, np.zeros(1, np.int32)), index)
    y, dx, there = blank(device, dy.shape, dtype), blank(device, x.shape, dtype), put(device, x)
    assert rows.take(there, place, y) is y
    assert rows.put_back(put(device, dy), place, dx) is dx
    same(device, y, np.array([x[k] for k in index]).reshape(m, width))
    wanted = np.zeros(x.shape)
    for i, k in enumerate(index):
        wanted[k] += dy[i]
    close(device, dx, wanted)
    same(device, there, x)


def test_a_row_of_no_number_is_put_nowhere(device):
    place = put(device, np.array([2, -1, 0, 2], np.int32))
    dx = rows.put_back(
        put(device, [[1.0], [2.0], [3.0], [4.0]]), place, blank(device, (3, 1), float)
    )
    same(device, dx, [[3], [0], [5]])


@pytest.mark.parametrize("odd", [-1.0, 3.0, np.nan, -np.inf, 1e30])
def test_a_number_that_is_no_row(cuda, odd):
    """On the CPU it is refused; on CUDA its row is NaN, and the check that follows tells."""
    index = np.array([2, odd, -0.5], np.float32)  # -0.5 is 0, as where Caffe cuts off digits
    with pytest.raises(DataError, match=r"^index .* of entry 1 is not one of the 3 entries 0..2$"):
        rows.places(index, 3, np.empty(3, np.int32), refused := np.zeros(1, np.int32))
    assert not refused[0]
    place = rows.places(put(cuda, index), 3, blank(cuda, 3, np.int32), refused)
    same(cuda, place, [2, -1, 0])
    y = rows.take(put(cuda, [[1.0], [2.0], [3.0]]), place, blank(cuda, (3, 1), float))
    same(cuda, y, [[3], [np.nan], [1]])
    dx = rows.put_back(put(cuda, [[1.0], [2.0], [3.0]]), place, blank(cuda, (3, 1), float))
    same(cuda, dx, [[3], [0], [1]])
    with pytest.raises(DataError, match=r"^index .* of entry 1 is not one of the 3 entries"):
        rows.check(cuda.to_host(place), 3, index)


@cases(40)
@given(st.tuples(st.integers(0, 5), small, st.integers(0, 5)), dtypes, seeds)
def test_copies_are_summed(device, shape, dtype, seed):
    (x,) = numbers(seed, shape, dtype=dtype)
    out = blank(device, (shape[0], shape[2]), dtype)
    assert rows.fold(put(device, x), out) is out
    close(device, out, x.astype(np.float64).sum(axis=1))


OF = {"values": lambda x: x, "squares": np.square, "magnitudes": np.abs}
widths = st.one_of(st.integers(0, 9), st.sampled_from([255, 256, 5000, 70_000]))


@cases(60)
@given(st.integers(0, 70), widths, st.sampled_from(sorted(OF)), st.integers(0, 99), dtypes, seeds)
def test_sums_of_rows(device, m, width, of, lent, dtype, seed):
    m = min(m, 200_000 // (width + 1))
    (x,) = numbers(seed, (m, width), dtype=dtype)
    out, there = blank(device, m, dtype), put(device, x)
    lent = lent if device.is_cuda else x.size
    assert sums.rows(there, out, blank(device, lent, dtype), of, -0.5) is out
    close(device, out, -0.5 * OF[of](x.astype(np.float64)).sum(axis=1))
    same(device, there, x)


def largest(x, k):
    """Sorted as pairs (number, place); NaN is nowhere."""
    n, _, s = x.shape
    place, number = np.full((n, k, s), -1), np.full((n, k, s), np.nan)
    for i, j in itertools.product(range(n), range(s)):
        pairs = [(v, at) for at, v in enumerate(x[i, :, j].tolist()) if v == v]
        for q, (value, at) in enumerate(sorted(pairs, reverse=True)[:k]):
            place[i, q, j], number[i, q, j] = at, value
    return place, number


@pytest.mark.parametrize("compiled", [False, True])
@cases(40)
@given(st.tuples(st.integers(0, 3), small, st.integers(1, 3)), st.data(), dtypes, seeds)
def test_the_largest_against_a_sort(device, monkeypatch, compiled, shape, data, dtype, seed):
    """Few values, so that most are equal to another; infinities and NaN among them."""
    if compiled:
        if device.is_cuda:
            return
        need_loops()
    monkeypatch.setattr("minicaffe.backends.cpu.available", lambda: compiled)
    k = data.draw(st.integers(1, shape[1]))
    values = np.array([-np.inf, -1, 0, 2, 2, np.inf, np.nan], dtype)
    x = values[np.random.default_rng(seed).integers(0, 7, shape)]
    place, number = blank(device, (shape[0], k, shape[2]), np.int32), None
    number = blank(device, (shape[0], k, shape[2]), dtype)
    argmax.largest(put(device, x), place, number, blank(device, (4, shape[0], shape[2]), bool))
    wanted = largest(x, k)
    same(device, place, wanted[0])
    same(device, number, wanted[1])


@cases(60)
@given(st.tuples(small, small, small, small), st.integers(0, 4), dtypes, seeds)
def test_unpooling_against_loops(device, sizes, planes, dtype, seed):
    """Some pixels go nowhere, some to where another goes."""
    h, w, oh, ow = sizes
    x, dy = numbers(seed, (planes, 1, h, w), (planes, 1, oh, ow), dtype=dtype)
    mask = np.random.default_rng(seed).integers(-1, oh * ow, x.shape)
    y, dx = np.zeros(dy.shape), np.zeros(x.shape)
    for p, i, j in itertools.product(range(planes), range(h), range(w)):
        if (at := mask[p, 0, i, j]) >= 0:
            y[p, 0, at // ow, at % ow] = x[p, 0, i, j]
            dx[p, 0, i, j] = dy[p, 0, at // ow, at % ow]
    into = blank(device, x.shape, np.int64), np.zeros(1, np.int32)
    place = pool.places(put(device, mask, dtype), (oh, ow), *into)
    same(device, place, mask)
    winner = blank(device, dy.shape, np.int32)
    same(device, pool.unpool(put(device, x), place, blank(device, dy.shape, dtype), winner), y)
    same(device, pool.unpool_gradient(put(device, dy), place, blank(device, x.shape, dtype)), dx)


@pytest.mark.parametrize("odd", [4.0, -2.0, 1e30, np.nan])
def test_a_place_outside_the_image(cuda, odd):
    """Caffe looks for those past the end only, and then ends."""
    mask, shape = np.array([1, odd, 0, 2], np.float32).reshape(1, 2, 1, 2), (1, 2, 2, 2)
    with pytest.raises(DataError, match=r"^place .* of the mask is not in the image of 2 x 2$"):
        pool.places(mask, (2, 2), np.empty(mask.shape, np.int64), refused := np.zeros(1, np.int32))
    assert not refused[0]
    place = pool.places(put(cuda, mask), (2, 2), blank(cuda, mask.shape, np.int64), refused)
    x = put(cuda, np.arange(1.0, 5).reshape(mask.shape))
    y = pool.unpool(x, place, blank(cuda, shape, float), blank(cuda, shape, np.int32))
    assert np.isnan(cuda.to_host(y)[0, 0, 0, 0])
    same(cuda, y[0, 1], [[3, 0], [4, 0]])
    with pytest.raises(DataError, match=r"^place .* of the mask is not in the image of 2 x 2$"):
        pool.check_mask(mask, (2, 2))


def weights(size, kept, count, start):
    """Of each output the weight of each pixel: 1 - distance, where that is positive."""
    step = (kept - 1) / (count - 1) if count > 1 else 0
    spots = start + step * np.arange(count)
    return np.maximum(0, 1 - np.abs(spots.reshape(-1, 1) - np.arange(size)))


@st.composite
def stretched(draw):
    size = draw(st.integers(1, 7))
    kept = draw(st.integers(1, size))
    return size, kept, draw(st.integers(1, 12)), draw(st.integers(0, size - kept))


@cases(80)
@given(stretched(), stretched(), st.integers(0, 3), dtypes, seeds)
def test_interpolation_against_products(device, rows_of, columns_of, planes, dtype, seed):
    down, right = weights(*rows_of), weights(*columns_of)
    axes = [interp.Axis.of(device.xp, *sizes, dtype) for sizes in (rows_of, columns_of)]
    x_shape = (planes, 2, rows_of[0], columns_of[0])
    y_shape = (planes, 2, rows_of[2], columns_of[2])
    x, dy = numbers(seed, x_shape, y_shape, dtype=dtype)
    room = planes * 2 * y_shape[2] * (x_shape[3] + max(x_shape[3], y_shape[3]))
    work = blank(device, room, dtype)
    y, dx = blank(device, y_shape, dtype), blank(device, x_shape, dtype)
    assert interp.interp(put(device, x), *axes, y, work) is y
    assert interp.interp_gradient(put(device, dy), *axes, dx, work) is dx
    tolerances = {"f": 3e-6, "d": 1e-13}
    close(device, y, down @ x.astype(float) @ right.T, tolerances)
    close(device, dx, down.T @ dy.astype(float) @ right, tolerances)


def test_the_corners_stay_what_they_are():
    x = np.random.default_rng(0).normal(size=(1, 1, 4, 3))
    axes = [interp.Axis.of(np, n, n, 3 * n, 0, float) for n in (4, 3)]
    y = interp.interp(x, *axes, np.empty((1, 1, 12, 9)), np.empty(500))
    np.testing.assert_array_equal(y[..., ::11, ::8], x[..., ::3, ::2])
