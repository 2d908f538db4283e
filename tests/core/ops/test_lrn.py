"""Local response normalisation against loops in float64, and its gradient against differences."""

import pytest
from core.ops import norm_references as ref
from core.ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops.lrn import Response, lrn, lrn_gradient

pytestmark = pytest.mark.usefixtures("threads")
channels = st.integers(1, 6) | st.just(18)  # more than a thread of CUDA walks along
shapes = st.tuples(st.integers(1, 3), channels, st.integers(1, 4), st.integers(1, 4))
sizes = st.sampled_from([1, 3, 5, 7, 99])


@cases(60)
@given(
    shapes,
    st.booleans(),
    sizes,
    st.sampled_from([0.1, 3.0]),
    st.sampled_from([0.75, 0.5, 1.3]),
    st.sampled_from([1.0, 2.0]),
    dtypes,
    seeds,
)
def test_forward_and_back_against_loops(device, shape, within, size, alpha, beta, k, dtype, seed):
    x, dy = numbers(seed, shape, shape, dtype=dtype)
    n, c, h, w = shape
    if within:
        response = Response((n * c, h, w), size // 2, size // 2, 1.0, alpha / size**2, beta)

        def reference(x):
            return ref.lrn_within(x, size, alpha, beta)
    else:
        response = Response((n, c, h * w), size // 2, 0, k, alpha / size, beta)

        def reference(x):
            return ref.lrn_across(x, size, alpha, beta, k)

    s, y = reference(x)
    x_there, dy_there = put(device, x), put(device, dy)
    scale, out, work = (blank(device, size, dtype) for size in (shape, shape, 2 * x.size))
    close(device, lrn(x_there, response, scale, out, work), y)
    close(device, scale, s)
    dx = lrn_gradient(x_there, dy_there, response, scale, blank(device, shape, dtype), work)
    loose = {"f": 1e-5, "d": 1e-8}  # of differences in float64
    close(device, dx, ref.slopes(lambda x: reference(x)[1], x, dy), loose)
    same(device, x_there, x)
    same(device, dy_there, dy)
