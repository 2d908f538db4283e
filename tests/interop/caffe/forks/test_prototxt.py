"""Layers of forks in prototxt as the forks' users write them: read, written, and read again; their refusals."""

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

REGION, MAPS, LABELS = (6, 5), (1, 4, 8, 8), (1, 1, 2, 2)
XAVIER = 'weight_filler { type: "xavier" }'
MOVED = """bbox_reg_param { bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0
 bbox_std: 0.1 bbox_std: 0.1 bbox_std: 0.2 bbox_std: 0.2 }"""
# The type, its bottoms' shapes, and what else its users write: tops but the first, keys; some of which are then read.
LAYERS = [
    ("CenterLoss", [(6, 4), (6,)],
     f"param {{ lr_mult: 1 decay_mult: 2 }} loss_weight: 0.008 center_loss_param {{ num_output: 10 {XAVIER.replace('weight', 'center')} }}",
     {"num_output": 10, "center_filler": Filler(type="xavier")}),
    ("MarginInnerProduct", [(6, 4), (6,)],
     f"""top: "lambda" param {{ lr_mult: 1 decay_mult: 1 }} margin_inner_product_param {{ num_output: 10
     type: QUADRUPLE {XAVIER} base: 1000 gamma: 0.12 power: 1 lambda_min: 5 iteration: 0 }}""",
     {"num_output": 10, "margin_type": "QUADRUPLE", "base": 1000.0, "lambda_min": 5.0}),
    ("InnerDistance", [(6, 4)], f'inner_distance_param {{ num_output: 3 distance_type: "L1" {XAVIER} }}',
     {"num_output": 3, "distance_type": "L1"}),
    ("Flip", [(1, 3, 4, 5)], "flip_param { flip_width: false flip_height: true }",
     {"flip_width": False, "flip_height": True}),
    ("L1Loss", [(6, 4)] * 2, "loss_weight: 2", {}),
    ("ManhattanLoss", [(6, 4)] * 2, "", {}),
    ("WeightedEuclideanLoss", [(6, 4)] * 3, "", {}),
    ("BatchTripletLoss", [(6, 4), (6,)],
     'top: "accuracy" top: "debug" triplet_loss_param { margin: 0.5 mu: 0.25 }', {"margin": 0.5, "mu": 0.25}),
    ("DiceCoefLoss", [(6, 4)] * 2, "", {}),
    ("MMDLoss", [(6, 4)] * 2, "loss_weight: 1 mmd_param { kernel_num: 4 kernel_mul: 2.0 fix_gamma: true }",
     {"kernel_num": 4, "fix_gamma": True}),
    ("JMMDLoss", [(6, 4)] * 4, """loss_weight: 0.3 jmmd_param { kernel_num: 5 kernel_mul: 2.0 label_kernel_num: 1
     label_kernel_mul: 2.0 sigma: 1.68 }""", {"label_kernel_num": 1, "sigma": 1.68}),
    ("EntropyLoss", [(6, 4)], "loss_weight: -0.1 entropy_param { threshold: 0.01 iterations_num: 3 }",
     {"threshold": 0.01, "iterations_num": 3}),
    ("L2Norm", [(6, 4)], "", {}),
    ("SegAccuracy", [(1, 3, 2, 2), LABELS], "seg_accuracy_param { ignore_label: 255 ignore_label: 0 }",
     {"ignore_label": (255, 0)}),
    ("SigmoidCrossEntropyBalanceLoss", [(6, 4)] * 2, "loss_weight: 1", {}),
    ("ImResize", [(1, 3, 4, 5)], "imresize_param { factor: 8 scale_gap: 0.3 start_scale: 1.0 }", {"factor": 8.0}),
    ("DenseImageData", [], """top: "m" transform_param { mean_value: 104.5 } dense_image_data_param { source: "PAIRS"
     batch_size: 4 shuffle: true mirror: true crop_width: 4 crop_height: 3 }""",
     {"batch_size": 4, "shuffle": True, "mirror": True, "crop_width": 4}),
    ("ImageLabelmapData", [], """top: "m" transform_param { mirror: true mean_value: 104 mean_value: 116
     mean_value: 122 } image_data_param { root_folder: "" source: "PAIRS" batch_size: 2 shuffle: true new_height: 6
     new_width: 5 }""", {"batch_size": 2, "shuffle": True, "new_height": 6}),
    ("FlowWarp", [MAPS, (1, 2, 8, 8)], "flow_warp_param { fill_value: NOT_A_NUMBER }", {"fill_value": "NOT_A_NUMBER"}),
    ("Correlation", [MAPS] * 2, "correlation_param { pad: 20 kernel_size: 1 max_displacement: 20 stride_1: 1 stride_2: 2 }",
     {"pad": 20, "stride_2": 2, "max_displacement": 20}),
    ("BilinearInterpolation", [MAPS], "bilinear_interpolation_param { interpolation_factor: 4 }",
     {"interpolation_factor": 4}),
    ("CompactBilinear", [MAPS] * 2, "compact_bilinear_param { num_output: 8192 sum_pool: false }",
     {"num_output": 8192, "sum_pool": False}),
    ("Reorg", [MAPS], "reorg_param { stride: 2 }", {"stride": 2, "reverse": False}),
    ("DeformableConvolution", [MAPS, (1, 72, 8, 8)],
     f"""param {{ lr_mult: 1 }} param {{ lr_mult: 2 }} deformable_convolution_param {{ num_output: 512 kernel_size: 3
     stride: 1 pad: 2 engine: 1 dilation: 2 deformable_group: 4 {XAVIER} bias_filler {{ type: "constant" }} }}""",
     {"num_output": 512, "kernel_size": (3,), "dilation": (2,), "deformable_group": 4, "group": 1}),
    ("DeformableConvolution", [MAPS, (1, 2, 8, 8)], "deformable_convolution_param { num_output: 2 kernel_size: 1 }",
     {"weight_filler": Filler(type="constant")}),  # as Caffe's weights start
    ("Lstm", [(8, 5), (8,)], """lstm_param { num_output: 15 clipping_threshold: 0.1 batch_size: 2
     weight_filler { type: "gaussian" std: 0.1 } bias_filler { type: "constant" } }""",
     {"num_output": 15, "weight_filler": Filler(type="gaussian", std=0.1)}),
    ("Lstm", [(8, 5)], "lstm_param { num_output: 2 }", {"weight_filler": Filler(type="constant")}),
    ("ContinuationIndicator", [], "continuation_indicator_param { time_step: 80 batch_size: 16 }",
     {"time_step": 80, "batch_size": 16}),
    ("Reverse", [(8, 2, 5)], "reverse_param { axis: 1 }", {"axis": 1}),
    ("Transpose", [(8, 2, 5)], "transpose_param { dim: 2 dim: 0 dim: 1 }", {"dim": (2, 0, 1)}),
    ("CtcLoss", [(8, 2, 5), (2, 3)], "loss_weight: 1.0 ctc_loss_param { blank_label: 4 alphabet_size: 5 time_step: 8 }",
     {"blank_label": 4, "alphabet_size": 5, "time_step": 8}),
    ("CTCLoss", [(8, 2, 5), (8, 2), (8, 2)], "ctc_loss_param { blank_index: 4 preprocess_collapse_repeated: true }",
     {"blank_index": 4, "preprocess_collapse_repeated": True}),
    ("CTCGreedyDecoder", [(8, 2, 5), (8, 2)], "ctc_decoder_param { ctc_merge_repeated: false blank_index: 1 }",
     {"ctc_merge_repeated": False, "blank_index": 1}),
    ("ROIWarping", [MAPS, REGION], "roi_warping_param { pooled_w: 28 pooled_h: 28 spatial_scale: 0.0625 }",
     {"pooled_w": 28, "pooled_h": 28, "spatial_scale": 0.0625}),
    ("MaskResize", [(6, 1, 21, 21)], "mask_resize_param { output_height: 14 output_width: 14 }",
     {"output_height": 14, "output_width": 14}),
    ("PSROIPooling", [(1, 392, 14, 14), REGION], "psroi_pooling_param { spatial_scale: 0.0625 output_dim: 8 group_size: 7 }",
     {"spatial_scale": 0.0625, "output_dim": 8, "group_size": 7}),
    ("BoxAnnotatorOHEM", [REGION, (6,), (6,), (6, 8)],
     """top: "bbox_loss_weights_ohem" propagate_down: false propagate_down: false propagate_down: false
     propagate_down: false box_annotator_ohem_param { roi_per_img: 128 ignore_label: -1 }""", {"roi_per_img": 128}),
    ("Proposal", [(1, 18, 3, 4), (1, 36, 3, 4), (1, 3)], """top: "scores" proposal_param { ratio: 0.5 ratio: 1.0
     ratio: 2.0 scale: 8 scale: 16 scale: 32 base_size: 16 feat_stride: 16 pre_nms_topn: 6000 post_nms_topn: 300
     nms_thresh: 0.7 min_size: 16 }""", {"ratio": (0.5, 1, 2), "scale": (8, 16, 32)}),
    ("SmoothL1LossOHEM", [(6, 8)] * 3, """loss_weight: 1 loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 128 }
     propagate_down: true propagate_down: false propagate_down: false""",
     {"normalization": "PRE_FIXED", "pre_fixed_normalizer": 128}),
    ("Yolov3DetectionOutput", [(1, 75, 13, 13), (1, 75, 26, 26)],
     """include { phase: TEST } yolov3_detection_output_param { confidence_threshold: 0.25 nms_threshold: 0.45
     num_classes: 20 biases: 10 biases: 14 biases: 23 biases: 27 biases: 37 biases: 58 biases: 81 biases: 82
     biases: 135 biases: 169 biases: 344 biases: 319 mask: 3 mask: 4 mask: 5 mask: 0 mask: 1 mask: 2
     anchors_scale: 32 anchors_scale: 16 mask_group_num: 2 }""", {"mask": (3, 4, 5, 0, 1, 2), "num_box": 3}),
    ("PriorBoxClustered", [(1, 8, 3, 3), (1, 3, 48, 48)], """prior_box_param { width: 9.4 width: 25.1 height: 15
     height: 39.6 step: 16 variance: 0.1 clip: false }""", {"width": (9.4, 25.1), "step": 16}),
    ("BoxOutput", [(1, 6, 4, 6), (1, 6, 2, 3)], f"""box_output_param {{ fg_thr: -10 iou_thr: 0.65 nms_type: "IOU"
     field_w: 20 field_w: 28 field_h: 40 field_h: 56 downsample_rate: 8 downsample_rate: 16 field_whr: 2 field_xyr: 2
     max_nms_num: 3000 }} {MOVED}""", {"field_w": (20, 28), "bbox_std": (0.1, 0.1, 0.2, 0.2)}),
    ("DecodeBBox", [(6, 8), REGION], f"""{MOVED} decode_bbox_param {{ gt_iou_thr: 0.9 }} propagate_down: 0
     propagate_down: 0""", {"gt_iou_thr": 0.9, "bbox_std": (0.1, 0.1, 0.2, 0.2)}),
    *[
        (kind, [MAPS, REGION], """roi_pooling_param { pooled_w: 5 pooled_h: 3 spatial_scale: 0.125 pad_ratio: 0.25 }
         propagate_down: 1 propagate_down: 0""", {"pad_ratio": 0.25, "pooled_w": 5})
        for kind in ("ROIAlign", "ROIPooling")
    ],
]  # fmt: skip


