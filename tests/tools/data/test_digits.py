import numpy as np
import pytest

from minicaffe.errors import DataError
from minicaffe.tools.data import digits
from minicaffe.tools.data.digits import CHUNK, GLYPHS, draw


@pytest.fixture(scope="module")
def drawn():
    return draw(5000, seed=7)


@pytest.mark.parametrize("count", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17])
def test_fewer_are_the_first_of_more(drawn, count):
    images, labels = draw(count, seed=7)
    assert images.shape == (count, 28, 28) and labels.shape == (count,)
    assert images.dtype == labels.dtype == np.uint8
    np.testing.assert_array_equal(images, drawn[0][:count])
    np.testing.assert_array_equal(labels, drawn[1][:count])


def test_other_seeds_and_other_chunks_are_other_digits(drawn):
    images, labels = draw(2 * CHUNK, seed=8)
    assert (labels != drawn[1][: 2 * CHUNK]).mean() > 0.8
    assert (labels[:CHUNK] != labels[CHUNK:]).mean() > 0.8
    every = np.concatenate([images, drawn[0]]).reshape(-1, 28 * 28)
    assert len(np.unique(every, axis=0)) == len(every)


def test_the_global_random_state_plays_no_part(drawn):
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    np.testing.assert_array_equal(draw(10, seed=7)[0], drawn[0][:10])
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_labels_are_balanced(drawn):
    assert np.bincount(drawn[1]).tolist() == [500] * 10
    few = np.bincount(draw(130, seed=1)[1], minlength=10)
    assert few.min() >= 3 and few.max() <= 30


def test_digits_are_bright_on_black_centred_and_inside_the_frame(drawn):
    images = drawn[0].astype(np.float64)
    assert 0.08 < images.mean() / 255 < 0.18
    assert np.median(images.reshape(5000, -1).max(axis=1)) > 200
    mean = images.mean(axis=0)
    grid = np.arange(28) - 13.5
    assert abs((mean.sum(axis=0) * grid).sum() / mean.sum()) < 0.7
    assert abs((mean.sum(axis=1) * grid).sum() / mean.sum()) < 0.7
    assert np.concatenate([mean[0], mean[-1], mean[:, 0], mean[:, -1]]).max() < 0.1 * mean.max()


def test_every_variant_of_every_digit_is_drawn_by_its_own_path():
    control, basis, pen = digits._alphabet()
    texts = [glyph for variants in GLYPHS for glyph in variants]
    assert len(GLYPHS) == 10 and all(len(variants) >= 2 for variants in GLYPHS)
    assert len(control) == len(basis) == len(pen) == len(texts)
    for i, text in enumerate(texts):
        path = basis[i] @ control[i]
        for word in text.replace("/", "").split():
            point = [float(number) for number in word.rstrip("!").split(",")]
            assert np.abs(path - point).sum(axis=1).min() < 1e-4, (text, word)
        assert np.hypot(*np.diff(path, axis=0).T)[pen[i] == 1].max() < 2 * digits.STEP
        np.testing.assert_allclose(basis[i].sum(axis=1), 1, rtol=1e-5)


def test_distance_agrees_with_a_slow_reference():
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 30, (2, 5, 2)).astype(np.float32)
    points[1, 3] = points[1, 2]
    radius = rng.uniform(0.5, 2, (2, 4)).astype(np.float32)
    got = digits._distance(points, radius)
    for n in range(2):
        for y, x in rng.integers(0, 28, (60, 2)):
            want = np.inf
            for s in range(4):
                a, b = points[n, s].astype(float), points[n, s + 1].astype(float)
                d, p = b - a, np.array([x, y], float)
                t = min(max(np.dot(p - a, d) / (np.dot(d, d) or 1), 0), 1)
                want = min(want, np.linalg.norm(p - a - t * d) / radius[n, s])
            assert got[n, y, x] == pytest.approx(want, abs=5e-3)


def test_a_linear_classifier_finds_them_learnable_but_not_easy(drawn, train=4000):
    images, labels = drawn
    x = images.reshape(len(images), -1).astype(np.float32) / 255
    x -= x[:train].mean(axis=0)
    weight, speed = np.zeros((x.shape[1], 10), np.float32), 0
    for _ in range(150):
        score = x[:train] @ weight
        p = np.exp(score - score.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(train), labels[:train]] -= 1
        speed = 0.9 * speed - 0.05 * (x[:train].T @ p) / train
        weight += speed
    assert 0.6 < np.mean((x[train:] @ weight).argmax(axis=1) == labels[train:]) < 0.88


@pytest.mark.parametrize(("count", "seed", "text"), [(-1, 0, "count"), (1, -5, "seed")])
def test_negative_numbers_are_refused_by_name(count, seed, text):
    with pytest.raises(DataError, match=f"drawn digits: {text} must be 0 or more, not -"):
        draw(count, seed)
