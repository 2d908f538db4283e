"""ReLU and dropout, entry by entry."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds

from minicaffe.ops import activation

pytestmark = pytest.mark.usefixtures("threads")
shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)
slopes = st.sampled_from([0.0, 0.01, 0.5, 1.0, 1.5, -0.5, -2.0])


def entry_by_entry(function, *arrays):
    flat = [
        function(*map(float, values)) for values in zip(*(a.ravel() for a in arrays), strict=True)
    ]
    return np.array(flat).reshape(arrays[0].shape)


def with_zeros(x, seed):
    x[np.random.default_rng(seed).random(x.shape) < 0.2] = 0
    return x


@cases(40)
@given(shapes, slopes, dtypes, seeds)
@example((7,), -2.0, np.float32, 1)
def test_relu_against_the_definition(device, shape, slope, dtype, seed):
    x = with_zeros(numbers(seed, shape, dtype=dtype)[0], seed)
    expected = entry_by_entry(lambda v: v if v > 0 else slope * v, x)
    x_there = put(device, x)
    close(device, activation.relu(device.xp, x_there, slope, blank(device, shape, dtype)), expected)
    same(device, x_there, x)


@cases(40)
@given(shapes, slopes, dtypes, seeds)
def test_relu_gradient_against_the_definition(device, shape, slope, dtype, seed):
    x, dy = numbers(seed, shape, shape, dtype=dtype)
    x = with_zeros(x, seed)
    expected = entry_by_entry(lambda d, v: d if v > 0 else slope * d, dy, x)
    x_there, dy_there = put(device, x), put(device, dy)
    out, positive = blank(device, shape, dtype), blank(device, shape, bool)
    close(
        device,
        activation.relu_gradient(device.xp, dy_there, x_there, slope, out, positive),
        expected,
    )
    same(device, x_there, x)
    same(device, dy_there, dy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_relu_in_place(device, dtype):
    x = put(device, [-2, -0.5, 0, 3], dtype)
    assert activation.relu(device.xp, x, 0.0, x) is x
    same(device, x, [0, 0, 0, 3])
    dy = put(device, [1, 2, 3, 4], dtype)
    activation.relu_gradient(device.xp, dy, x, 0.0, dy, blank(device, 4, bool))
    same(device, dy, [0, 0, 0, 4])


@pytest.mark.parametrize("slope", [0.0, 0.5, 2.0])
def test_relu_lets_nan_and_infinity_be_seen(device, slope):
    x = put(device, [np.nan, np.inf])
    same(device, activation.relu(device.xp, x, slope, blank(device, 2, float)), [np.nan, np.inf])


@cases(32)
@given(shapes, st.sampled_from([1.0, 2.0, 1 / 0.3]), st.booleans(), dtypes, seeds)
def test_dropout_against_the_definition(device, shape, scale, in_place, dtype, seed):
    x = numbers(seed, shape, dtype=dtype)[0]
    kept = np.random.default_rng(seed).random(shape) < 0.5
    x_there, kept_there = put(device, x), put(device, kept)
    out = x_there if in_place else blank(device, shape, dtype)
    assert activation.dropout(device.xp, x_there, kept_there, scale, out) is out
    close(device, out, entry_by_entry(lambda v, keep: v * scale if keep else 0.0, x, kept))
    same(device, kept_there, kept)
