"""A number for each channel, entry by entry; and rows of a table by their indices."""

import numpy as np
import pytest
from core.ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops import channels, take
from minicaffe.errors import DataError

pytestmark = pytest.mark.usefixtures("threads")
shapes = st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 7))


def places(shape):
    return [(i, k, j) for i in range(shape[0]) for k in range(shape[1]) for j in range(shape[2])]


def work_for(device, shape, dtype):
    return blank(device, channels.workspace(device.xp, shape, below=True), dtype)


@cases(60)
@given(shapes, st.sampled_from(["a", "ab", "b", "az"]), st.booleans(), dtypes, seeds)
def test_scale_against_the_definition(device, shape, given, in_place, dtype, seed):
    x, a, b, z = numbers(seed, shape, shape[1], shape[1], shape, dtype=dtype)
    expected = np.empty(shape)
    for i, k, j in places(shape):
        expected[i, k, j] = float(x[i, k, j]) * (float(a[k]) if "a" in given else 1)
        expected[i, k, j] += float(b[k]) if "b" in given else float(z[i, k, j]) * ("z" in given)
    x_there = put(device, x)
    terms = put(device, a) if "a" in given else None, None
    if given != "a":
        terms = terms[0], put(device, b if "b" in given else z)
    out = x_there if in_place else blank(device, shape, dtype)
    channels.scale(x_there, *terms, out)
    close(device, out, expected)


@cases(40)
@given(shapes, dtypes, seeds)
def test_prelu_against_the_definition(device, shape, dtype, seed):
    x, dy, a = numbers(seed, shape, shape, shape[1], dtype=dtype)
    x[np.random.default_rng(seed).random(shape) < 0.2] = 0
    y, dx, da = np.empty(shape), np.empty(shape), np.ones(shape[1])
    for at in places(shape):
        low = x[at] <= 0
        slope = float(a[at[1]]) if low else 1.0
        y[at], dx[at] = x[at] * slope, dy[at] * slope
        da[at[1]] += float(dy[at]) * float(x[at]) * low
    there = [put(device, array) for array in (x, dy, a)]
    work = work_for(device, shape, dtype)
    close(device, channels.prelu(there[0], there[2], blank(device, shape, dtype), work), y)
    out = blank(device, shape, dtype)
    close(device, channels.prelu_gradient(there[1], there[0], there[2], out, work), dx)
    sums = put(device, np.ones(shape[1]), dtype)
    close(device, channels.add_products(there[1], there[0], sums, work, below=True), da)
    for array, before in zip(there, (x, dy, a), strict=True):
        same(device, array, before)


@cases(40)
@given(shapes, dtypes, seeds)
def test_sums_against_the_definition(device, shape, dtype, seed):
    x, dy = numbers(seed, shape, shape, dtype=dtype)
    products, sums = np.full(shape[1], 2.0), np.full(shape[1], 2.0)
    for at in places(shape):
        products[at[1]] += float(dy[at]) * float(x[at])
        sums[at[1]] += float(dy[at])
    dy, work = put(device, dy), work_for(device, shape, dtype)
    there = put(device, np.full(shape[1], 2.0), dtype)
    close(device, channels.add_products(dy, put(device, x), there, work), products)
    there = put(device, np.full(shape[1], 2.0), dtype)
    close(device, channels.add_sums(dy, there, work), sums)


def test_a_channel_without_a_number_is_seen(device):
    x = put(device, np.array([[[np.nan, -1.0]]]))
    work = work_for(device, (1, 1, 2), float)
    y = device.to_host(channels.prelu(x, put(device, [0.5]), blank(device, (1, 1, 2), float), work))
    np.testing.assert_array_equal(y, [[[np.nan, -0.5]]])
    ones, sums = put(device, np.ones((1, 1, 2))), put(device, [0.0])
    assert np.isnan(device.to_host(channels.add_products(ones, x, sums, work, below=True))).all()


@cases(60)
@given(st.integers(0, 9), st.integers(1, 5), st.integers(1, 4), dtypes, seeds)
def test_embed_against_the_definition(device, m, count, f, dtype, seed):
    weight, dy = numbers(seed, (count, f), (m, f), dtype=dtype)
    indices = np.random.default_rng(seed).integers(0, count, m)
    y, dweight = np.empty((m, f)), np.ones((count, f))
    for i, index in enumerate(indices):
        y[i] = weight[index]
        dweight[index] += dy[i]
    there, rows = put(device, indices, dtype), blank(device, m, np.int64)
    out = blank(device, (m, f), dtype)
    picked = take.embed(there, put(device, weight), out, rows, np.zeros(1, np.int32))
    same(device, picked, y.astype(dtype))
    sums = put(device, np.ones((count, f)), dtype)
    close(device, take.add_gradient(put(device, dy), there, rows, sums), dweight)
    nothing = put(device, np.full((count, f), np.nan), dtype)
    take.add_gradient(put(device, dy), there, rows, nothing, empty=True)
    close(device, nothing, dweight - 1)


def test_repeated_indices_are_added_in_one_order(device):
    """1e8 swallows a 1 that comes after it; two that came before it are there."""
    dy = put(device, [[1.0], [3.0], [1.0], [1e8], [1.0], [-1e8]], np.float32)
    indices, rows = put(device, [1, 0, 1, 1, 1, 1], np.float32), put(device, [1, 0, 1, 1, 1, 1])
    expected = np.float32(0)
    for value in (1, 1, 1e8, 1, -1e8):
        expected = np.float32(expected + np.float32(value))
    sums = put(device, np.zeros((2, 1)), np.float32)
    same(device, take.add_gradient(dy, indices, rows, sums), [[3.0], [expected]])


@pytest.mark.parametrize("bad", [-1.0, 3.0, np.nan, np.inf, 1e30])
def test_an_index_that_is_no_row(device, bad):
    weight, indices = put(device, np.ones((3, 2))), put(device, [0.0, bad, 2.0])
    out, rows = blank(device, (3, 2), float), blank(device, 3, np.int64)
    if not device.is_cuda:
        with pytest.raises(DataError, match=r"index .* is not one of the 3 rows 0\.\.2"):
            take.embed(indices, weight, out, rows, np.zeros(1, np.int32))
        return
    y = device.to_host(take.embed(indices, weight, out, rows, np.zeros(1, np.int32)))
    np.testing.assert_array_equal(y, [[1, 1], [np.nan, np.nan], [1, 1]])
    sums = put(device, np.zeros((3, 2)))
    take.add_gradient(put(device, np.ones((3, 2))), indices, rows, sums)
    same(device, sums, [[1, 1], [0, 0], [1, 1]])
