"""Losses against loops in float64: ties, ignored labels, margins, weights, huge scores, labels that are none."""

import numpy as np
import pytest
from core.ops import loss_references as ref
from core.ops.cases import blank, cases, close, dtypes, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops import label_losses, pair_losses
from minicaffe.core.ops.softmax import Labels
from minicaffe.errors import DataError

shapes = st.tuples(st.integers(1, 5), st.integers(1, 6))
sizes = st.sampled_from([0.5, 3.0, 50.0])


def blanks(device, shape, dtype, count):
    return [blank(device, shape, dtype) for _ in range(count)]


@cases(20)
@given(shapes, dtypes, seeds)
def test_difference(device, shape, dtype, seed):
    a, b = np.random.default_rng(seed).normal(size=(2, *shape)).astype(dtype)
    got = pair_losses.difference(put(device, a), put(device, b), blank(device, shape, dtype))
    same(device, got, a - b)


@cases(40)
@given(shapes, st.booleans(), st.sampled_from([0.5, 1.5, 4.0]), dtypes, seeds)
def test_contrastive_against_loops(device, shape, legacy, margin, dtype, seed):
    rng = np.random.default_rng(seed)
    diff = rng.normal(size=shape).astype(dtype)
    diff[rng.random(shape[0]) < 0.2] = 0
    similar = rng.choice([0, 1, 2, -1, 0.4, -0.9], shape[0]).astype(dtype)
    losses, pull = blanks(device, shape[:1], dtype, 2)
    scratch = (
        blank(device, shape, dtype),
        *blanks(device, shape[:1], dtype, 1),
        blank(device, shape[:1], bool),
    )
    there = put(device, diff), put(device, similar)
    pair_losses.contrastive(*there, margin, legacy, losses, pull, scratch)
    wanted, gradient = ref.contrastive(diff, similar, margin, legacy)
    close(device, losses, wanted)
    wide = {
        "f": 2e-4,
        "d": 1e-11,
    }  # margin - d of a d near the margin; 1 / (d + 1e-4) of a d near 0
    close(device, pull.reshape(-1, 1) * there[0], gradient, wide)
    same(device, there[0], diff)


@cases(40)
@given(shapes, st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 2), dtypes, seeds)
def test_smooth_l1_against_loops(device, shape, sigma, weights, dtype, seed):
    rng = np.random.default_rng(seed)
    a, b = 2 * rng.normal(size=(2, *shape)).astype(dtype)
    b[rng.random(shape) < 0.2] = 0
    a[(b == 0) & (rng.random(shape) < 0.5)] = sigma**-2  # where squares end
    both = [(rng.integers(0, 3, shape) * rng.random(shape)).astype(dtype) for _ in range(weights)]
    wanted, gradient = ref.smooth_l1(a, b, *both, *[np.ones(shape)] * (2 - weights), sigma)
    there = [put(device, array) for array in (a, b, *both)] + [None] * (2 - weights)
    out, work = blanks(device, shape, dtype, 2)
    close(device, pair_losses.smooth_l1(*there, sigma, out, work), wanted)
    scale = put(device, np.array(-1.5, dtype))
    for sign in (1, -1):
        given_ = *there, sigma, scale, sign, blank(device, shape, dtype)
        close(device, pair_losses.smooth_l1_gradient(*given_), -1.5 * sign * gradient)
    same(device, there[0], a)


@cases(40)
@given(shapes, sizes, st.sampled_from([None, -1, 0, 1, 255]), dtypes, seeds)
def test_sigmoid_cross_entropy_against_loops(device, shape, size, ignore, dtype, seed):
    rng = np.random.default_rng(seed)
    x = (size * rng.normal(size=shape)).astype(dtype)
    target = rng.choice([0, 1, 0.3, 0.99, -1, 255], shape, p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1])
    target = target.astype(dtype)
    wanted, gradient, counts = ref.sigmoid_cross_entropy(x, target, ignore)
    there = put(device, x), put(device, target), ignore
    losses, valid, work, dx = blanks(device, shape, dtype, 4)
    flags = blank(device, shape, bool)
    pair_losses.sigmoid_cross_entropy(*there, losses, valid, work, flags)
    close(device, losses, wanted)
    same(device, valid, counts)
    scale = put(device, np.array(0.7, dtype))
    pair_losses.sigmoid_cross_entropy_gradient(*there, scale, dx, valid, flags)
    close(device, dx, 0.7 * gradient)


def test_an_ignored_entry_may_be_no_number(device):
    x, target = np.array([np.nan, 1.0]), np.array([-1.0, 1.0])
    there = put(device, x), put(device, target), -1
    losses, valid, work, dx = blanks(device, 2, float, 4)
    flags = blank(device, 2, bool)
    pair_losses.sigmoid_cross_entropy(*there, losses, valid, work, flags)
    assert device.to_host(losses)[0] == 0
    pair_losses.sigmoid_cross_entropy_gradient(*there, put(device, 1.0), dx, valid, flags)
    assert device.to_host(dx)[0] == 0


