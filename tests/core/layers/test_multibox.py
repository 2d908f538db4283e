"""MultiBoxLoss against loops over boxes, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
from core.layers import multibox_reference as ref
from core.layers.fork_nets import build
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


def net_of(keys, loc, scores, prior, truth, device="cpu", dtype="float64"):
    n, p, classes = scores.shape
    shapes = [(n, loc[0].size), (n, p * classes), (1, 2, 4 * p), (1, 1, *truth.shape)]
    nms = keys.pop("nms", (0.0, -1))
    more = {"nms_param": {"nms_threshold": nms[0], "top_k": nms[1]}}
    return build("MultiBoxLoss", {"num_classes": classes, **more, **keys}, shapes, device, dtype)


def run(net, loc, scores, prior, variance, truth):
    both = np.stack([prior.ravel(), variance.ravel()])[None]
    arrays = [loc.reshape(len(loc), -1), scores.reshape(len(loc), -1), both, truth[None, None]]
    out = net.forward(**{f"b{i}": array for i, array in enumerate(arrays)})
    return float(net.device.to_host(out["it"]))


choices = st.fixed_dictionaries(
    {
        "conf_loss_type": st.sampled_from(["SOFTMAX", "LOGISTIC"]),
        "loc_loss_type": st.sampled_from(["SMOOTH_L1", "L2"]),
        "loc_weight": st.sampled_from([1.0, 0.5]),
        "share_location": st.booleans(),
        "match_type": st.sampled_from(["BIPARTITE", "PER_PREDICTION"]),
        "overlap_threshold": st.sampled_from([0.5, 0.2]),
        "use_prior_for_matching": st.booleans(),
        "use_difficult_gt": st.booleans(),
        "neg_pos_ratio": st.sampled_from([3.0, 1.5]),
        "neg_overlap": st.sampled_from([0.5, 0.2]),
        "code_type": st.sampled_from(["CORNER", "CENTER_SIZE", "CORNER_SIZE"]),
        "encode_variance_in_target": st.booleans(),
        "map_object_to_agnostic": st.booleans(),
        "ignore_cross_boundary_bbox": st.booleans(),
        "bp_inside": st.booleans(),
        "mining_type": st.sampled_from(["NONE", "MAX_NEGATIVE", "HARD_EXAMPLE"]),
        "sample_size": st.sampled_from([2, 6]),
        "use_prior_for_nms": st.booleans(),
        "normalization": st.sampled_from(["FULL", "VALID", "BATCH_SIZE", "NONE"]),
        "nms": st.sampled_from([(0.0, -1), (0.3, -1), (0.3, 3)]),
    }
)


@cases(200)
@given(choices, st.integers(0, 10**6), st.sampled_from([0, 1, 5]))
def test_against_loops(device, keys, seed, boxes):
    if keys["mining_type"] != "NONE":
        keys["share_location"] = True
    classes = 2 if keys["map_object_to_agnostic"] else 3
    kinds = 1 if keys["share_location"] else classes
    given_ = scene(seed, classes=classes, kinds=kinds, boxes=boxes)
    loc, scores, prior, _, truth = given_
    wanted = ref.loss(
        *[array.tolist() for array in given_], classes=classes, background_label_id=0, **keys
    )
    got = run(net_of(dict(keys), loc, scores, prior, truth, device), *given_)
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-12)


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


@pytest.mark.parametrize("mining", ["NONE", "MAX_NEGATIVE", "HARD_EXAMPLE"])
@pytest.mark.parametrize("conf", ["SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("loc_loss", ["SMOOTH_L1", "L2"])
def test_the_gradient_is_that_of_differences(mining, conf, loc_loss):
    """Along random directions; a step is too small to change what is matched and chosen."""
    keys = {"mining_type": mining, "conf_loss_type": conf, "loc_loss_type": loc_loss}
    keys |= {"code_type": "CENTER_SIZE", "loc_weight": 0.7, "bp_inside": True}
    given_ = scene(3)
    net = net_of({**keys}, *(given_[i] for i in (0, 1, 2, 4)))
    arrays = {"b0": given_[0].reshape(2, -1), "b1": given_[1].reshape(2, -1)}
    random = np.random.default_rng(0)
    run(net, *given_)
    layer = net.layers["it"]
    layer.needs_gradient = [True, True, False, False]
    layer.grad = [np.empty_like(arrays["b0"]), np.empty_like(arrays["b1"]), None, None]
    gradients = [one.copy() for one in layer.backward(np.ones(()))[:2]]
    for which in (0, 1):
        way = random.normal(size=arrays[f"b{which}"].shape)
        sides = []
        for sign in (1, -1):
            moved = [given_[0], given_[1]]
            moved[which] = (arrays[f"b{which}"] + sign * 1e-6 * way).reshape(moved[which].shape)
            sides.append(run(net, *moved, *given_[2:]))
        slope = (sides[0] - sides[1]) / 2e-6
        assert (gradients[which] * way).sum() == pytest.approx(slope, rel=1e-5, abs=1e-8)
