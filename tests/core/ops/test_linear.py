"""linear: the inner product and its gradients, sizes of 1 among them, weights in either order, added or not."""

import dataclasses

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import blank, cases, close, dtypes, numbers, put, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.cpu import threads
from minicaffe.core.ops import linear
from minicaffe.core.ops.conv.autotune import DIRECTIONS

sizes = st.sampled_from([1, 2, 3, 7])


@cases(120)
@given(sizes, sizes, sizes, st.booleans(), st.booleans(), st.booleans(), dtypes, seeds, st.data())
def test_against_loops(device, m, k, f, turned, biased, empty, dtype, seed, data):
    plan = linear.plan(m, k, f, dtype, device, deterministic=True)
    if plan is not None:  # on CUDA each direction by either
        ways = {way: data.draw(st.sampled_from(["implicit", "batched"])) for way in DIRECTIONS}
        plan = dataclasses.replace(plan, names=ways)
    x, w, b, dy, dw, db = numbers(seed, (m, k), (f, k), (f,), (m, f), (f, k), (f,), dtype=dtype)
    weight = put(device, w).T if turned else put(device, np.ascontiguousarray(w.T))
    bias = put(device, b) if biased else None
    out, work = blank(device, (m, f), dtype), blank(device, linear.workspace(m, k, f), dtype)
    linear.linear(put(device, x), weight, bias, out, work, plan)
    close(device, out, ref.matmul(x, w.T) + (b if biased else 0))
    to, to_bias = put(device, dw), put(device, db)
    linear.weight_gradient(put(device, dy).T, put(device, x), to, empty, work, plan)
    close(device, to, ref.matmul(dy.T, x) + (0 if empty else dw))
    linear.bias_gradient(put(device, dy), to_bias, empty, work)
    close(device, to_bias, (0 if empty else db) + dy.astype(np.float64).sum(0))
    both = put(device, dw.T.copy()).T if turned else put(device, dw), put(device, db)
    given = [(array, fresh) for array, fresh in zip(both, (empty, not empty), strict=True)]
    there = put(device, x), put(device, dy)
    linear.gradients(*there, given[0], given[1] if biased else None, work, plan)
    close(device, both[0], ref.matmul(dy.T, x) + (0 if empty else dw))
    if biased:
        close(device, both[1], (db if empty else 0) + dy.astype(np.float64).sum(0))
    alone = put(device, db)
    linear.gradients(*there, None, (alone, True), work, plan)
    close(device, alone, dy.astype(np.float64).sum(0))
    dx = blank(device, (m, k), dtype)
    linear.input_gradient(put(device, dy), weight.T, dx, work, plan)
    close(device, dx, ref.matmul(dy, w))


@pytest.mark.parametrize(
    "m, k, f", [(1, 700, 300), (200, 300, 20), (3, 900, 400), (9, 900, 400), (300, 90, 70)]
)
@pytest.mark.parametrize("biased", [True, False])
def test_what_threads_share_is_the_same(m, k, f, biased):
    """Slices of the numbers, or of the vectors where those are more."""
    x, w, b = numbers(m, (m, k), (f, k), (f,), dtype=np.float32)
    bias = b if biased else None
    whole, shared = np.empty((2, m, f), np.float32)
    work = np.empty(linear.workspace(m, k, f), np.float32)
    linear.linear(x, w.T, bias, shared, work)
    with threads.at_most(1):
        linear.linear(x, w.T, bias, whole, work)
    np.testing.assert_allclose(shared, whole, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(shared, x @ w.T + b * biased, rtol=1e-5, atol=1e-4)


def test_rows_that_stand_apart_are_multiplied_as_they_lie(device):
    x, w, b = numbers(3, (5, 8), (4, 8), (4,), dtype=np.float32)
    out = blank(device, (5, 4), np.float32)
    work = blank(device, linear.workspace(5, 8, 4), np.float32)
    for columns in (slice(6), slice(2, 8)):
        part, weight = put(device, x)[:, columns], put(device, w)[:, columns]
        linear.linear(part, weight.T, put(device, b), out, work)
        close(device, out, ref.matmul(x[:, columns], w[:, columns].T) + b)
