"""R-FCN's losses, each region's too, against loops in Python's floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from core.layers.fork_nets import build, cases, run, there_and_back
from hypothesis import given
from hypothesis import strategies as st

from minicaffe import DataError, SpecError
from minicaffe.interop import caffe

seeds = st.integers(0, 2**32 - 1)
WAYS = [{}, {"normalize": False}, {"normalize": True}]
WAYS += [{"normalization": way} for way in ("FULL", "VALID", "BATCH_SIZE", "NONE")]
WAYS += [{"normalization": "PRE_FIXED", "pre_fixed_normalizer": n} for n in (0.5, 3.5)]


def normalizer(keys, n, s, valid):
    """What a sum over n samples of s places, of which `valid` count, is divided by."""
    way = keys.get("normalization", "VALID" if keys.get("normalize", True) else "BATCH_SIZE")
    given_ = keys.get("pre_fixed_normalizer")
    counts = {"FULL": n * s, "VALID": valid, "BATCH_SIZE": n, "NONE": 1, "PRE_FIXED": given_}
    return max(counts[way], 1)


def diffs(net, count):
    return [np.array(net.device.to_host(net.blobs[f"b{i}"].diff)) for i in range(count)]


@cases(40)
@given(
    st.sampled_from([(1,), (4,), (3, 1, 1), (2, 2, 3)]),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(WAYS),
    seeds,
)
def test_smooth_l1_of_each_region_against_loops(device, shape, n, weighted, keys, seed):
    """Loss, each region's, and the gradient of 0.5 of the loss and a share of each region's."""
    random, (c, *area) = np.random.default_rng(seed), shape
    s = math.prod(area)
    a, b = random.normal(size=(2, n, c, *area)) * 2
    w = random.integers(0, 4, (n, c, *area)) / 2
    arrays = [a, b, *[w] * weighted]
    shapes = [one.shape for one in arrays]
    net = build("SmoothL1LossOHEM", keys, shapes, device, tops=("l", "each"), phase="TRAIN")
    loss, each = run(net, *arrays)
    assert each.shape == (n, 1, *(area or (1, 1)))
    pull = random.normal(size=each.shape)
    net.backward(l=0.5, each=pull)
    da, db = diffs(net, 2)
    total, by = 0.0, normalizer(keys, n, s, n * s)
    for i in range(n):
        for j in range(s):
            own = 0.0
            for k in range(c):
                place = i, k, j
                weight = w.reshape(n, c, s)[place] if weighted else 1
                d = weight * (a.reshape(n, c, s)[place] - b.reshape(n, c, s)[place])
                own += d * d / 2 if abs(d) < 1 else abs(d) - 0.5
                slope = weight * max(min(d, 1), -1) * (0.5 / by + pull.reshape(n, s)[i, j])
                assert da.reshape(n, c, s)[place] == pytest.approx(slope, rel=1e-9, abs=1e-12)
                assert db.reshape(n, c, s)[place] == pytest.approx(-slope, rel=1e-9, abs=1e-12)
            assert each.reshape(n, s)[i, j] == pytest.approx(own, rel=1e-9, abs=1e-12)
            total += own
    assert loss == pytest.approx(total / by, rel=1e-9, abs=1e-12)


@cases(40)
@given(
    st.sampled_from([(), (1, 1), (2, 3)]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([None, 0, -1]),
    st.sampled_from(WAYS),
    seeds,
)
def test_softmax_of_each_label_against_loops(device, area, n, c, ignored, keys, seed):
    """Loss, each label's, and the gradient of 0.5 of the loss and a share of each label's."""
    random, s = np.random.default_rng(seed), math.prod(area)
    x = random.normal(size=(n, c, *area)) * 3
    labels = random.integers(-1 if ignored == -1 else 0, c, (n, 1, *area)) * 1.0
    more = {} if ignored is None else {"ignore_label": ignored}
    shapes, tops = [x.shape, labels.shape], ("l", "p", "each")
    net = build("SoftmaxWithLossOHEM", {**keys, **more}, shapes, device, tops=tops, phase="TRAIN")
    loss, prob, each = run(net, x, labels)
    assert each.shape == labels.shape and prob.shape == x.shape
    pull = random.normal(size=each.shape)
    net.backward(l=0.5, each=pull)
    (dx,) = diffs(net, 1)
    flat, read, total = x.reshape(n, c, s), labels.reshape(n, s), 0.0
    by = normalizer(keys, n, s, int((read != ignored).sum()))
    for i in range(n):
        for j in range(s):
            powers = [math.exp(v) for v in flat[i, :, j]]
            label = int(read[i, j])
            own = 0 if label == ignored else -math.log(powers[label] / sum(powers))
            assert each.reshape(n, s)[i, j] == pytest.approx(own, rel=1e-9, abs=1e-12)
            total += own
            for k in range(c):
                slope = powers[k] / sum(powers) - (k == label)
                slope *= (label != ignored) * (0.5 / by + pull.reshape(n, s)[i, j])
                assert dx.reshape(n, c, s)[i, k, j] == pytest.approx(slope, rel=1e-9, abs=1e-12)
    assert loss == pytest.approx(total / by, rel=1e-9, abs=1e-12)


def test_a_label_that_is_no_class():
    net = build("SoftmaxWithLossOHEM", {}, [(1, 2), (1,)])
    with pytest.raises(DataError, match="label 2 is not one of the 2 classes"):
        run(net, np.ones((1, 2)), [2])


RFCN = """
input: "scores" input_shape { dim: 6 dim: 3 }
input: "moves" input_shape { dim: 6 dim: 8 }
input: "rois" input_shape { dim: 6 dim: 5 }
input: "labels" input_shape { dim: 6 dim: 1 dim: 1 dim: 1 }
input: "weights" input_shape { dim: 6 dim: 8 }
layer {
  name: "of classes" type: "SoftmaxWithLossOHEM" bottom: "scores" bottom: "labels" top: "loss" top: "prob"
  top: "each" loss_weight: 0 loss_weight: 0 loss_weight: 0 propagate_down: false propagate_down: false
}
layer {
  name: "of boxes" type: "SmoothL1LossOHEM" bottom: "moves" bottom: "weights" bottom: "weights" top: "l"
  top: "each box" loss_weight: 0 loss_weight: 0
  propagate_down: false propagate_down: false propagate_down: false
}
layer { name: "each region" type: "Eltwise" bottom: "each" bottom: "each box" top: "each region" }
layer {
  name: "hard" type: "BoxAnnotatorOHEM" bottom: "rois" bottom: "each region" bottom: "labels" bottom: "weights"
  top: "hard labels" top: "hard weights" box_annotator_ohem_param { roi_per_img: 2 }
}
layer {
  name: "it" type: "SmoothL1LossOHEM" bottom: "moves" bottom: "weights" bottom: "hard weights" top: "it"
  loss_weight: 1 loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 128 }
  propagate_down: true propagate_down: false propagate_down: false
}
"""


def test_a_prototxt_as_r_fcns_users_write_it(device):
    options, written = there_and_back(RFCN)
    assert options["normalization"] == "PRE_FIXED" and options["pre_fixed_normalizer"] == 128
    assert "normalization: PRE_FIXED" in written
    net = caffe.parse(RFCN)
    assert [layer.loss_weight for layer in net.layers[1:3]] == [(0.0,) * 3, (0.0,) * 2]


def test_a_divisor_that_is_given_is_no_other_losses():
    text = RFCN.replace('"it" type: "SmoothL1LossOHEM"', '"it" type: "SoftmaxWithLoss"')
    with pytest.raises(SpecError, match="PRE_FIXED"):
        caffe.parse(text)
