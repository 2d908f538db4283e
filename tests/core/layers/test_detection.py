"""PriorBox and DetectionOutput against loops over boxes; what stands behind them."""

from __future__ import annotations

import numpy as np
import pytest
from core.layers import detection_references as ref
from core.layers.fork_nets import build
from core.ops.cases import cases, dtypes, seeds
from hypothesis import given
from hypothesis import strategies as st

from minicaffe import Net, parse

sides = st.floats(1, 60).map(lambda x: round(x, 2))


@cases(30)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 5)),
    st.lists(sides, min_size=1, max_size=2),
    st.booleans(),
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 0.5]), max_size=3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([[], [0.3], [0.1, 0.1, 0.2, 0.3]]),
    st.sampled_from([{}, {"step": 7.5}, {"step_h": 4.0, "step_w": 9.0}]),
    st.sampled_from([{}, {"img_size": 55}, {"img_h": 20, "img_w": 90}]),
    st.sampled_from([0.5, 0.25]),
    dtypes,
)
def test_prior_boxes_against_loops(
    device, area, least, between, ratios, flip, clip, variance, step, image, offset, dtype
):
    most = [size + 1.5 for size in least] if between else []
    keys = {"min_size": least, "max_size": most, "aspect_ratio": ratios, "flip": flip}
    keys |= {"clip": clip, "variance": variance, "offset": offset, **step, **image}
    net = build("PriorBox", keys, [(2, 3, *area), (2, 1, 30, 40)], device, dtype)
    got = device.to_host(net.forward()["it"])
    pixels = {0: (30, 40), 1: (55, 55), 2: (20, 90)}[len(image)]
    steps = {0: None, 1: (7.5, 7.5), 2: (4.0, 9.0)}[len(step)]
    wanted = ref.prior_boxes(area, pixels, least, most, ratios, flip, clip, variance, steps, offset)
    assert got.shape == (1, 2, len(wanted[0])) and got.dtype == dtype
    np.testing.assert_allclose(got[0], wanted, rtol=1e-6, atol=1e-6)


def test_prior_boxes_are_float32_in_a_net_of_16_bits():
    text = """
layers:
  - {name: data, type: Input, top: [x, image], shape: [{dim: [1, 2, 3, 3]}, {dim: [1, 3, 30, 30]}]}
  - {name: a, type: PriorBox, bottom: [x, image], min_size: 4}
  - {name: b, type: PriorBox, bottom: [x, image], min_size: 7}
  - {name: both, type: Concat, bottom: [a, b], axis: 2}
"""
    net = Net(parse(text), dtype="float16", device="cpu", shapes_only=True)
    types = {v.name: v.dtype.name for s in net.steps for v in s.tops}
    assert {types[name] for name in ("a", "b", "both")} == {"float32"} and types["x"] == "float16"


def draw_boxes(rng, p):
    middle, size = rng.uniform(0, 1, (p, 2)), rng.uniform(0.05, 0.5, (p, 2))
    corners = np.concatenate([middle - size / 2, middle + size / 2], axis=1)
    return np.stack([corners, np.tile([0.1, 0.1, 0.2, 0.3], (p, 1))])


