"""Products by NumPy's own BLAS, called from compiled loops; and the ops where it is not found."""

import numpy as np
import pytest
from core.ops.cases import EDGES, blank, cases, close, dtypes, numbers, put, seeds
from core.ops.conv.test_conv import arrays
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.cpu.threads import share
from minicaffe.backends.device import device as device_called
from minicaffe.core.ops import conv

numba = pytest.importorskip("numba")
blas = pytest.importorskip("minicaffe.backends.cpu.blas")

CALLERS = [
    (name, g)
    for name in ("implicit", "winograd")
    for g in EDGES.values()
    if conv.ENGINES[name].refuses(g) is None
]
small = st.integers(1, 9)


@numba.njit
def run(address, sizes, a, b, add, c):
    blas.gemm(address, sizes, a, b, add, c)


@cases(60)
@given(small, small, small, st.tuples(*[st.integers(0, 3)] * 6), st.booleans(), seeds, dtypes)
def test_products_of_parts_of_flat_arrays(m, n, k, gaps, add, seed, dtype):
    """Wherever they start, however far apart their rows, transposed or not."""
    address = blas.address(dtype)
    if address is None:
        pytest.skip("BLAS is not found here")
    turned = bool(seed & 1), bool(seed & 2)
    shapes = [(k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n)]
    flat, views, given_ = [], [], []
    for i, (rows, columns) in enumerate(shapes):
        start, apart = gaps[i], columns + gaps[3 + i]
        (array,) = numbers(seed + i, (start + rows * apart,), dtype=dtype)
        flat.append(array)
        views.append(array[start:].reshape(rows, apart)[:, :columns])
        given_.append((array, start, apart))
    a, b = (view.T if t else view for view, t in zip(views, turned, strict=False))
    expected, before = a.astype(np.float64) @ b.astype(np.float64), flat[2].copy()
    if add:
        expected += views[2]
    run(address, (m, n, k), (*given_[0], turned[0]), (*given_[1], turned[1]), add, given_[2])
    close(device_called("cpu"), views[2], expected)
    views[2][...] = 0  # and nothing else has changed
    before[gaps[2] :].reshape(m, -1)[:, :n] = 0
    np.testing.assert_array_equal(flat[2], before)


def test_another_blas_is_left_alone(monkeypatch):
    monkeypatch.setattr(blas, "NAMES", ("mkl_{}gemm",))
    assert blas.address.__wrapped__(np.float32) is None


@pytest.mark.parametrize("name, g", CALLERS, ids=str)
def test_strategies_that_call_it_do_without(monkeypatch, threads, name, g):
    op, device = conv.ENGINES[name], device_called("cpu")
    x, weight, bias, dy, dw = (put(device, array) for array in arrays(g, np.float32, 1))
    found = []
    for there in (True, False):
        if not there:
            monkeypatch.setattr(blas, "address", lambda dtype: None)
        work = blank(device, share(x) * op.workspace(g, 5000), np.float32)
        outs = [blank(device, g.y_shape, np.float32), blank(device, g.x_shape, np.float32), dw + 0]
        op.forward(x, weight, bias, g, outs[0], work)
        op.input_gradient(dy, weight, g, outs[1], work)
        op.weight_gradient(x, dy, g, outs[2], work)
        found.append(outs)
    for one, other in zip(*found, strict=True):
        close(device, one, other.astype(np.float64), {"f": 2e-5})
