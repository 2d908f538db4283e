"""MultiBoxLoss against loops over boxes, and its gradient."""

from __future__ import annotations

import numpy as np
from core.ops.cases import cases
from hypothesis import given
from hypothesis import strategies as st

from minicaffe.interop.caffe.forks import boxes as ops


def scene(seed, n=2, p=9, classes=3, kinds=1, boxes=5):
    """Predictions, scores, priors and true boxes, the last row of which is none."""
    random = np.random.default_rng(seed)
    low = random.uniform(-0.1, 0.7, (p, 2))
    prior = np.concatenate([low, low + random.uniform(0.1, 0.4, (p, 2))], axis=1)
    variance = random.uniform(0.1, 0.3, (p, 4))
    loc, scores = random.normal(size=(n, p, kinds, 4)), random.normal(size=(n, p, classes)) * 2
    corner = random.uniform(0, 0.7, (boxes, 2))
    near = random.integers(p, size=boxes)  # some are close to a prior box
    corner = np.where(random.random((boxes, 1)) < 0.6, low[near].clip(0, 0.7), corner)
    truth = np.full((boxes + 1, 8), -1.0)
    truth[:-1, 0] = random.integers(n, size=boxes)
    truth[:-1, 1] = random.integers(1, classes, size=boxes)
    truth[:-1, 2] = 0
    truth[:-1, 3:5] = corner
    truth[:-1, 5:7] = corner + random.uniform(0.1, 0.3, (boxes, 2))
    truth[:-1, 7] = random.random(boxes) < 0.3
    return loc, scores, prior, variance, truth


def test_a_match_is_the_best_pair_first():
    """The second box is the first true box's best, but for the pair that overlaps more."""
    overlaps = np.array([[0.5, 0.3], [0.6, 0.8], [0.0, 0.55]])
    assert ops.match(overlaps, None).tolist() == [0, 1, -1]
    assert ops.match(overlaps, 0.5).tolist() == [0, 1, 1]
    assert ops.match(overlaps[:1], None).tolist() == [0]
    assert ops.match(np.zeros((2, 0)), 0.5).tolist() == [-1, -1]


@cases(50)
@given(st.sampled_from(["CORNER", "CENTER_SIZE", "CORNER_SIZE"]), st.booleans(), st.integers(0, 99))
def test_what_is_encoded_is_decoded(device, code, varies, seed):
    _, _, prior, variance, truth = scene(seed, boxes=9)
    variance = variance if varies else None
    made = ops.encode(code, truth[:9, 3:7], prior, variance)
    got = ops.decode(code, made, prior, variance)
    np.testing.assert_allclose(got, truth[:9, 3:7], atol=1e-12)
