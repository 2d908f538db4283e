"""Stochastic pooling against loops: what is drawn, how often, what is expected, and the gradients."""

import math

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import blank, cases, close, dtypes, put, same, seeds, windows
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops import pool as stochastic

pytestmark = pytest.mark.usefixtures("threads")


@st.composite
def axis(draw):
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    return draw(st.integers(kernel, kernel + 5)), kernel, stride, 0


unpadded = windows(axis(), axis())
CONSTANT = float(np.finfo(np.float32).tiny)


def window_of(x, window, o):
    """The pixels of a window by the number of the kernel element that sees them."""
    (kh, kw), (sh, sw) = window.kernel, window.stride
    top, left = o[2] * sh, o[3] * sw
    plane = x[o[0], o[1]]
    return {
        i * kw + j: (top + i, left + j)
        for i in range(kh)
        for j in range(kw)
        if top + i < plane.shape[0] and left + j < plane.shape[1]
    }


def drawn(x, window, noise):
    """y and which, window by window, in the type of x."""
    y, which = np.zeros(noise.shape, x.dtype), np.full(noise.shape, -1)
    for o in np.ndindex(*noise.shape):
        seen = window_of(x, window, o)
        wanted = x.dtype.type(0)
        for at in seen.values():
            wanted += x[o[0], o[1]][at]
        wanted, so_far = wanted * x.dtype.type(noise[o]), x.dtype.type(0)
        for number, at in seen.items():
            which[o], y[o] = number, x[o[0], o[1]][at]
            so_far += y[o]
            if so_far >= wanted:
                break
    return y, which


def image(seed, shape, dtype, least=0):
    """Few values, zeros among them, as behind a ReLU; below 0 too if asked for."""
    return np.random.default_rng(seed).integers(least, 5, shape).astype(dtype)


def draw(device, x, window, noise):
    y, which = blank(device, noise.shape, x.dtype), blank(device, noise.shape, np.int32)
    work = [blank(device, noise.shape, t) for t in (x.dtype, x.dtype, bool, bool)]
    assert stochastic.draw_pool(put(device, x), window, put(device, noise), y, which, work) is y
    return y, which


@cases(60)
@given(unpadded, st.integers(0, 3), st.sampled_from([0, -4]), dtypes, seeds)
def test_draws_against_loops(device, drawn_window, n, least, dtype, seed):
    size, window = drawn_window
    x = image(seed, (n, 2, *size), dtype, least)
    noise = np.random.default_rng(seed).random((n, 2, *ref.pool_sizes(size, window)), np.float32)
    y, which = draw(device, x, window, noise)
    wanted = drawn(x, window, noise)
    same(device, y, wanted[0])
    same(device, which, wanted[1])


@cases(60)
@given(unpadded, st.integers(0, 3), dtypes, seeds)
def test_expected_against_loops(device, drawn_window, n, dtype, seed):
    size, window = drawn_window
    x = image(seed, (n, 2, *size), dtype)
    shape = (n, 2, *ref.pool_sizes(size, window))
    dy = image(seed + 1, shape, dtype, -4)
    y, total, dx = np.zeros(shape), np.zeros(shape), np.zeros(x.shape)
    for o in np.ndindex(*shape):
        seen = window_of(x, window, o)
        pixels = [float(x[o[0], o[1]][at]) for at in seen.values()]
        total[o] = CONSTANT + math.fsum(pixels)
        y[o] = math.fsum(p * p for p in pixels) / total[o]
        for at in seen.values():
            slope = (2 * float(x[o[0], o[1]][at]) - y[o]) / total[o]
            dx[o[0], o[1]][at] += dy[o] * slope if total[o] > 0.5 else 0
    there, out, sums = put(device, x), blank(device, shape, dtype), blank(device, shape, dtype)
    assert stochastic.expected_pool(there, window, out, sums) is out
    close(device, out, y)
    close(device, sums, total)
    share, grad = blank(device, shape, dtype), blank(device, x.shape, dtype)
    given = put(device, dy), there, out, sums, window, grad, share
    assert stochastic.expected_pool_gradient(*given) is grad
    close(device, grad, dx)
