"""Sums of all entries, of columns and of rows against loops in float64; how they are shared among blocks."""

import math

import numpy as np
import pytest
from core.ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops import sums

SIZES = st.one_of(st.integers(0, 40), st.sampled_from([255, 256, 257, 4095, 4096, 9000, 70_000]))


@cases(60)
@given(SIZES, st.integers(0, 600), st.booleans(), st.booleans(), dtypes, seeds)
def test_total_against_loops(device, size, lent, squares, add, dtype, seed):
    x, (start,) = numbers(seed, (size,), (1,), dtype=dtype)
    there, out = put(device, x), put(device, start).reshape(())
    given = {"scale": -0.5, "squares": squares, "add": add}
    assert sums.total(there, out, blank(device, lent, dtype), **given) is out
    exact = math.fsum(float(value) ** (2 if squares else 1) for value in x)
    close(device, out, -0.5 * exact + (float(start) if add else 0))
    same(device, there, x)


shapes = st.tuples(st.integers(0, 70), st.integers(0, 40), st.integers(0, 70))


@cases(60)
@given(shapes, st.integers(0, 3000), dtypes, seeds)
def test_places_against_loops(device, shape, lent, dtype, seed):
    x, start = numbers(seed, shape, shape[1:2], dtype=dtype)
    there, out = put(device, x), put(device, start)
    assert sums.add_places(there, out, blank(device, lent, dtype)) is out
    close(device, out, start + x.astype(np.float64).sum(axis=(0, 2)))
    same(device, there, x)


@pytest.mark.parametrize("columns", [16383, 16384, 40000, 600001])
def test_few_rows_of_many_columns(device, columns):
    """On CUDA a block then has more of them."""
    rows, start = numbers(1, (5, columns), (columns,), dtype=np.float32)
    out = put(device, start)
    sums.add_rows(put(device, rows), out)
    close(device, out, start + rows.astype(np.float64).sum(axis=0))


@cases(60)
@given(st.integers(0, 300), st.integers(0, 70), dtypes, seeds)
def test_rows_against_loops(device, count, size, dtype, seed):
    rows, start = numbers(seed, (count, size, 2), (size, 2), dtype=dtype)
    there, out = put(device, rows), put(device, start)
    assert sums.add_rows(there, out) is out
    close(device, out, start + rows.astype(np.float64).sum(axis=0))


@pytest.mark.parametrize("lent", [0, 99, 10_000])
def test_16_bits_are_summed_in_32(cuda, lent):
    """In 16 bits these sums would end at 2048, where 1 is less than a rounding; the work is filled no further."""
    x, work = put(cuda, np.ones((30, 3, 301)), np.float16), blank(cuda, lent, np.float16)
    same(cuda, sums.total(x, blank(cuda, (), np.float32), work), 30 * 3 * 301)
    same(cuda, sums.add_places(x, put(cuda, np.zeros(3), np.float16), work), [np.float16(9030)] * 3)
    rows = put(cuda, np.full((257, 2), 8.125), np.float32)
    same(cuda, sums.add_rows(rows, put(cuda, [0, 1], np.float16)), np.float16([2088.125, 2089.125]))


@pytest.fixture
def launches(cuda, monkeypatch):
    """The (blocks, entries that a thread adds) of launches that run nothing."""
    seen = []

    def record(name, grid, types, *args):
        _, entries, _, _, wide, *_ = args
        parts = grid[1] if len(grid) > 1 else 1
        seen.append((math.prod(grid), -(-entries // parts // (256 // wide))))

    monkeypatch.setattr("minicaffe.backends.cuda.ops.launch_blocks", record)
    return seen


@pytest.mark.parametrize(("count", "size"), [(256, 500), (64, 25_000), (16, 25_000), (8, 500)])
def test_the_sums_of_a_weights_gradient_are_shared_among_threads(cuda, launches, count, size):
    """As many parts as conv1 and conv2 of LeNet have: one launch, no long walk, no lonely block."""
    sums.add_rows(blank(cuda, (count, size), np.float32), blank(cuda, size, np.float32))
    ((blocks, each),) = launches
    assert each <= 16
    assert blocks >= 8


def test_a_large_sum_takes_two_launches_and_a_small_one_takes_one(cuda, launches):
    work, out = blank(cuda, sums.WORK, np.float32), blank(cuda, (), np.float32)
    sums.total(blank(cuda, 400_000, np.float32), out, work)
    sums.total(blank(cuda, 64, np.float32), out, work)
    sums.total(blank(cuda, 400_000, np.float32), out)  # without work, one after the other
    (first, second), small, lone = launches[:2], launches[2], launches[3]
    assert first[0] > 50 and first[1] <= 20 and second[0] == 1
    assert small == (1, 1) and lone[0] == 1 and len(launches) == 4
