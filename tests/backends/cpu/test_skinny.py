"""Products of a few vectors with a large matrix: each lie of the matrix, tails of rows and columns, added or not."""

import numpy as np
import pytest
from core.ops.cases import cases, close, dtypes, numbers, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.cpu import loops, skinny
from minicaffe.backends.cpu.threads import MOST, at_most
from minicaffe.backends.device import device as device_called
from minicaffe.backends.replay import command_buffer as trace
from minicaffe.core.ops import gemm, linear

if loops("gemm_small_m", np.float32) is None:
    pytest.skip("needs Numba", allow_module_level=True)

few, large = st.integers(2, 64), st.integers(16, 150)
CPU = device_called("cpu")


@pytest.fixture(autouse=True, params=["wide registers", "narrow ones"])
def any_size(monkeypatch, request):
    """Small matrices count as large ones, in blocks as many as a large one has, on either kind of processor."""
    numbers = {"SMALL": 0, "LEAST": 16, "STREAMS": 3, "LONG": 64}
    numbers |= {"MANY": 7, "CLOSE": 1200, "NEAR": 900, "MEET": 2**40}
    wide = "wide" in request.param
    monkeypatch.setattr(loops("gemm_small_m", np.float32), "wide", lambda: wide)
    for name, number in numbers.items():
        monkeypatch.setattr(skinny, name, number)


def product(a, b, c, add, turned, threads=MOST):
    """c = a b by `skinny`, the operands lying as `turned` says."""
    (m, k), n = a.shape, b.shape[1]
    x, y = (np.ravel(one, "F" if by else "C") for one, by in zip((a, b), turned, strict=True))
    out = c.reshape(-1).copy()
    with at_most(threads):
        assert skinny.multiply(x, turned[0], y, turned[1], out, add, (m, n, k))
    return out.reshape(m, n)


@cases(60)
@given(few, large, large, st.booleans(), st.booleans(), st.booleans(), seeds, dtypes)
def test_few_rows(m, n, k, a_turned, b_turned, add, seed, dtype):
    """c = a b of few rows, b by rows or by columns."""
    a, b, c = numbers(seed, (m, k), (k, n), (m, n), dtype=dtype)
    turned = a_turned and not b_turned, b_turned
    expected = a.astype(np.float64) @ b.astype(np.float64) + (c if add else 0)
    found = product(a, b, c if add else np.full_like(c, np.nan), add, turned)
    close(CPU, found, expected)
    alone = product(a, b, c, add, turned, threads=1)
    np.testing.assert_array_equal(found, alone)  # to the bit, however many share it


@cases(60)
@given(st.integers(65, 150), large, few, st.booleans(), st.booleans(), seeds, dtypes)
def test_few_terms(m, n, k, a_turned, add, seed, dtype):
    """c = a b of few terms: the gradient of a weight."""
    a, b, c = numbers(seed, (m, k), (k, n), (m, n), dtype=dtype)
    expected = a.astype(np.float64) @ b.astype(np.float64) + (c if add else 0)
    found = product(a, b, c if add else np.full_like(c, np.nan), add, (a_turned, False))
    close(CPU, found, expected)
    np.testing.assert_array_equal(found, product(a, b, c, add, (a_turned, False), threads=1))


@cases(40)
@given(few, large, large, st.booleans(), st.booleans(), seeds, dtypes)
def test_bias(m, n, k, biased, add, seed, dtype):
    a, b, bias, c = numbers(seed, (m, k), (n, k), (n,), (m, n), dtype=dtype)
    out = c.reshape(-1).copy() if add else np.full(m * n, np.nan, dtype)
    given_ = a.reshape(-1), b.reshape(-1), bias if biased else bias[:0]
    assert skinny.dots(*given_, out, add, (m, n, k))
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    close(CPU, out.reshape(m, n), expected + (bias if biased else 0) + (c if add else 0))


@pytest.mark.parametrize(
    "sizes, b_turned",
    [
        ((1, 100, 100), False),
        ((65, 100, 100), False),
        ((65, 100, 1), False),
        ((8, 15, 100), False),
        ((8, 100, 15), True),
        ((100, 15, 8), False),
        ((100, 100, 8), True),
    ],
)
def test_what_is_none(sizes, b_turned):
    """One vector, many, a small matrix; few terms by columns."""
    m, n, k = sizes
    a, b, c = (np.ones(size, np.float32) for size in (m * k, k * n, m * n))
    assert not skinny.multiply(a, False, b, b_turned, c, False, sizes)


