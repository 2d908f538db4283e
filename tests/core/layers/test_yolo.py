"""Yolov3DetectionOutput and PriorBoxClustered against loops in Python's floats."""

from __future__ import annotations

import math

import numpy as np
from core.layers.fork_nets import build, cases, run, there_and_back
from hypothesis import given
from hypothesis import strategies as st


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def shared(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    both = w * h if w > 0 and h > 0 else 0
    return both / (sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)) - both)


def detections(xs, keys):
    """The rows of Yolov3DetectionOutput, box by box."""
    rows, classes = [], keys["num_classes"]
    group = len(keys["mask"]) // len(xs)
    for image in range(len(xs[0])):
        found = []
        for k, x in enumerate(xs):
            side = x.shape[2]
            for i, j, b in np.ndindex(side, side, keys["num_box"]):
                given_ = [
                    float(v) for v in x[image, b * (5 + classes) : (b + 1) * (5 + classes), i, j]
                ]
                m, pixels = keys["mask"][k * group + b], side * keys["anchors_scale"][k]
                cx, cy = (j + sigmoid(given_[0])) / side, (i + sigmoid(given_[1])) / side
                w = math.exp(given_[2]) * keys["biases"][2 * m] / pixels
                h = math.exp(given_[3]) * keys["biases"][2 * m + 1] / pixels
                corners = [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]
                for c in range(classes):
                    score = sigmoid(given_[4]) * sigmoid(given_[5 + c])
                    if score > keys["confidence_threshold"]:
                        found.append([image, c + 1, score, *corners])
        kept = []
        for row in sorted(found, key=lambda one: -one[2]):
            if all(shared(row[3:], other[3:]) < keys["nms_threshold"] for other in kept):
                kept.append(row)
        rows += kept
    return rows or [[i, *[-1] * 6] for i in range(len(xs[0]))]


@cases(30)
@given(
    st.integers(1, 2),
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([0.01, 0.3, 0.6, 0.999]),
    st.sampled_from([0.1, 0.45, 1.0]),
    st.integers(0, 2**32 - 1),
)
def test_detections_against_loops(device, n, sides, classes, count, least, most, seed):
    random = np.random.default_rng(seed)
    xs = [random.normal(size=(n, count * (5 + classes), side, side)) for side in sides]
    keys = {
        "num_classes": classes,
        "num_box": count,
        "confidence_threshold": least,
        "nms_threshold": most,
        "biases": [float(v) for v in random.integers(10, 60, size=2 * count * len(sides))],
        "mask_group_num": len(sides),
        "mask": [int(v) for v in random.permutation(count * len(sides))],
        "anchors_scale": [32, 16][: len(sides)],
    }
    net = build("Yolov3DetectionOutput", keys, [x.shape for x in xs], device)
    for _ in range(2):
        (got,) = run(net, *xs)
        wanted = np.array(detections(xs, keys))
        assert got.shape == (1, 1, len(wanted), 7)
        np.testing.assert_allclose(got[0, 0], wanted, rtol=1e-9, atol=1e-9)
        xs = [np.negative(x) for x in xs]  # another number of boxes


@cases(20)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([[], [0.3], [0.1, 0.1, 0.2, 0.3]]),
    st.sampled_from([{}, {"step": 7.5}, {"step_h": 4.0, "step_w": 9.0}]),
    st.sampled_from([{}, {"img_size": 55}, {"img_h": 20, "img_w": 90}]),
    st.integers(0, 2**32 - 1),
)
def test_clustered_boxes_against_loops(device, area, count, clip, variance, step, image, seed):
    sizes = np.random.default_rng(seed).uniform(2, 40, size=(2, count)).tolist()
    keys = {
        "width": sizes[0],
        "height": sizes[1],
        "clip": clip,
        "variance": variance,
        "offset": 0.25,
    }
    net = build(
        "PriorBoxClustered", {**keys, **step, **image}, [(2, 3, *area), (2, 1, 30, 40)], device
    )
    high, wide = {0: (30, 40), 1: (55, 55), 2: (20, 90)}[len(image)]
    sh, sw = {0: (high / area[0], wide / area[1]), 1: (7.5, 7.5), 2: (4, 9)}[len(step)]
    wanted = []
    for y, x, k in np.ndindex(*area, count):
        cx, cy, w, h = (x + 0.25) * sw, (y + 0.25) * sh, sizes[0][k], sizes[1][k]
        one = [(cx - w / 2) / wide, (cy - h / 2) / high, (cx + w / 2) / wide, (cy + h / 2) / high]
        wanted += [min(max(v, 0.0), 1.0) for v in one] if clip else one
    (got,) = run(net)
    np.testing.assert_allclose(got[0, 0], wanted, rtol=1e-9, atol=1e-12)
    spread = variance if len(variance) == 4 else (variance or [0.1]) * 4
    np.testing.assert_allclose(got[0, 1], spread * (len(wanted) // 4))


def test_prototxts_as_their_users_write_them():
    options, written = there_and_back("""
input: "a" input_shape { dim: 1 dim: 75 dim: 13 dim: 13 }
input: "b" input_shape { dim: 1 dim: 75 dim: 26 dim: 26 }
layer {
  name: "detection_out" type: "Yolov3DetectionOutput" bottom: "a" bottom: "b" top: "detection_out"
  include { phase: TEST }
  yolov3_detection_output_param {
    confidence_threshold: 0.25 nms_threshold: 0.45 num_classes: 20
    biases: 10 biases: 14 biases: 23 biases: 27 biases: 37 biases: 58
    biases: 81 biases: 82 biases: 135 biases: 169 biases: 344 biases: 319
    mask: 3 mask: 4 mask: 5 mask: 0 mask: 1 mask: 2 anchors_scale: 32 anchors_scale: 16 mask_group_num: 2
  }
}""")
    assert options["mask"] == (3, 4, 5, 0, 1, 2) and options["num_box"] == 3
    assert "yolov3_detection_output_param {" in written
    options, written = there_and_back("""
input: "a" input_shape { dim: 1 dim: 8 dim: 3 dim: 3 }
input: "data" input_shape { dim: 1 dim: 3 dim: 48 dim: 48 }
layer {
  name: "priors" type: "PriorBoxClustered" bottom: "a" bottom: "data" top: "priors"
  prior_box_param { width: 9.4 width: 25.1 height: 15 height: 39.6 step: 16 variance: 0.1 clip: false }
}""")
    assert options["width"] == (9.4, 25.1) and options["step"] == 16
    assert "prior_box_param {" in written