@cases(40)
@given(shapes, st.booleans(), dtypes, seeds)
def test_hinge_against_loops(device, shape, squared, dtype, seed):
    rng = np.random.default_rng(seed)
    x = (2 * rng.normal(size=shape)).astype(dtype)
    x[rng.random(shape) < 0.2] = -1  # on the margin
    labels = rng.integers(0, shape[1], shape[0]).astype(dtype)
    wanted, gradient = ref.hinge(x, labels, squared)
    there, read = put(device, labels), Labels.empty(device.xp, *shape, 1, dtype)
    margins, dx, own = *blanks(device, shape, dtype, 2), blank(device, shape[:1], dtype)
    label_losses.hinge(put(device, x), there, margins, read, own)
    close(device, margins, wanted)
    scale = put(device, np.array(-0.3, dtype))
    label_losses.hinge_gradient(margins, there, squared, scale, dx, read, own)
    close(device, dx, -0.3 * gradient)


@cases(40)
@given(shapes, dtypes, seeds)
def test_multinomial_against_loops(device, shape, dtype, seed):
    rng = np.random.default_rng(seed)
    prob = (rng.random(shape) * (rng.random(shape) > 0.2) + 1e-25).astype(dtype)
    labels = rng.integers(0, shape[1], shape[0]).astype(dtype)
    wanted, gradient = ref.multinomial(prob, labels)
    there = (put(device, prob), put(device, labels))
    read = Labels.empty(device.xp, *shape, 1, dtype)
    losses, own = blanks(device, shape[:1], dtype, 2)
    close(device, label_losses.multinomial(*there, losses, read), wanted)
    scale = put(device, np.array(0.25, dtype))
    dx = blank(device, shape, dtype)
    label_losses.multinomial_gradient(*there, scale, dx, read, own)
    np.testing.assert_allclose(device.to_host(dx), 0.25 * gradient, rtol=1e-5)


@cases(40)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 3)),
    st.sampled_from([None, -1, 0, 255]),
    dtypes,
    seeds,
)
def test_infogain_against_loops(device, shape, ignore, dtype, seed):
    rng = np.random.default_rng(seed)
    n, c, s = shape
    x, matrix = 2 * rng.normal(size=shape), rng.normal(size=(c, c)).astype(dtype)
    labels = rng.integers(0, c, (n, s)).astype(dtype)
    if ignore is not None:
        labels[rng.random((n, s)) < 0.3] = ignore
    wanted, gradient = ref.infogain(x, labels, matrix, ignore)
    prob = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    there = put(device, prob, dtype), put(device, labels), put(device, matrix)
    read = Labels.empty(device.xp, *shape, dtype)
    scratch = label_losses.InfogainScratch.empty(device.xp, *shape, dtype)
    losses, work = blank(device, (n, s), dtype), blank(device, shape, dtype)
    label_losses.infogain(*there, ignore, losses, read, work, scratch)
    close(device, losses, wanted)
    same(device, read.valid, labels != ignore)
    sums = label_losses.row_sums(there[2], blank(device, c, dtype))
    close(device, sums, matrix.astype(float).sum(axis=1))
    scale, dx = put(device, np.array(-2.0, dtype)), blank(device, shape, dtype)
    label_losses.infogain_gradient(*there, sums, ignore, scale, dx, read, scratch)
    close(device, dx, -2 * gradient, {"f": 1e-5, "d": 1e-7})


def test_a_tiny_probability_counts_as_the_least(device):
    prob, labels = put(device, np.array([[[0.0], [1.0]]])), put(device, np.zeros((1, 1)))
    read, scratch = (
        kind.empty(device.xp, 1, 2, 1, float) for kind in (Labels, label_losses.InfogainScratch)
    )
    losses, work = blank(device, (1, 1), float), blank(device, (1, 2, 1), float)
    label_losses.infogain(prob, labels, put(device, np.eye(2)), None, losses, read, work, scratch)
    close(device, losses, np.array([[-np.log(1e-20)]]))


@pytest.mark.parametrize("label", [-1.0, 3.0, np.nan, np.inf])
def test_a_label_that_is_no_class(device, label):
    """On the CPU it is named at once; on CUDA, which is not waited for, the loss is no number."""
    x, labels = put(device, np.full((2, 3), 0.5)), put(device, np.array([0.0, label]))
    read = Labels.empty(device.xp, 2, 3, 1, float)
    margins, own = blank(device, (2, 3), float), blank(device, 2, float)
    scratch = label_losses.InfogainScratch.empty(device.xp, 2, 3, 1, float)
    work = blank(device, (2, 3, 1), float)
    gain = x.reshape(2, 3, 1), labels.reshape(2, 1), put(device, np.eye(3)), None
    runs = [
        lambda: label_losses.hinge(x, labels, margins, read, own),
        lambda: label_losses.multinomial(x, labels, own, read),
        lambda: label_losses.infogain(*gain, own.reshape(2, 1), read, work, scratch),
    ]
    for run in runs:
        if device.is_cuda:
            rows = np.isnan(device.to_host(run())).reshape(2, -1)
            assert rows[1].all() and not rows[0].any()
        else:
            with pytest.raises(DataError, match="is not one of the 3 classes"):
                run()
