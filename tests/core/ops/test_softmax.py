"""Softmax, its loss and accuracy against loops; labels that do not count or are none."""

import numpy as np
import pytest
from core.ops import score_references as ref
from core.ops.cases import blank, cases, close, dtypes, numbers, put, same, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.core.ops import softmax as accuracies
from minicaffe.core.ops import softmax as ops
from minicaffe.core.ops.softmax import Labels, Mean
from minicaffe.errors import DataError

pytestmark = pytest.mark.usefixtures("threads")
shapes = st.tuples(st.integers(0, 4), st.integers(1, 5), st.integers(1, 3))
ignores = st.sampled_from([None, -1, 0, 2, 255])
TINY = {"f": 1.1754943508222875e-38, "d": 2.2250738585072014e-308}


def draw_labels(rng, shape, ignore, dtype):
    """Labels of scores (n, c, s), about a third of them to ignore."""
    n, c, s = shape
    labels = rng.integers(0, c, (n, s))
    if ignore is not None:
        labels[rng.random((n, s)) < 0.35] = ignore
    return labels.astype(dtype)


def loss(device, x, labels, ignore, fixed=1, counts=False):
    """The loss, the probabilities, and what the gradient takes beside them."""
    n, c, s = x.shape
    read = Labels.empty(device.xp, n, c, s, x.dtype)
    mean = Mean.empty(device.xp, fixed, counts, x.dtype)
    prob, losses = blank(device, x.shape, x.dtype), blank(device, (n, s), x.dtype)
    there = put(device, x), put(device, labels)
    out, work = blank(device, (), x.dtype), blank(device, 8, x.dtype)
    ops.softmax_loss(*there, ignore, prob, losses, read, mean, out, work)
    same(device, there[0], x)
    same(device, there[1], labels)
    return out, prob, (losses, read, mean)


def accuracy(device, scores, labels, top_k, ignore):
    n, c, s = scores.shape
    read = Labels.empty(device.xp, n, c, s, scores.dtype)
    hits, lower = blank(device, (n, s), scores.dtype), blank(device, (n, c, s), bool)
    accuracies.accuracy(put(device, scores), put(device, labels), top_k, ignore, hits, read, lower)
    return hits, read


@cases(40)
@given(shapes, st.sampled_from([1.0, 30.0, 1e4]), dtypes, seeds)
def test_softmax_against_loops(device, shape, size, dtype, seed):
    x = (numbers(seed, shape, dtype=dtype)[0] * dtype(size)).astype(dtype)
    x_there = put(device, x)
    reduced = blank(device, (shape[0], 1, shape[2]), dtype)
    p = ops.softmax(x_there, blank(device, shape, dtype), reduced)
    close(device, p, ref.softmax(x))
    close(device, p.sum(axis=1), np.ones((shape[0], shape[2])))
    same(device, x_there, x)


def test_softmax_of_16_bits_is_computed_in_the_type_it_goes_to(device):
    (x,) = numbers(4, (2, 5, 3), dtype=np.float16)
    p = ops.softmax(
        put(device, x), *(blank(device, shape, np.float32) for shape in ((2, 5, 3), (2, 1, 3)))
    )
    np.testing.assert_allclose(device.to_host(p), ref.softmax(x.astype(np.float64)), rtol=1e-5)


@cases(40)
@given(shapes, dtypes, seeds)
def test_softmax_gradient_against_the_jacobian(device, shape, dtype, seed):
    x, dy = numbers(seed, shape, shape, dtype=dtype)
    y = ref.softmax(4 * x).astype(dtype)
    y_there, dy_there = put(device, y), put(device, dy)
    reduced = blank(device, (shape[0], 1, shape[2]), dtype)
    dx = ops.softmax_gradient(dy_there, y_there, blank(device, shape, dtype), reduced)
    close(device, dx, ref.softmax_gradient(dy, y))
    same(device, y_there, y)
    same(device, dy_there, dy)


@cases(48)
@given(shapes, ignores, st.integers(1, 9), st.booleans(), dtypes, seeds)
def test_the_loss_and_its_gradient_against_loops(device, shape, ignore, fixed, counts, dtype, seed):
    rng = np.random.default_rng(seed)
    x = numbers(seed, shape, dtype=dtype)[0] * dtype(3)
    labels = draw_labels(rng, shape, ignore, dtype)
    got, prob, rest = loss(device, x, labels, ignore, fixed, counts)
    wanted = ref.softmax(x)
    close(device, prob, wanted)
    losses, valid = ref.nll(wanted, labels, ignore, TINY[np.dtype(dtype).char])
    normalizer = max(valid.sum(), 1) if counts else fixed
    close(device, got, losses.sum() / normalizer)
    same(device, rest[-1].normalizer, normalizer)

    dloss, dx = dtype(rng.uniform(-3, 3)), blank(device, shape, dtype)
    given = prob, put(device, labels), ignore, put(device, dloss)
    assert ops.softmax_loss_gradient(*given, dx, *rest[1:]) is dx
    close(device, dx, ref.nll_gradient(wanted, labels, ignore, float(dloss) / normalizer))


