"""Layers of forks in prototxt as the forks' users write them: read, written, and read again; their refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kit import layer_text, refusal, single

from minicaffe import Net, ShapeError, parse
from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net.yaml_text import yaml_text
from minicaffe.interop import caffe
from minicaffe.interop.caffe.prototxt import prototxt

INPUTS = """
input: "x" input_shape { dim: 6 dim: 4 }
input: "y" input_shape { dim: 6 dim: 4 }
input: "label" input_shape { dim: 6 }
input: "scores" input_shape { dim: 1 dim: 3 dim: 2 dim: 2 }
input: "places" input_shape { dim: 1 dim: 1 dim: 2 dim: 2 }
input: "image" input_shape { dim: 1 dim: 3 dim: 4 dim: 5 }
"""
XAVIER = 'weight_filler { type: "xavier" }'
LAYERS = {
    "CenterLoss": (
        """bottom: "x" bottom: "label" top: "l" param { lr_mult: 1 decay_mult: 2 } loss_weight: 0.008
        center_loss_param { num_output: 10 center_filler { type: "xavier" } }""",
        {"num_output": 10, "center_filler": Filler(type="xavier")},
    ),
    "MarginInnerProduct": (
        f"""bottom: "x" bottom: "label" top: "l" top: "lambda" param {{ lr_mult: 1 decay_mult: 1 }}
        margin_inner_product_param {{ num_output: 10 type: QUADRUPLE {XAVIER} base: 1000 gamma: 0.12 power: 1
        lambda_min: 5 iteration: 0 }}""",
        {"num_output": 10, "margin_type": "QUADRUPLE", "base": 1000.0, "lambda_min": 5.0},
    ),
    "InnerDistance": (
        f'bottom: "x" top: "l" inner_distance_param {{ num_output: 3 distance_type: "L1" {XAVIER} }}',
        {"num_output": 3, "distance_type": "L1"},
    ),
    "Flip": (
        'bottom: "image" top: "l" flip_param { flip_width: false flip_height: true }',
        {"flip_width": False, "flip_height": True},
    ),
    "L1Loss": ('bottom: "x" bottom: "y" top: "l" loss_weight: 2', {}),
    "ManhattanLoss": ('bottom: "x" bottom: "y" top: "l"', {}),
    "WeightedEuclideanLoss": ('bottom: "x" bottom: "y" bottom: "y" top: "l"', {}),
    "BatchTripletLoss": (
        """bottom: "x" bottom: "label" top: "l" top: "accuracy" top: "debug"
        triplet_loss_param { margin: 0.5 mu: 0.25 }""",
        {"margin": 0.5, "mu": 0.25},
    ),
    "DiceCoefLoss": ('bottom: "x" bottom: "y" top: "l"', {}),
    "MMDLoss": (
        """bottom: "x" bottom: "y" top: "l" loss_weight: 1
        mmd_param { kernel_num: 4 kernel_mul: 2.0 fix_gamma: true }""",
        {"kernel_num": 4, "fix_gamma": True},
    ),
    "JMMDLoss": (
        """bottom: "x" bottom: "y" bottom: "y" bottom: "x" top: "l" loss_weight: 0.3 jmmd_param { kernel_num: 5
        kernel_mul: 2.0 label_kernel_num: 1 label_kernel_mul: 2.0 sigma: 1.68 }""",
        {"label_kernel_num": 1, "sigma": 1.68},
    ),
    "EntropyLoss": (
        'bottom: "x" top: "l" loss_weight: -0.1 entropy_param { threshold: 0.01 iterations_num: 3 }',
        {"threshold": 0.01, "iterations_num": 3},
    ),
    "L2Norm": ('bottom: "x" top: "l"', {}),
    "SegAccuracy": (
        'bottom: "scores" bottom: "places" top: "l" seg_accuracy_param { ignore_label: 255 ignore_label: 0 }',
        {"ignore_label": (255, 0)},
    ),
    "SigmoidCrossEntropyBalanceLoss": ('bottom: "x" bottom: "y" top: "l" loss_weight: 1', {}),
    "ImResize": (
        'bottom: "image" top: "l" imresize_param { factor: 8 scale_gap: 0.3 start_scale: 1.0 }',
        {"factor": 8.0},
    ),
    "DenseImageData": (
        """top: "l" top: "m" transform_param { mean_value: 104.5 } dense_image_data_param { source: "PAIRS"
        batch_size: 4 shuffle: true mirror: true crop_width: 4 crop_height: 3 }""",
        {"batch_size": 4, "shuffle": True, "mirror": True, "crop_width": 4},
    ),
    "ImageLabelmapData": (
        """top: "l" top: "m" transform_param { mirror: true mean_value: 104 mean_value: 116 mean_value: 122 }
        image_data_param { root_folder: "" source: "PAIRS" batch_size: 2 shuffle: true new_height: 6
        new_width: 5 }""",
        {"batch_size": 2, "shuffle": True, "new_height": 6},
    ),
}


def full(spec):
    """The keys of the last layer, the defaults among them."""
    one = spec.layers[-1]
    defaults = {name: key.default for name, key in keys_of(REGISTRY[one.type]).items()}
    return defaults | dict(one.options)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_there_and_back(kind):
    """Its keys stand in the fork's own block, in no minicaffe_param; YAML says the same."""
    body, options = LAYERS[kind]
    if "PAIRS" in body:
        pytest.importorskip("PIL")
        body = body.replace("PAIRS", str(Path(__file__).parents[3] / "fixtures/examples/pairs.txt"))
    spec = caffe.parse(f'{INPUTS}layer {{ name: "l" type: "{kind}" {body} }}')
    found = full(spec)
    assert options.items() <= found.items()
    written = prototxt(spec, REGISTRY)
    assert "minicaffe_param" not in written
    blocks = [word for word in body.split() if word.endswith("_param")]
    assert all(block in written for block in blocks)
    assert full(caffe.parse(written)) == full(parse(yaml_text(spec, REGISTRY))) == found
    net = Net(spec, device="cpu")
    net.forward()
    net.backward()


