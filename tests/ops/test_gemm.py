"""gemm: every lie of its operands, adding and overwriting, with and without scratch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import references as ref
from ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds

from minicaffe.ops.gemm import gemm

sizes = st.integers(1, 6)


@cases(480)
@given(
    sizes, sizes, sizes, st.booleans(), st.booleans(), st.booleans(), st.booleans(), dtypes, seeds
)
def test_against_loops(device, m, k, n, a_turned, b_turned, accumulate, scratch, dtype, seed):
    a, b, start = numbers(seed, (m, k), (k, n), (m, n), dtype=dtype)
    a_there = put(device, a.T.copy()).T if a_turned else put(device, a)
    b_there = put(device, b.T.copy()).T if b_turned else put(device, b)
    out = put(device, start) if accumulate else blank(device, (m, n), dtype)
    lent = blank(device, m * n + 3, dtype) if scratch else None
    result = gemm(a_there, b_there, out, accumulate, lent)
    assert result is out
    close(device, out, ref.matmul(a, b) + (start if accumulate else 0))
    same(device, a_there, a)
    same(device, b_there, b)
    if scratch:
        assert np.isnan(device.to_host(lent)[m * n :]).all()


def test_operands_that_are_parts_of_larger_arrays(device):
    a, b = numbers(1, (3, 4, 5), (3, 5, 2), dtype=np.float64)
    a_there, b_there = put(device, a), put(device, b)
    out = blank(device, (3, 4, 2), np.float64)
    for i in range(3):
        gemm(a_there[i], b_there[i], out[i])
        close(device, out[i], ref.matmul(a[i], b[i]))
    turned = blank(device, (3, 5, 5), np.float64)
    gemm(a_there[2].T, a_there[1], turned[0])
    close(device, turned[0], ref.matmul(a[2].T, a[1]))
    assert np.isnan(device.to_host(turned)[1:]).all()


def test_adding_twice_adds_twice(device):
    a, b, start = numbers(2, (2, 3), (3, 2), (2, 2), dtype=np.float64)
    a_there, b_there, out = put(device, a), put(device, b), put(device, start)
    for _ in range(2):
        gemm(a_there, b_there, out, accumulate=True, scratch=blank(device, 4, np.float64))
    close(device, out, start + 2 * ref.matmul(a, b))


@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_cublas_reads_the_operands_as_they_lie(cuda, a_turned, accumulate):
    """No copy of an operand is made: invariant 3."""
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts allocations")
    a, b = numbers(1, (4, 3), (3, 5), dtype=np.float32)
    a_there = put(cuda, a.T.copy()).T if a_turned else put(cuda, a)
    b_there, out, scratch = (
        put(cuda, b),
        put(cuda, np.ones((4, 5)), np.float32),
        put(cuda, np.ones(20)),
    )
    before = cuda.xp.allocations, cuda.xp.synchronizations
    gemm(a_there, b_there, out, accumulate, scratch)
    assert (cuda.xp.allocations, cuda.xp.synchronizations) == before
    close(cuda, out, ref.matmul(a, b) + accumulate)
