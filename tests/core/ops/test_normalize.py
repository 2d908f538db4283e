"""Rows normalised, scaled and back, against loops in float64; running statistics; sums in parts."""

import itertools

import numpy as np
import pytest
from core.ops import norm_references as ref
from core.ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds
from core.ops.launch_rows import held_in_memory
from hypothesis import example, given
from hypothesis import strategies as st

from minicaffe.backends.cpu.ops import KINDS
from minicaffe.backends.cuda import moments as module
from minicaffe.core.ops import normalize as ops
from minicaffe.core.ops.rows import (
    Affine,
    Norm,
    Past,
    Rows,
    Statistics,
    recall,
    statistics,
    workspace,
)
from minicaffe.errors import ShapeError

shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))
kinds = st.sampled_from(KINDS)
LOOSE = {"f": 1e-4, "d": 1e-11}  # of sums that are multiplied by rates of up to some 30


def features_of(draw, size):
    """How features lie in a flat array: (outer, features, places), their product its size."""
    features = draw(st.sampled_from([f for f in range(1, size + 1) if size % f == 0]))
    places = draw(st.sampled_from([p for p in range(1, size + 1) if size // features % p == 0]))
    return Rows(1, size // features // places, features, places)


def close_but_for_terms(device, got, wanted, terms):
    """`close`, and as near as the rounding of terms of this size, which may cancel each other out, allows."""
    host = device.to_host(got)
    tolerance, rounding = LOOSE[host.dtype.char], 16 * np.finfo(host.dtype).eps * terms
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(host, wanted, rtol=tolerance, atol=tolerance * scale + rounding)


@pytest.mark.usefixtures("threads")
@cases(60)
@given(shapes, kinds, st.sampled_from([1e-3, 0.5]), st.data(), dtypes, seeds)
@example((1, 2, 5, 1), "deviation", 1e-3, None, np.float32, 255)  # a rate of some hundreds
@example((1, 3, 4, 4), "variance", 1e-3, None, np.float32, 1)  # rows in shared memory
def test_forward_and_back_against_loops(device, shape, kind, eps, data, dtype, seed):
    rows, norm = Rows(*shape), Norm(kind, eps)
    size = int(np.prod(shape))
    features = Rows(1, 1, size, 1) if data is None else features_of(data.draw, size)
    of = np.arange(size) // features.inner % features.kept
    x, dy = numbers(seed, (size,), (size,), dtype=dtype)
    scale, bias, dscale, dbias = numbers(seed + 1, *[(features.kept,)] * 4, dtype=dtype)
    found, plain, y = ref.forward(x, ref.rows_of(*shape), kind, eps, of, scale, bias)
    dx, more, shift = ref.backward(x, dy, ref.rows_of(*shape), kind, eps, of, scale)
    terms = np.abs(found[2]).max(initial=0) * np.abs(dy).max(initial=0)  # |scale| is below 1

    x_there, dy_there = put(device, x), put(device, dy)
    work = blank(device, workspace(device.xp, size, rows, features.kept), dtype)
    got = Statistics.empty(device.xp, rows, dtype)
    statistics(x_there, rows, norm, got, work)
    for mine, wanted in zip((got.mean, got.spread, got.rate), found, strict=True):
        close(device, mine, wanted, LOOSE)
    affine = Affine(features, put(device, scale), put(device, bias))
    out = blank(device, size, dtype)
    close(device, ops.normalise(x_there, rows, got, affine, out), y, LOOSE)
    close(device, ops.normalise(x_there, rows, got, None, out), plain, LOOSE)

    given, none = (x_there, dy_there, rows, norm, got), (None, None)
    for learnt, to in (((True, True), out), ((True, False), None), ((False, True), None)):
        sums = [
            put(device, a) if is_ else None for a, is_ in zip((dscale, dbias), learnt, strict=True)
        ]
        back = ops.gradients(*given, affine, sums, to, work)
        for mine, wanted in zip(sums, (dscale + more, dbias + shift), strict=True):
            if mine is not None:
                close(device, mine, wanted, LOOSE)
        if to is not None:
            close_but_for_terms(device, back, dx, terms)
    close_but_for_terms(device, ops.gradients(*given, affine, none, out, work), dx, terms)
    dx = ref.backward(x, dy, ref.rows_of(*shape), kind, eps, of, np.ones(features.kept))[0]
    with held_in_memory(device):  # those that may be
        close(device, ops.normalise(x_there, rows, got, affine, out, norm, work), y, LOOSE)
        close_but_for_terms(device, ops.gradients(*given, None, none, out, work), dx, terms)
    same(device, x_there, x)
    same(device, dy_there, dy)


LONG = [(1, 3, 2, 4000), (1, 9000, 3, 1), (2, 1, 1, 12_000)]
LARGE = 1, 20, 40, 5000  # each block has more threads
OF_LARGE = [
    pytest.param(kind, LARGE, marks=[] if kind in ("variance", "length") else pytest.mark.long)
    for kind in KINDS
]


@pytest.mark.parametrize(("kind", "shape"), [*itertools.product(KINDS, LONG), *OF_LARGE])
def test_long_rows_are_summed_in_parts(device, shape, kind):
    """Far from 0, where the squares' mean less the mean's square would leave no digit of float32."""
    rows, rng = Rows(*shape), np.random.default_rng(1)
    far = 0 if kind == "length" else 1000
    drift = np.linspace(0, 2, int(np.prod(shape)))  # so that parts have means of their own
    x = (rng.normal(size=shape) + drift.reshape(shape) + far).astype(np.float32)
    dy = rng.normal(size=shape).astype(np.float32)
    work = blank(device, workspace(device.xp, x.size, rows), np.float32)
    assert not device.is_cuda or module.cut(rows, work, x)[2][1] > 1
    norm, got = Norm(kind, 1e-5), Statistics.empty(device.xp, rows, np.float32)
    statistics(put(device, x), rows, norm, got, work)
    wide = x.astype(np.float64)
    mean = wide.mean(axis=(1, 3), keepdims=True) if kind != "length" else np.zeros(1)
    spread = ((wide - mean) ** 2).mean(axis=(1, 3), keepdims=True)
    if kind == "length":
        spread = (wide**2).sum(axis=(1, 3), keepdims=True)
    np.testing.assert_allclose(device.to_host(got.spread), spread.ravel(), rtol=4e-5)
    rate = {"mean": np.ones_like(spread), "deviation": 1 / (spread**0.5 + 1e-5)}.get(
        kind, 1 / np.sqrt(spread + 1e-5)
    )
    y = (wide - mean) * rate
    out = blank(device, shape, np.float32)
    close(device, ops.normalise(put(device, x), rows, got, None, out), y, {"f": 3e-5})
    ops.gradients(put(device, x), put(device, dy), rows, norm, got, None, (None, None), out, work)
    inner = (dy * y).mean(axis=(1, 3), keepdims=True) * (kind != "mean")
    inner *= x[0, :, 0].size if kind == "length" else 1
    outer = dy.mean(axis=(1, 3), keepdims=True, dtype=np.float64) * (kind != "length")
    close(device, out, rate * (dy - outer - y * inner), {"f": 3e-5})


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_one_number_are_no_accident(device, kind):
    """Neither a division by 0 nor NaN: the spread is 0, and in MVN eps alone divides."""
    x, rows, norm = np.full((3, 5), 2.5, np.float32), Rows(1, 1, 3, 5), Norm(kind, 1e-9)
    work = blank(device, workspace(device.xp, 15, rows), np.float32)
    there, got = put(device, x), Statistics.empty(device.xp, rows, np.float32)
    statistics(there, rows, norm, got, work)
    out = blank(device, x.shape, np.float32)
    y = device.to_host(ops.normalise(there, rows, got, None, out)).copy()
    close(device, y, np.full((3, 5), 1 / np.sqrt(5) if kind == "length" else 0.0)) if not (
        device.is_cuda
    ) else np.testing.assert_allclose(y, 1 / np.sqrt(5) if kind == "length" else 0.0, atol=1e-6)
    given = there, put(device, x), rows, norm, got, None, (None, None)
    assert np.isfinite(device.to_host(ops.gradients(*given, out, work))).all()


@cases(30)
@given(st.integers(1, 300), st.sampled_from([0.0, 0.9, 0.999]), st.integers(1, 9), dtypes, seeds)
def test_running_statistics_against_loops(device, channels, fraction, length, dtype, seed):
    rows, norm = Rows(1, 1, channels, length), Norm("variance", 0.25)
    batches = [numbers(seed + i, (channels, length), dtype=dtype)[0] for i in range(4)]
    sums = [put(device, np.zeros(n), dtype) for n in (channels, channels, 1)]
    past, found = Past(fraction, length, *sums), Statistics.empty(device.xp, rows, dtype)
    for array in recall_of(device, past, found, 0.25):
        np.testing.assert_array_equal(array[:2], 0)
        np.testing.assert_array_equal(array[2], 2)
    wanted, count = np.zeros((2, channels)), 0.0
    work = blank(device, workspace(device.xp, channels * length, rows), dtype)
    for x in batches:
        statistics(put(device, x), rows, norm, found, work, past)
        wide = x.astype(np.float64)
        new = [wide.mean(axis=1), wide.var(axis=1, ddof=1 if length > 1 else 0)]
        wanted, count = fraction * wanted + new, fraction * count + 1
    close(device, sums[0], wanted[0])
    close(device, sums[1], wanted[1])
    close(device, sums[2], [count])
    (got,) = recall_of(device, past, found, 0.25)
    wanted = wanted / count
    np.testing.assert_allclose(got[:2], wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got[2], 1 / np.sqrt(wanted[1] + 0.25), rtol=1e-5)


def recall_of(device, past, found, eps):
    recall(past, Norm("variance", eps), found)
    yield np.array([device.to_host(a).copy() for a in (found.mean, found.spread, found.rate)])


def test_rows_longer_than_an_index_reaches_are_refused():
    told = "rows of 2147483648 elements are more than a kernel's 32-bit"
    with pytest.raises(ShapeError, match=told):
        module.cut(Rows(1, 2, 1, 2**30), np.empty(0, np.float32), np.empty(0, np.float32))


def test_constants_as_statistics_may_be_used_in_place(device):
    rows = Rows(1, 2, 3, 4)
    x, dy, mean = (a.reshape(-1) for a in numbers(1, (2, 3, 4), (2, 3, 4), (3,), dtype=np.float32))
    rate = np.array([0.5, 2, 3], np.float32)
    found = Statistics(put(device, mean), None, put(device, rate))
    there, back = put(device, x), put(device, dy)
    ops.normalise(there, rows, found, None, there)
    ops.gradients(there, back, rows, None, found, None, (None, None), back, None)
    channel = np.arange(24) // 4 % 3
    close(device, there, (x - mean[channel]) * rate[channel])
    close(device, back, dy * rate[channel])
