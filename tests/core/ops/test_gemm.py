"""gemm: every lie of its operands, stacks, adding and overwriting, with and without scratch."""

import itertools

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import as_strided, blank, cases, close, dtypes, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends import cpu as loops_room
from minicaffe.backends.device import device
from minicaffe.core.ops import gemm as gemm_room
from minicaffe.core.ops.gemm import gemm
from minicaffe.errors import ShapeError

sizes = st.integers(1, 6)
lies = st.sampled_from(["whole", "turned", "apart", "turned apart"])


def loops(a, b):
    """np.matmul for stacks that broadcast, matrix by matrix in float64."""
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (np.broadcast_to(x, (*stack, *x.shape[-2:])) for x in (a, b))
    out = np.zeros((*stack, a.shape[-2], b.shape[-1]))
    for index in np.ndindex(*stack):
        out[index] = ref.matmul(a[index], b[index])
    return out


def lie(device, array, how):
    """An array on the device, its matrices stored whole, by columns, or with room after each row."""
    turned, apart = "turned" in how, 3 * ("apart" in how)
    stored = array.swapaxes(-1, -2) if turned else array
    room = np.full((*stored.shape[:-1], stored.shape[-1] + apart), np.nan, array.dtype)
    room[..., : stored.shape[-1]] = stored
    there = put(device, room)[..., : stored.shape[-1]]
    return there.swapaxes(-1, -2) if turned else there


@cases(240)
@given(sizes, sizes, sizes, lies, lies, lies, st.booleans(), st.booleans(), dtypes, seeds)
def test_against_loops(device, m, k, n, lie_a, lie_b, lie_out, accumulate, scratch, dtype, seed):
    a, b, start = numbers(seed, (m, k), (k, n), (m, n), dtype=dtype)
    a_there, b_there = lie(device, a, lie_a), lie(device, b, lie_b)
    out = lie(device, start, lie_out)
    lent = blank(device, m * n + 3, dtype) if scratch else None
    assert gemm(a_there, b_there, out, accumulate, lent) is out
    close(device, out, ref.matmul(a, b) + (start if accumulate else 0))
    same(device, a_there, a)
    same(device, b_there, b)
    if scratch:
        assert np.isnan(device.to_host(lent)[m * n :]).all()


@cases(240)
@given(st.integers(1, 9), sizes, st.integers(1, 9), lies, lies, lies, st.booleans(), dtypes, seeds)
def test_in_parts_against_loops(m, k, n, lie_a, lie_b, lie_out, accumulate, dtype, seed):
    """By NumPy, of which each part is so small that BLAS copies nothing."""
    cpu = device("cpu")
    a, b, start = numbers(seed, (m, k), (k, n), (m, n), dtype=dtype)
    a_there, b_there, out = lie(cpu, a, lie_a), lie(cpu, b, lie_b), lie(cpu, start, lie_out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops_room, "available", lambda: False)
        patch.setattr(gemm_room, "blas_copies", lambda: False)
        patch.setattr(gemm_room, "SMALL", 12)
        patch.setattr(gemm_room, "STREWN", 4)
        gemm(a_there, b_there, out, accumulate)
    close(cpu, out, ref.matmul(a, b) + (start if accumulate else 0))


@pytest.mark.parametrize(
    ("shape", "turned", "count"),
    [
        ((500, 32, 800), False, 0),  # the parts of b would lie in short pieces: rows are cut
        ((500, 32, 400), False, 10),
        ((16, 800, 500), True, 10),
        ((16, 500, 800), False, 0),
        ((8, 500, 800), False, 4),
        ((8, 500, 997), False, 0),  # a prime: nothing goes into it
        ((64, 800, 500), True, 0),
        ((1, 4000, 4000), True, 0),
        ((16, 50, 60), True, 0),
    ],
)
def test_which_products_are_taken_in_parts(monkeypatch, shape, turned, count):
    monkeypatch.setattr(gemm_room, "blas_copies", lambda: False)
    m, k, n = shape
    a, b = np.ones((m, k), np.float32), np.ones((n, k) if turned else (k, n), np.float32)
    out = np.zeros((m, n), np.float32)
    left, right, to = gemm_room._in_parts(a, b.T if turned else b, out)
    assert np.shares_memory(to, out) and np.shares_memory(right, b) and np.shares_memory(left, a)
    assert (len(to) if to.ndim == 3 else 0) == count
    if count:
        assert to.shape[1] * to.shape[2] * k <= gemm_room.SMALL


def test_what_blas_does_with_small_matrices_is_known(monkeypatch):
    """By the name of its loops; where it has none, it may copy."""
    known = gemm_room.blas_copies()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm_room.ctypes, "CDLL", lambda name: object())
        assert gemm_room.blas_copies.__wrapped__() is True
    assert gemm_room.blas_copies.__wrapped__() is known