def net_text(kind, shapes, body):
    """A net of inputs b0, b1, ... of these shapes and of one layer `l`."""
    dims = [" ".join(f"dim: {one}" for one in shape) for shape in shapes]
    inputs = [f'input: "b{i}" input_shape {{ {dim} }}\n' for i, dim in enumerate(dims)]
    bottom = " ".join(f"b{i}" for i in range(len(shapes)))
    return "".join(inputs) + layer_text(kind, body, bottom=bottom)


def full(spec):
    """The keys of the last layer, the defaults among them."""
    one = spec.layers[-1]
    defaults = {name: key.default for name, key in keys_of(REGISTRY[one.type]).items()}
    return defaults | dict(one.options)


@pytest.mark.parametrize(("kind", "shapes", "body", "options"), LAYERS)
def test_a_layer_there_and_back(kind, shapes, body, options):
    """Its keys stand in the fork's own block, in no minicaffe_param; YAML says the same."""
    if "PAIRS" in body:
        pytest.importorskip("PIL")
        body = body.replace("PAIRS", str(Path(__file__).parents[3] / "fixtures/examples/pairs.txt"))
    spec = caffe.parse(net_text(kind, shapes, body))
    found = full(spec)
    assert options.items() <= found.items()
    written = prototxt(spec, REGISTRY)
    assert "minicaffe_param" not in written
    blocks = [word for word in body.split() if word.endswith("_param")]
    assert all(f"{block} {{" in written for block in blocks)
    assert full(caffe.parse(written)) == full(parse(yaml_text(spec, REGISTRY))) == found
    net = Net(spec, device="cpu")
    net.forward()
    net.backward()


def test_a_margin_that_is_none():
    block = "margin_inner_product_param { num_output: 3 type: QUINTUPLE }"
    assert "QUINTUPLE" in refusal(
        caffe.parse, net_text("MarginInnerProduct", [(6, 4), (6,)], block)
    )


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
