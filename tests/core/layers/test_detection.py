"""PriorBox and DetectionOutput: what stands behind them, numbers that are not finite, equal scores; matches."""

import numpy as np
import pytest
from core.layers.fork_nets import build

from minicaffe import Net, parse
from minicaffe.interop.caffe.forks import boxes


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


TWO = {"num_classes": 2, "nms_param": {"nms_threshold": 0.5}, "confidence_threshold": 0.1}
PRIOR = np.array([[[0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1], [0.1] * 8]])


def test_the_number_of_boxes_changes_from_pass_to_pass(device):
    more = [{"name": "flat", "type": "Flatten", "axis": 2}]
    net = build("DetectionOutput", TWO, [(2, 8), (2, 4), (1, 2, 8)], device, more=more)
    for scores, count in (([0.9, 0.2], 4), ([0.9, 0], 2), ([0, 0], 2), ([0.3, 0.4], 4)):
        out = net.forward(b1=np.array([[0, scores[0], 0, scores[1]]] * 2), b2=PRIOR)["flat"]
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
    net = build("DetectionOutput", {**TWO, "keep_top_k": 1}, [(1, 8), (1, 4), (1, 2, 8)])
    out = net.forward(b1=[[0, 0.5, 0, 0.5]], b2=PRIOR)["it"]
    np.testing.assert_allclose(out[0, 0], [[0, 1, 0.5, 0, 0, 0.5, 0.5]])


def test_a_label_map_without_a_directory_does_nothing_as_in_ssd():
    keys = {**TWO, "save_output_param": {"label_map_file": "data/labelmap.prototxt"}}
    build("DetectionOutput", keys, [(1, 8), (1, 4), (1, 2, 8)])


def test_a_match_is_the_best_pair_first():
    """The second box is the first true box's best, but for the pair that overlaps more."""
    overlaps = np.array([[0.5, 0.3], [0.6, 0.8], [0.0, 0.55]])
    assert boxes.match(overlaps, None).tolist() == [0, 1, -1]
    assert boxes.match(overlaps, 0.5).tolist() == [0, 1, 1]
    assert boxes.match(overlaps[:1], None).tolist() == [0]
    assert boxes.match(np.zeros((2, 0)), 0.5).tolist() == [-1, -1]