@pytest.mark.parametrize("row, met", [(256, True), (260, False)])
@pytest.mark.parametrize(
    "sizes, by_columns, few",
    [
        ((8, 0, 90), False, True),
        ((9, 0, 90), False, False),
        ((90, 0, 8), False, True),
        ((90, 0, 9), False, False),
        ((32, 90, 0), True, True),
        ((33, 90, 0), True, False),
    ],
)
def test_rows_that_meet_in_a_cache(monkeypatch, sizes, by_columns, few, row, met):
    """With narrow registers fewer vectors are few then."""
    monkeypatch.setattr(skinny, "MEET", 2**10)
    m, n, k = (size or row for size in sizes)
    a, b, c = (np.ones(size, np.float32) for size in (m * k, k * n, m * n))
    taken = skinny.multiply(a, False, b, by_columns, c, False, (m, n, k))
    assert taken == (few or not met or loops("gemm_small_m", np.float32).wide())


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_blocks(monkeypatch, dtype):
    """Of b: narrow vectors of all its rows, or as many rows of all its vectors, as a small cache holds."""
    fast, like = loops("gemm_small_m", dtype), np.empty(0, dtype)
    lanes = fast.lanes(dtype)
    tile = lanes * fast.FEW_COLUMNS
    numbers = {"STREAMS": 8, "LONG": 2**12, "MANY": 512, "CLOSE": 40 * 7 * lanes}
    numbers["NEAR"] = 3 * 40 * tile * like.itemsize
    for name, number in numbers.items():
        monkeypatch.setattr(skinny, name, number)
    few_rows, few_terms = (32, 100 * lanes, 900), (900, 100 * lanes, 40)
    assert [skinny._blocks(fast, *one, like) for one in ((few_rows, False), (few_terms, True))] == (
        [(512, 100), (512, 7)] if fast.wide() else [(120, 100), (40, 3 * fast.FEW_COLUMNS)]
    )
    assert skinny._blocks(fast, (8, 2**14, 900), False, like) == (8, 2**14 // lanes)


@pytest.mark.parametrize("by_columns", [True, False])
def test_inner_products_use_it(by_columns):
    """Forward, and both gradients, of a weight in either order."""
    x, weight, bias, dy = numbers(3, (8, 90), (70, 90), (70,), (8, 70), dtype=np.float32)
    w = weight.T if by_columns else np.ascontiguousarray(weight.T)
    y, dx, dw = np.empty((8, 70), "f4"), np.empty((8, 90), "f4"), np.zeros((70, 90), "f4")
    work = np.empty(linear.workspace(8, 90, 70), "f4")
    with trace.recording() as made:
        linear.linear(x, w, bias, y, work)
        linear.input_gradient(dy, w.T, dx, work)
        linear.weight_gradient(dy.T, x, dw, True, work)
    close(CPU, y, x.astype(np.float64) @ weight.T + bias)
    close(CPU, dx, dy.astype(np.float64) @ weight)
    close(CPU, dw, dy.T.astype(np.float64) @ x)
    fast = loops("gemm_small_m", np.float32)
    used = [row.loop for row in made.rows if row.loop in (fast.dots, fast.product)]
    ways = [fast.dots, fast.product] if by_columns else [fast.product, fast.dots]
    assert used == [*ways, fast.product]


def test_what_is_recorded_twice_is_the_same():
    """Of one that needs no bias, too: else it would never be replayed."""
    a, b, out = np.ones((8, 90), "f4"), np.ones((70, 90), "f4"), np.empty((8, 70), "f4")
    with trace.recording() as one:
        gemm.gemm(a, b.T, out)
    with trace.recording() as another:
        gemm.gemm(a, b.T, out)
    assert one.rows and one.rows == another.rows


def test_a_product_of_many_is_left_to_blas():
    a, b, out = np.ones((80, 90), "f4"), np.ones((90, 100), "f4"), np.empty((80, 100), "f4")
    with trace.recording() as made:
        gemm.gemm(a, b, out)
    assert [row.loop for row in made.rows] == [loops("product", np.float32).product]
