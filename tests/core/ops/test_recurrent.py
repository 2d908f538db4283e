"""A step of an LSTM and of a plain recurrent net, number by number; gradients by differences."""

import math

import numpy as np
import pytest
from core.ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.threads import at_most
from minicaffe.core.ops import recurrent as ops

sizes = st.integers(0, 4), st.integers(1, 5)
conts = st.sampled_from([0.0, 1.0, 0.25])
BY_DIFFERENCES = {"f": 1e-5, "d": 1e-8}


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def unit(x, r, cont, c_prev):
    """acts, c and h by the definition, in float64."""
    x, r, cont, c_prev = (np.asarray(array, np.float64) for array in (x, r, cont, c_prev))
    n, d = c_prev.shape
    acts, c, h = np.empty((n, 4 * d)), np.empty((n, d)), np.empty((n, d))
    for s in range(n):
        for j in range(d):
            i, f, o, g = (x[s, q * d + j] + cont[s] * r[s, q * d + j] for q in range(4))
            i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), math.tanh(g)
            acts[s, j::d] = i, f, o, g
            c[s, j] = cont[s] * f * c_prev[s, j] + i * g
            h[s, j] = o * math.tanh(c[s, j])
    return acts, c, h


def slopes(function, x, weight):
    """The gradient of sum(weight function(x)) by differences."""
    x, step = np.array(x, np.float64), 1e-6
    out = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        moved = []
        for sign in (1, -1):
            there = x.copy()
            there[place] += sign * step
            moved.append(sum((w * y).sum() for w, y in zip(weight, function(there), strict=True)))
        out[place] = (moved[0] - moved[1]) / (2 * step)
    return out


@cases(40)
@given(*sizes, conts, dtypes, seeds, st.booleans())
def test_a_step_of_an_lstm_against_the_definition(device, n, d, cont, dtype, seed, alone):
    x, r, c_prev = numbers(seed, (n, 4 * d), (n, 4 * d), (n, d), dtype=dtype)
    x[:, ::3] *= 300  # far out, where a careless sigmoid overflows
    go = np.full(n, cont, dtype)
    go[::2] = 1
    acts, c, h = unit(x, 0 * r if alone else r, go, c_prev)
    x_there = put(device, x)
    c_there = blank(device, (n, d), dtype)
    h_there = blank(device, (n, d), dtype)
    r_there, before = None if alone else put(device, r), put(device, c_prev)
    ops.lstm_unit(x_there, r_there, put(device, go), before, x_there, c_there, h_there)
    close(device, x_there, acts)
    close(device, c_there, c)
    close(device, h_there, h)
    same(device, before, c_prev)


@cases(20)
@given(*sizes, conts, conts, dtypes, seeds)
def test_its_gradient_against_differences(device, n, d, cont, after, dtype, seed):
    x, r, c_prev, dh, dr, dc = numbers(
        seed, (n, 4 * d), (n, 4 * d), (n, d), (n, d), (n, d), (n, d), dtype=dtype
    )
    go, then = np.full(n, cont, dtype), np.full(n, after, dtype)
    then[::2] = 1
    acts, c, _ = unit(x, r, go, c_prev)
    weight = dc.astype(np.float64), dh + then[:, None].astype(np.float64) * dr
    wanted_x = slopes(lambda moved: unit(moved, r, go, c_prev)[1:], x, weight)
    wanted_c = slopes(lambda moved: unit(x, r, go, moved)[1:], c_prev, weight)
    dc_there, dx = put(device, dc), blank(device, (n, 4 * d), dtype)
    given = [put(device, a.astype(dtype)) for a in (acts, c_prev, c, go, dh, dr, then)]
    ops.lstm_unit_gradient(*given, dc_there, dx)
    close(device, dx, wanted_x, BY_DIFFERENCES)
    close(device, dc_there, wanted_c, BY_DIFFERENCES)
    same(device, given[4], dh)