@st.composite
def stacks(draw):
    """Shapes of up to three leading axes, some of which one operand lacks or has but one of."""
    axes = draw(st.lists(st.integers(1, 3), max_size=3))
    missing = draw(st.integers(0, len(axes)))
    kept = [draw(st.sampled_from([size, 1])) for size in axes[missing:]]
    return draw(st.permutations((tuple(axes), tuple(kept))))


@cases(240)
@given(stacks(), sizes, sizes, sizes, lies, lies, st.booleans(), dtypes, seeds)
def test_stacks_against_loops(device, stack, m, k, n, lie_a, lie_b, accumulate, dtype, seed):
    shape = np.broadcast_shapes(*stack)
    a, b, start = numbers(seed, (*stack[0], m, k), (*stack[1], k, n), (*shape, m, n), dtype=dtype)
    out = put(device, start)
    gemm(lie(device, a, lie_a), lie(device, b, lie_b), out, accumulate)
    close(device, out, loops(a, b) + (start if accumulate else 0))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("part", ["a", "b", "out"])
def test_stacks_in_any_order_of_their_axes(device, order, part):
    """A stack whose matrices do not lie one behind the other."""
    a, b = numbers(3, (2, 3, 4, 5, 6), (2, 3, 4, 6, 3), dtype=np.float64)
    out = blank(device, (2, 3, 4, 5, 3), np.float64)
    there = {"a": put(device, a), "b": put(device, b), "out": out}
    shape = there[part].shape
    back = np.argsort(order)
    laid = blank(device, [shape[axis] for axis in order] + list(shape[3:]), np.float64)
    view = laid.transpose(*back, 3, 4)
    view[...] = there[part]
    there[part] = view
    gemm(there["a"], there["b"], there["out"])
    close(device, there["out"], loops(a, b))


@pytest.mark.parametrize(
    "shapes", [((0, 2, 3), (3, 4)), ((2, 0, 3), (2, 3, 4)), ((2, 3, 0), (2, 0, 4))]
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_nothing_to_multiply(device, shapes, accumulate):
    """The sum of nothing is 0."""
    a, b = (blank(device, shape, np.float32) for shape in shapes)
    out = put(device, np.ones((shapes[0][0], shapes[0][1], 4)), np.float32)
    gemm(a, b, out, accumulate)
    same(device, out, np.full(out.shape, accumulate))


@pytest.mark.parametrize("out", [np.float16, np.float32])
@pytest.mark.parametrize("accumulate", [False, True])
def test_16_bits_are_summed_in_32(cuda, out, accumulate):
    """2048 + 1 + 1 + ... loses every 1 in 16 bits."""
    a, b = np.ones((2, 1, 101)), np.ones((101, 2))
    a[:, :, 0] = 2048
    result = put(cuda, np.ones((2, 1, 2)), out)
    gemm(put(cuda, a, np.float16), put(cuda, b, np.float16), result, accumulate)
    same(cuda, result, np.full((2, 1, 2), np.dtype(out).type(2148 + accumulate)))


def test_bfloat16(cuda):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    a, b = (np.round(x * 8) / 8 for x in numbers(5, (3, 4, 20), (20, 5), dtype=np.float32))
    for dtype in (bfloat16, np.float32):
        out = put(cuda, np.zeros((3, 4, 5)), dtype)
        gemm(put(cuda, a, bfloat16), put(cuda, b, bfloat16), out)
        same(cuda, out, loops(a, b).astype(dtype))


@pytest.mark.parametrize(
    "strides",
    [(2, 2), (3, 1), (0, 1), (-4, 1), (1, 3)],
    ids=lambda steps: "by".join(map(str, steps)),
)
def test_what_cublas_cannot_read_is_refused(cuda, strides):
    matrix = as_strided(put(cuda, np.ones(100))[50:], (4, 4), tuple(8 * step for step in strides))
    with pytest.raises(ShapeError, match=f"4 x 4 of strides {strides[0]} and {strides[1]}"):
        gemm(matrix, put(cuda, np.ones((4, 4))), blank(cuda, (4, 4), np.float64))


@pytest.mark.parametrize("how", ["whole", "turned", "apart"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_cublas_reads_the_operands_as_they_lie(cuda, how, accumulate):
    """No copy of an operand is made: invariant 3."""
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts allocations")
    a, b = numbers(1, (3, 4, 3), (2, 3, 3, 5), dtype=np.float32)
    a_there, b_there = lie(cuda, a, how), lie(cuda, b, how)
    out = put(cuda, np.ones((2, 3, 4, 5)), np.float32)
    before = cuda.xp.allocations, cuda.xp.synchronizations
    gemm(a_there, b_there, out, accumulate)
    assert (cuda.xp.allocations, cuda.xp.synchronizations) == before
    close(cuda, out, loops(a, b) + accumulate)


def test_a_product_that_is_no_number_says_nothing(device):
    a, b = put(device, [[np.inf, 1.0], [1.0, 1.0]]), put(device, [[0.0, 1.0], [1.0, 1.0]])
    same(device, gemm(a, b, blank(device, (2, 2), float)), [[np.nan, np.inf], [1.0, 2.0]])