def test_a_margin_that_is_none():
    block = "margin_inner_product_param { num_output: 3 type: QUINTUPLE }"
    text = layer_text("MarginInnerProduct", block, bottom="x label")
    assert "QUINTUPLE" in refusal(caffe.parse, INPUTS + text)


@pytest.mark.parametrize(
    ("kind", "keys", "shapes", "told"),
    [
        ("CenterLoss", "num_output: 3", [(4, 2), (3,)], "needs 4 labels, one a prediction"),
        ("MarginInnerProduct", "num_output: 3", [(4, 2), (4, 2)], "needs 4 labels"),
        ("InnerDistance", "axis: 1", [(4, 2)], "num_output: expected at least 1, or a second"),
        ("InnerDistance", "axis: 1", [(4, 2), (3, 5)], "needs vectors of 2 numbers as its second bottom"),
        ("InnerDistance", "num_output: 2", [(4, 2), (3, 2)], "here w is a bottom"),
        ("InnerDistance", "num_output: 2, update_center_only: true", [(4, 2)], "needs labels as the last bottom"),
        ("InnerDistance", "num_output: 3", [(4, 2), (3, 2), (4,)], "takes a third bottom, labels"),
        ("Flip", "flip_width: true", [(4, 2)], "needs a bottom of 4 axes"),
        ("L1Loss", "loss_weight: 1", [(4, 2), (4, 3)], "needs bottoms of as many samples and entries"),
        ("WeightedEuclideanLoss", "loss_weight: 1", [(4, 2), (4, 2), (4,)], "needs bottoms of as many samples"),
        ("BatchTripletLoss", "loss_weight: 1", [(4, 2), (3,)], "needs 4 labels, one a prediction"),
        ("DiceCoefLoss", "loss_weight: 1", [(4, 2), (2, 4)], "needs bottoms of as many samples and entries"),
        ("MMDLoss", "loss_weight: 1", [(4, 2), (1, 2)], "needs two bottoms of at least 2 samples"),
        ("MMDLoss", "loss_weight: 1", [(4, 2), (4, 3)], "with as many entries"),
        ("SigmoidCrossEntropyBalanceLoss", "loss_weight: 1", [(4, 2), (4, 3)], "needs bottoms of"),
        ("WeightedSoftmaxWithLoss", "class_weighting: [1, 2]", [(2, 3), (2,)], "expected 3 weights, one a class, got 2"),
        ("SegAccuracy", "ignore_label: 1", [(2, 3), (2,)], "needs scores of 4 axes"),
        ("SegAccuracy", "ignore_label: 1", [(2, 3, 4, 4), (2, 1, 4, 5)], "needs 32 labels"),
        ("DilatedPooling", "kernel_size: 2", [(2, 3)], "needs a bottom of 4 axes"),
        ("DilatedPooling", "kernel_size: 2, dilation: 3, pad: 4", [(1, 2, 4, 4)], "pad 4 must be sm"),
        ("ImResize", "factor: 2", [(2, 3)], "needs a bottom of 4 axes"),
        ("ImResize", "factor: 0.1", [(1, 2, 4, 4)], "factor 0.1 leaves nothing"),
        ("ImResize", "scale_gap: 1", [(2, 1, 4, 4)], "cut borders of"),
        ("ImResize", "start_scale: 2", [(1, 1, 4, 4)], "cut borders of"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(kind, keys, shapes, told):
    bottoms = [np.ones(shape) for shape in shapes]
    assert told in refusal(single, kind, keys, bottoms, error=ShapeError)