def all_steps(z, cont, first, c, weight):
    """acts, c and h of all steps, in float64."""
    acts, cells, heights = [], [np.asarray(c, np.float64)], [np.asarray(first, np.float64)]
    for x, go in zip(z, cont, strict=True):
        found = unit(x, heights[-1] @ weight.astype(np.float64).T, go, cells[-1])
        for steps, array in zip((acts, cells, heights), found, strict=True):
            steps.append(array)
    return map(np.array, (acts, cells, heights[1:]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("t", "n", "d"), [(16, 4, 3), (9, 11, 20), (13, 5, 40)])
def test_streams_through_all_steps(t, n, d, dtype):
    """Against the definition, and a gradient against its steps; with the same bits of any number of threads."""
    if loops("recurrent", dtype) is None:
        pytest.skip("no compiled loops")
    z, first, c, weight, dh = numbers(
        5, (t, n, 4 * d), (n, d), (n, d), (4 * d, d), (t, n, d), dtype=dtype
    )
    cont = (np.random.default_rng(6).random((t, n)) < 0.8).astype(dtype)
    cont[2, 0] = 0.25
    weight *= 0.2
    acts, cells, h = all_steps(z, cont, first, c, weight)
    dc, dr, dz = np.zeros((n, d)), np.zeros((n, d)), np.empty((t, n, 4 * d))
    after = cont[-1].astype(np.float64)
    for step in reversed(range(t)):
        back, go = dh[step] + after[:, None] * dr, cont[step].astype(np.float64)[:, None]
        i, f, o, g = np.split(acts[step], 4, axis=1)
        height = np.tanh(cells[step + 1])
        dc = dc + back * o * (1 - height**2)
        parts = dc * g * i * (1 - i), dc * go * cells[step] * f * (1 - f)
        dz[step] = np.hstack([*parts, back * height * o * (1 - o), dc * i * (1 - g**2)])
        dc, dr, after = dc * go * f, dz[step] @ weight, cont[step].astype(np.float64)
    results = []
    for threads in (1, 2, 3):
        with at_most(threads):
            got, states = z.copy(), np.concatenate([c[None], np.empty((t, n, d), dtype)])
            heights, work = np.empty((t, n, d), dtype), np.full(10**5, np.nan, dtype)
            assert ops.lstm(got, cont, first, weight, states, heights, work)
            down, slope = np.full((n, d), np.nan, dtype), np.empty_like(z)
            assert ops.lstm_gradient(got, states, cont, dh, weight, down, slope, work)
            results.append((got, states, heights, slope))
    for array, wanted in zip(results[0], (acts, cells, h, dz), strict=True):
        exact = {"f": 1e-5, "d": 1e-12}[array.dtype.char]
        np.testing.assert_allclose(array[-t:], wanted[-t:], rtol=exact, atol=exact)
    for more in results[1:]:
        assert all(np.array_equal(*pair) for pair in zip(results[0], more, strict=True))


@pytest.mark.parametrize("sizes", [(7, 9, 3, 10**6), (16, 4, 600, 10**7), (16, 8, 3, 9)])
def test_steps_one_by_one_where_panels_do_not_pay(sizes):
    """Few rows, much weight, little work."""
    t, n, d, work = sizes
    given = np.ones((t, n, 4 * d)), np.ones((t, n)), np.ones((n, d)), np.ones((4 * d, d))
    assert not ops.lstm(*given, np.ones((t + 1, n, d)), np.ones((t, n, d)), np.empty(work))
    assert (given[0] == 1).all()


@cases(20)
@given(*sizes, conts, dtypes, seeds, st.booleans())
def test_a_plain_step_and_its_gradient(device, n, d, cont, dtype, seed, alone):
    x, r, dh = numbers(seed, (n, d), (n, d), (n, d), dtype=dtype)
    go = np.full(n, cont, dtype)
    go[1::2] = 1

    def definition(moved):
        return [np.tanh(moved + (0 if alone else go[:, None].astype(np.float64) * r))]

    h, there = definition(x.astype(np.float64))[0], put(device, x)
    given = None if alone else put(device, r)
    close(device, ops.tanh_unit(there, given, put(device, go), blank(device, (n, d), dtype)), h)
    same(device, there, x)
    total = dh + (0 if alone else go[:, None].astype(np.float64) * r)
    given = None if alone else put(device, r)
    dx = blank(device, (n, d), dtype)
    ops.tanh_unit_gradient(
        put(device, h.astype(dtype)), put(device, dh), given, put(device, go), dx
    )
    close(device, dx, slopes(definition, x, [total]), BY_DIFFERENCES)
