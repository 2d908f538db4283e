"""Layers of regions and flows: what is refused, numbers of regions that change, flows that are no numbers."""

import numpy as np
import pytest
from core.layers.fork_nets import build, run
from core.layers.rows.detection import MAPS, REGIONS
from kit import refusal, small_net

from minicaffe import DataError, SpecError
from minicaffe.interop import caffe

POOLED = "ROIPooling bottom: [x, rois], pooled_h: 2, pooled_w: 3"


def pool(device="cpu", dtype=None):
    inputs = {"x": [2, 3, 5, 6], "rois": [4, 5]}
    layers = [f"pool {POOLED}", "sum Eltwise bottom: [pool, pool], loss_weight: 1"]
    return small_net(inputs, *layers, head="force_backward: true", device=device, dtype=dtype)


def test_an_image_that_is_not_there_is_named(device):
    net = pool(device)

    def work():
        net.forward(x=MAPS, rois=np.add(REGIONS, [2, 0, 0, 0, 0]))
        assert np.isnan(net.loss)
        net.check()

    told = refusal(work, error=DataError)
    assert "layer 'pool'" in told and "region 0 is of image 2; there are 2: 0..1" in told


@pytest.mark.parametrize(
    ("kind", "keys", "arrays", "told"),
    [
        *[
            ("ROIWarping", {"pooled_h": 1, "pooled_w": 1}, [np.ones((2, 1, 2, 2)), [[0, 0, 0, 1, side]]],
             "is too far from its map")
            for side in (np.nan, np.inf, 1e30)
        ],
        ("SoftmaxWithLossOHEM", {}, [np.ones((1, 2)), [2]], "label 2 is not one of the 2 classes"),
        ("DecodeBBox", {"phase": "TRAIN"}, [np.zeros((1, 8)), [[0, 9, 9, 1, 1]]], "no region is left"),
    ],
)  # fmt: skip
def test_what_is_refused(device, kind, keys, arrays, told):
    keys = dict(keys)
    net = build(
        kind, keys, [np.shape(one) for one in arrays], device, phase=keys.pop("phase", "TEST")
    )
    if kind == "SoftmaxWithLossOHEM" and device.is_cuda:
        run(net, *arrays)
        assert told in refusal(net.check, error=DataError)
    else:
        assert told in refusal(run, net, *arrays, error=DataError)


def test_a_fourth_number_is_the_scale_of_columns():
    keys = {"ratio": [1], "scale": [1], "min_size": 10, "nms_thresh": 1}
    net = build("Proposal", keys, [(1, 2, 1, 1), (1, 4, 1, 1), (1, 4)], tops=("rois", "scores"))
    for scales, score in (((1, 1), 0.5), ((2, 1), 0), ((1, 2), 0)):
        given = np.full((1, 2, 1, 1), 0.5), np.zeros((1, 4, 1, 1)), [[99, 99, *scales]]
        assert run(net, *given)[1] == score


def test_a_cascade_of_regions(device):
    """As Cascade R-CNN: proposed, pooled, moved by what was pooled, and pooled again."""
    net = small_net(
        {"a": [1, 6, 4, 6], "b": [1, 6, 2, 3], "maps": [1, 3, 4, 6]},
        "rois BoxOutput bottom: [a, b], fg_thr: -10, iou_thr: 0.65, field_w: [20, 28], field_h: [40, 56],"
        " downsample_rate: [8, 16], bbox_std: [0.1, 0.1, 0.2, 0.2], bbox_mean: [0, 0, 0, 0]",
        "pooled ROIPooling bottom: [maps, rois], pooled_h: 3, pooled_w: 2, spatial_scale: 0.125",
        "moves InnerProduct num_output: 8",
        "next DecodeBBox bottom: [moves, rois], propagate_down: [false, false]",
        "it ROIAlign bottom: [maps, next], pooled_h: 5, pooled_w: 5, spatial_scale: 0.125",
        phase="TEST",
        device=device,
    )
    for scores in (1, np.arange(144).reshape(1, 6, 4, 6)):
        it = net.forward(a=np.ones((1, 6, 4, 6)) * scores)["it"]
        assert it.shape == (len(net.blobs["rois"].data), 3, 6, 6)


MINED = """
input: "x" input_shape { dim: 6 dim: 3 }
input: "labels" input_shape { dim: 6 dim: 1 dim: 1 dim: 1 }
layer { name: "loss" type: "SoftmaxWithLossOHEM" bottom: "x" bottom: "labels" top: "loss" top: "prob" top: "each"
  loss_weight: 0 loss_weight: 0 loss_weight: 0 propagate_down: false propagate_down: false
  loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 128 } }
"""


def test_losses_of_which_none_counts():
    assert caffe.parse(MINED).layers[-1].loss_weight == (0.0,) * 3


def test_a_divisor_that_is_given_is_no_other_losses():
    assert "PRE_FIXED" in refusal(
        caffe.parse, MINED.replace("SoftmaxWithLossOHEM", "SoftmaxWithLoss"), error=SpecError
    )


def test_a_flow_that_is_no_number_is_outside(device):
    net = build("FlowWarp", {}, [(1, 1, 2, 2), (1, 2, 2, 2)], device, phase="TRAIN")
    flow = np.zeros((1, 2, 2, 2))
    flow[0, 0, 1, 1], flow[0, 1, 0, 0] = np.nan, np.inf
    np.testing.assert_array_equal(run(net, np.ones((1, 1, 2, 2)), flow)[0], [[[[0, 1], [1, 0]]]])
    net.backward(it=np.ones((1, 1, 2, 2)))
    np.testing.assert_array_equal(device.to_host(net.blobs["b0"].diff), [[[[0, 1], [1, 0]]]])
