"""Every way to lower a convolution, forward and backward, against seven nested loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import references as ref
from ops.cases import EDGES, blank, cases, close, convolutions, dtypes, numbers, put, same, seeds

from minicaffe.ops import conv
from minicaffe.ops.geometry import ConvGeometry, Window

edges = [pytest.param(g, id=f"{g.n}x{g.c}x{g.h}x{g.w}-{g.window.kernel}-{g.group}") for g in EDGES]
strategies = pytest.mark.parametrize("strategy", conv.STRATEGIES)


def check_forward(device, op, g, bias_term, dtype, seed):
    shape = (g.n, g.c, g.h, g.w)
    x, weight, bias = numbers(seed, shape, g.weight_shape, (g.f,), dtype=dtype)
    expected = ref.conv(x, weight, bias if bias_term else None, g.window, g.group)
    x_there, w_there, b_there = (put(device, array) for array in (x, weight, bias))
    out, work = blank(device, expected.shape, dtype), blank(device, op.workspace(g), dtype)
    op.forward(x_there, w_there, b_there if bias_term else None, g, out, work)
    close(device, out, expected)
    for there, host in ((x_there, x), (w_there, weight), (b_there, bias)):
        same(device, there, host)


def check_gradients(device, op, g, dtype, seed):
    shape, y_shape = (g.n, g.c, g.h, g.w), (g.n, g.f, *ref.conv_sizes((g.h, g.w), g.window))
    sizes = (shape, y_shape, g.weight_shape, g.weight_shape, (g.f,))
    x, dy, weight, dw, db = numbers(seed, *sizes, dtype=dtype)
    x_there, dy_there, w_there = put(device, x), put(device, dy), put(device, weight)

    def work():
        return blank(device, op.workspace(g), dtype)

    dx = op.input_gradient(dy_there, w_there, g, blank(device, shape, dtype), work())
    close(device, dx, ref.conv_input_gradient(dy, weight, shape, g.window, g.group))

    dw_there = put(device, dw)  # gradients of parameters are added to what is there
    op.weight_gradient(x_there, dy_there, g, dw_there, work())
    close(device, dw_there, dw + ref.conv_weight_gradient(dy, x, dw.shape, g.window, g.group))

    db_there = put(device, db)
    op.bias_gradient(dy_there, g, db_there, work())
    close(device, db_there, db + ref.conv_bias_gradient(dy))

    for there, host in ((x_there, x), (dy_there, dy), (w_there, weight)):
        same(device, there, host)


@strategies
@cases(160)
@given(convolutions(), st.booleans(), dtypes, seeds)
def test_forward_against_loops(device, strategy, g, bias_term, dtype, seed):
    check_forward(device, conv.STRATEGIES[strategy], g, bias_term, dtype, seed)


@strategies
@cases(160)
@given(convolutions(), dtypes, seeds)
def test_gradients_against_loops(device, strategy, g, dtype, seed):
    check_gradients(device, conv.STRATEGIES[strategy], g, dtype, seed)


@strategies
@pytest.mark.parametrize("g", edges)
def test_edges_against_loops(device, strategy, g):
    for dtype in (np.float32, np.float64):
        check_forward(device, conv.STRATEGIES[strategy], g, True, dtype, 1)
        check_gradients(device, conv.STRATEGIES[strategy], g, dtype, 2)


@strategies
def test_an_edge_detector(device, strategy):
    """A convolution known by heart: correlation, not turned, one step right minus one step left."""
    g = ConvGeometry(1, 1, 1, 5, 1, Window((1, 3), (1, 1), (0, 1)))
    x = put(device, np.array([1.0, 2.0, 4.0, 8.0, 16.0]).reshape(1, 1, 1, 5))
    weight = put(device, np.array([-1.0, 0.0, 1.0]).reshape(1, 1, 1, 3))
    op = conv.STRATEGIES[strategy]
    work, out = blank(device, op.workspace(g), float), blank(device, (1, 1, 1, 5), float)
    same(device, op.forward(x, weight, None, g, out, work), [[[[2, 3, 6, 12, -8]]]])


@strategies
def test_a_step_allocates_nothing_and_waits_for_nothing(cuda, strategy):
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts allocations")
    op, g = conv.STRATEGIES[strategy], EDGES[5]
    y_shape = (g.n, g.f, *ref.conv_sizes((g.h, g.w), g.window))
    sizes = ((g.n, g.c, g.h, g.w), g.weight_shape, (g.f,), y_shape, op.workspace(g))
    x, weight, bias, y, work = (put(cuda, array) for array in numbers(1, *sizes, dtype=np.float32))
    before = cuda.xp.allocations, cuda.xp.synchronizations
    op.forward(x, weight, bias, g, y, work)
    op.weight_gradient(x, y, g, weight, work)
    op.bias_gradient(y, g, bias, work)
    op.input_gradient(y, weight, g, x, work)
    assert (cuda.xp.allocations, cuda.xp.synchronizations) == before