@pytest.mark.parametrize("columns", [(1, 1), (300, 1), (2, 700), (3000, 1)])
def test_the_loss_of_many_columns_in_many_blocks(device, columns):
    """More than a block takes, twice in a row: how many have arrived is counted anew."""
    n, s = columns
    x = numbers(3, (n, 4, s), dtype=float)[0]
    labels = draw_labels(np.random.default_rng(3), x.shape, 2, float)
    losses, valid = ref.nll(ref.softmax(x), labels, 2, TINY["d"])
    for _ in range(2):
        close(device, loss(device, x, labels, 2, 1, True)[0], losses.sum() / max(1, valid.sum()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loss_of_a_tiny_probability_is_finite(device, dtype):
    for below in (2000, 1e4):
        x, tiny = np.array([0, below], dtype).reshape(1, 2, 1), TINY[np.dtype(dtype).char]
        close(device, loss(device, x, np.zeros((1, 1), dtype), None)[0], -np.log(tiny))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_loss_of_a_diverged_net_is_nan(device, dtype):
    """A net that computes NaN must not show the finite loss of a tiny probability."""
    x = np.array([[0.25, 0.5], [np.nan, 1.0]], dtype).reshape(2, 2, 1)
    assert np.isnan(device.to_host(loss(device, x, np.zeros((2, 1), dtype), None)[0]))
    assert np.isnan(device.to_host(loss(device, x[::-1].copy(), np.zeros((2, 1), dtype), None)[0]))


@pytest.mark.parametrize("bad", [3, -1, 255, 1e20, np.nan])
def test_a_label_that_is_no_class(device, bad):
    x = np.zeros((2, 3, 2))
    labels = np.array([[0.0, 1.0], [bad, 2.0]])
    if device.is_cuda:  # which is not waited for: the loss says so
        assert np.isnan(device.to_host(loss(device, x, labels, None)[0]))
        assert np.isnan(device.to_host(loss(device, x, labels, 7)[0]))
        hits, read = accuracy(device, x, labels, 3, None)
        same(device, hits, [[1, 1], [0, 1]])
        same(device, read.valid, [[1, 1], [1, 1]])
        return
    message = f"label {bad:g} is not one of the 3 classes 0..2".replace("+", r"\+")
    for run, *how in ((loss, None), (loss, 7), (accuracy, 1, None)):
        with pytest.raises(DataError, match=message):
            run(device, x, labels, *how)


@pytest.mark.parametrize("ignore", [-1, 255, 1])
def test_an_ignored_label_needs_to_be_no_class(device, ignore):
    prob, labels = np.full((1, 2, 3), 0.5), np.array([[0.0, ignore, 0.0]])
    got, _, rest = loss(device, np.zeros((1, 2, 3)), labels, ignore, counts=True)
    close(device, got, np.log(2))
    same(device, rest[-1].normalizer, 2)
    hits, read = accuracy(device, prob, labels, 2, ignore)
    same(device, hits, [[1, 0, 1]])
    same(device, read.valid, [[1, 0, 1]])


@cases(64)
@given(shapes, st.data(), ignores, dtypes, seeds)
def test_accuracy_against_loops(device, shape, data, ignore, dtype, seed):
    """Scores of few values: ties everywhere, and a NaN now and then."""
    top_k = data.draw(st.integers(1, max(1, shape[1] - 1)), "top_k")
    rng = np.random.default_rng(seed)
    scores = rng.integers(-2, 3, shape).astype(dtype)
    scores[rng.random(shape) < 0.1] = np.nan
    labels = draw_labels(rng, shape, ignore, dtype)
    hits, read = accuracy(device, scores, labels, top_k, ignore)
    expected, valid = ref.accuracy(scores, labels, top_k, ignore)
    same(device, hits, expected)
    same(device, read.valid, valid)


@cases(48)
@given(st.integers(0, 12), st.integers(1, 4), dtypes, seeds)
def test_class_accuracy_against_loops(device, count, classes, dtype, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count).astype(dtype)
    valid = (rng.random(count) < 0.7).astype(dtype)
    labels[(valid == 0) & (rng.random(count) < 0.5)] = 255  # what does not count may be no class
    hits = (rng.random(count) < 0.5).astype(dtype) * valid
    arrays = (put(device, array) for array in (hits, valid, labels))
    shares = accuracies.class_accuracy(*arrays, blank(device, classes, dtype))
    close(device, shares, ref.class_accuracy(hits, valid, labels, classes))


def test_class_accuracy_of_a_map_of_labels(device):
    """Labels (n, s), as Accuracy hands them over."""
    labels = np.array([[0.0, 1.0, 1.0], [3.0, 0.0, -1.0]])
    valid, hits = np.array([[1.0, 1, 1], [1, 1, 0]]), np.array([[1.0, 0, 1], [1, 1, 0]])
    arrays = (put(device, array) for array in (hits, valid, labels))
    same(device, accuracies.class_accuracy(*arrays, blank(device, 4, float)), [1, 0.5, 0, 1])