@cases(60)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 4)),
    st.booleans(),
    st.sampled_from([0, 0, 1, -1]),
    st.sampled_from([(0.45, 1.0), (0.7, 0.8), (0.0, 1.0), (0.95, 0.6)]),
    st.sampled_from([-1, 0, 1, 4, 100]),
    st.sampled_from(["CORNER", "CENTER_SIZE", "CORNER_SIZE"]),
    st.booleans(),
    st.sampled_from([-1, 0, 2, 5, 100]),
    st.sampled_from([None, 0.01, 0.5, 0.99]),
    st.booleans(),
    dtypes,
    seeds,
)
def test_detections_against_loops(
    device, shape, share, background, nms, top_k, code, in_target, keep, least, clip, dtype, seed
):
    rng, (n, p, c) = np.random.default_rng(seed), shape
    kinds = 1 if share else c
    loc = rng.normal(size=(n, p, kinds, 4)) * (0.1 if in_target else 0.7)
    conf, prior = rng.random((n, p, c)), draw_boxes(rng, p)
    loc, conf, prior = (array.astype(dtype) for array in (loc, conf, prior))
    keys = {"num_classes": c, "share_location": share, "background_label_id": background}
    keys["nms_param"] = {"nms_threshold": nms[0], "eta": nms[1], "top_k": top_k}
    keys |= {"code_type": code, "variance_encoded_in_target": in_target}
    keys |= {"keep_top_k": keep, "clip": clip}
    keys |= {} if least is None else {"confidence_threshold": least}
    given_ = loc.reshape(n, -1), conf.reshape(n, -1), prior.reshape(1, 2, -1)
    net = build("DetectionOutput", keys, [array.shape for array in given_], device, dtype)
    most = net.steps[1].tops[0].shape
    top = net.forward(**{f"b{i}": array for i, array in enumerate(given_)})["it"]
    told = {"classes": c, "share": share, "background": background, "code": code, "keep": keep}
    told |= {"threshold": nms[0], "eta": nms[1], "top_k": top_k, "in_target": in_target}
    told |= {"least": -1e30 if least is None else least, "clip": clip}
    wanted = ref.detections(loc, conf, prior, **told)
    assert top.shape == (1, 1, len(wanted), 7) and len(wanted) <= most[2]
    np.testing.assert_allclose(device.to_host(top)[0, 0], wanted, rtol=1e-5, atol=1e-6)


TWO = {"num_classes": 2, "nms_param": {"nms_threshold": 0.5}, "confidence_threshold": 0.1}
PRIOR = np.array([[[0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1], [0.1] * 8]])


def test_the_number_of_boxes_changes_from_pass_to_pass(device):
    more = [{"name": "flat", "type": "Flatten", "axis": 2}]
    net = build("DetectionOutput", TWO, [(2, 8), (2, 4), (1, 2, 8)], device, more=more)
    for scores, count in (([0.9, 0.2], 4), ([0.9, 0], 2), ([0, 0], 2), ([0.3, 0.4], 4)):
        conf = np.array([[0, scores[0], 0, scores[1]]] * 2)
        out = net.forward(b1=conf, b2=PRIOR)["flat"]
        assert out.shape == (1, 1, count * 7)
        first = device.to_host(out).reshape(count, 7)[0]
        found = max(scores) > 0.1
        np.testing.assert_allclose(first[:3], [0, 1, max(scores)] if found else [0, -1, -1])


@pytest.mark.parametrize("code", ["CORNER", "CORNER_SIZE", "CENTER_SIZE"])
def test_predictions_that_are_not_finite_are_decoded_without_a_word(code):
    """What comes of weights that have diverged; filterwarnings makes a warning an error."""
    shapes = (1, 8), (1, 4), (1, 2, 8)
    net = build("DetectionOutput", {**TWO, "code_type": code}, shapes, dtype="float32")
    loc = np.array([[np.inf] * 4 + [np.inf, -np.inf, np.nan, 3e38]])
    assert net.forward(b0=loc, b1=[[0, 0.9, 0, 0.8]], b2=PRIOR)["it"].shape[3] == 7


def test_equal_scores_are_taken_in_the_order_of_their_boxes():
    keys = {**TWO, "keep_top_k": 1}
    net = build("DetectionOutput", keys, [(1, 8), (1, 4), (1, 2, 8)])
    out = net.forward(b1=[[0, 0.5, 0, 0.5]], b2=PRIOR)["it"]
    np.testing.assert_allclose(out[0, 0], [[0, 1, 0.5, 0, 0, 0.5, 0.5]])


def test_a_label_map_without_a_directory_does_nothing_as_in_ssd():
    keys = {**TWO, "save_output_param": {"label_map_file": "data/labelmap.prototxt"}}
    build("DetectionOutput", keys, [(1, 8), (1, 4), (1, 2, 8)])
