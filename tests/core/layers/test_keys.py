"""No key of a layer is ignored: given another value, some row gives other numbers, other shapes or an error."""

import itertools
import string
import typing
from pathlib import Path
from types import NoneType

import kit
import numpy as np
import pytest
import yaml
from core.layers import rows
from core.layers.rows.detection import PRIORS

from minicaffe import MinicaffeError
from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import Key, keys_of
from minicaffe.core.layers import REGISTRY

FED = "Data DenseImageData ImageData ImageLabelmapData VideoData AnnotatedData"


def named(text):
    """(type, key) of lines of types, a colon and keys; a comment may follow."""
    lines = [line.partition("#")[0].split(":") for line in text.strip().splitlines()]
    pairs = [itertools.product(types.split(), keys.split()) for types, keys in lines]
    return set(itertools.chain(*pairs))


# They say how, not what, is computed; or what `visualize`, refused, would show.
WITHOUT_EFFECT = named(f"""
{FED}: workers feed prefetch on_error # no picture here is damaged
AnnotatedData: label_map_file anno_type
BatchNorm: sync # of one rank all is the same: tests/tools/parallel
Convolution Deconvolution: engine force_nd_im2col
CTCLoss: loss_calculation_t
DetectionEvaluate: name_size_file resize_param show_per_class_result
DetectionEvaluate: ap_version # of a test's score: test_evaluate
Data: shape # it is for a source that is gone
DetectionOutput: save_file visualize_threshold
Eltwise: stable_prod_grad
Im2col: force_nd_im2col
JMMDLoss MMDLoss: fix_gamma # each pass is of the same numbers: references/metrics.py draws others
Python: share_in_parallel
WindowData: cache_images
""")
# In the rows any other value is refused: it wants other keys, bottoms or files.
REFUSED = named("""
AnnotatedData: backend source
CenterLoss: axis
CtcLoss: alphabet_size time_step
Data: backend force_encoded_color source
DeformableConvolution: deformable_group kernel_h kernel_size kernel_w
DenseImageData ImageData ImageLabelmapData VideoData WindowData: root_folder source
DetectionOutput: num_classes save_output_param share_location visualize
InfogainLoss: normalize source
LSTM RNN: debug_info expose_hidden
MultiBoxLoss: num_classes share_location do_neg_mining background_label_id map_object_to_agnostic
PSROIPooling: group_size output_dim
Pooling: global_pooling
Python: layer module
Yolov3DetectionOutput: mask_group_num num_box num_classes
""")


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


BOTTOMS = {  # what the tables' bottoms are made of
    **{name: getattr(np, name) for name in ("arange", "array", "ones", "zeros")},
    "normal": normal,
    "LABELS": np.array([1.0, 0.0, 1.0]),
    "SAID": np.array([[1.0] * 2, *[[-1.0] * 2] * 5]),
    "REGIONS": np.array([[0, 0, 1, 0], [0] * 4, [0] * 4, [9] * 4, [9] * 4]).T,
    "MAPS": np.random.default_rng(4).random((1, 24, 2, 3)) / 2,
    "MATCHES": np.array([[0, 0, 0, 0, 0, 0.3], [0, 0, 0, 0, 0, 0.97]] * 2),
    "PRIORS": PRIORS,
    "OUTSIDE": PRIORS * np.array([[[1.3] * 12, [1] * 12]]),
    "TRUTH": [[[[0, 1, 0, 0.15, 0.1, 0.6, 0.6, 0], [0, 2, 0, 0.7, 0.7, 1, 1, 1]]]],
    "FOUND": [
        [[[0, 1, 0.9, 0.1, 0.1, 0.6, 0.6], [0, 2, 0.8, 0.7, 0.7, 1, 1], [0, 2, 0.7, 0, 0, 1, 1]]]
    ],
}
FILES = Path(__file__).parent.parent.parent / "fixtures" / "examples"
TEXTS = {  # keys that the tables name
    "BOX": "min_size: [8], max_size: [12], aspect_ratio: [2]",
    "CLUSTERED": "width: [9, 20], height: [12, 7]",
    "YOLO": "num_classes: 2, num_box: 1, biases: [30, 20, 9, 40], mask: [0, 1], anchors_scale: [32, 16]",
    "PROPOSED": "ratio: [1, 2], scale: [1, 2], pre_nms_topn: 12, post_nms_topn: 5",
    "BOXED": "field_w: 8, field_h: 12, downsample_rate: 8, min_size: 2, fg_thr: -3, top: [a, b],"
    " bbox_mean: [0.1, 0.1, 0.1, 0.1], bbox_std: [0.5, 0.5, 0.5, 0.5]",
    "MINED": "num_classes: 3, mining_type: HARD_EXAMPLE, overlap_threshold: 0.3",
    "WEIGHTED": "class_weighting: [1, 2, 3]",
    "SIZE": "new_height: 4, new_width: 4",
    "PAIRS": f"source: {FILES}/pairs.txt, batch_size: 2, top: [a, b]",
    "CLIPS": f"source: {FILES}/clips.txt, batch_size: 2, top: [a, b]",
    "PICTURES": f"source: {FILES}/images.txt, batch_size: 2, top: [a, b]",
    "WINDOWS": f"source: {FILES}/windows.txt, batch_size: 4, top: [a, b]",
    "DATABASE": f"source: {FILES}/lmdb, batch_size: 2, backend: LMDB, top: [a, b]",
    "BOXES": f"source: {FILES}/boxes_lmdb, batch_size: 2, top: [a, b]",
}


def table(text):
    """The rows of a table: the first cell, then what YAML the others hold; of the last, the bottoms."""
    for name, keys, *value, bottoms in (row.values for row in kit.rows(text)):
        keys = yaml.safe_load(f"{{{string.Template(keys).substitute(TEXTS)}}}")
        found = [yaml.safe_load(cell) for cell in value]
        yield name, (keys, *found, eval(f"[{bottoms}]", BOTTOMS))


# What the rows do not hold: type and keys, the layer's keys, the key's other value, bottoms.
MORE = {
    pair: row
    for name, row in table("""
Accuracy: axis | | 2 | normal(3, 2, 3, 3), arange(6.0).reshape(2, 3) % 3
AnnotatedData: batch_sampler | $BOXES, transform: {resize_param: {height: 9, width: 9}} | [{sampler: {min_scale: 0.3}}] |
AnnotatedData: transform | $BOXES | {crop_h: 20, crop_w: 20} |
BoxOutput: bbox_mean bbox_std | $BOXED | [0.2, 0.1, 0.1, 0.3] | normal(9, 1, 7, 3, 4)
BoxOutput: min_size | $BOXED | 9 | normal(9, 1, 7, 3, 4)
CenterLoss: num_output | num_output: 2 | 3 | (3, 2), LABELS
Concat: axis | axis: 1 | 2 | (2, 3, 4), (2, 3, 4)
CTCLoss: blank_index | | 0 | normal(5, 6, 2, 3), ones((6, 2)), SAID
Data: new_height new_width | $PICTURES, $SIZE | 5 |
Data: split | $PICTURES | 0.5 |
Data: transform | $DATABASE | {scale: 0.5} |
DecodeBBox: bbox_mean bbox_std | bbox_mean: [0.1, 0.1, 0.1, 0.1], bbox_std: [0.5, 0.5, 0.5, 0.5] | [0.2, 0.1, 0.1, 0.3] | normal(9, 4, 8), REGIONS, MATCHES
DeformableConvolution: dilation | num_output: 2, kernel_size: 2, stride: 5 | 2 | (1, 2, 5, 5), (1, 8, 1, 1)
DeformableConvolution: group | num_output: 2, kernel_size: 3, stride: 5 | 2 | (1, 2, 5, 5), (1, 18, 1, 1)
DeformableConvolution: pad pad_h pad_w | num_output: 2, kernel_size: 3, stride: 5 | 1 | (1, 2, 5, 5), (1, 18, 1, 1)
DeformableConvolution: stride | num_output: 2, kernel_size: 1, stride: 2 | 3 | (1, 2, 4, 4), (1, 2, 2, 2)
DeformableConvolution: stride_h stride_w | num_output: 2, kernel_size: 1, stride_h: 2, stride_w: 2 | 3 | (1, 2, 4, 4), (1, 2, 2, 2)
DenseImageData: crop_height crop_width | $PAIRS, crop_height: 4, crop_width: 4 | 5 |
DenseImageData: label_divide_factor | $PAIRS, new_height: 4, new_width: 6 | 2 |
DenseImageData ImageLabelmapData: new_height new_width | $PAIRS, $SIZE | 5 |
DenseImageData ImageLabelmapData: transform | $PAIRS | {scale: 0.5} |
DetectionEvaluate: num_classes | num_classes: 3 | 4 | (1, 1, 2, 7), TRUTH
DetectionOutput: nms_param | num_classes: 3 | {top_k: 1} | normal(2, 1, 12), normal(3, 1, 9), PRIORS
DummyData: data_filler | shape: {dim: [2]} | {type: constant, value: 2} |
DummyData: shape | shape: {dim: [2]} | {dim: [3]} |
Eltwise: coeff | | [2, 0.5] | (2, 3, 4), (2, 3, 4)
Embed: input_dim | num_output: 2, input_dim: 4 | 5 | array([0, 1])
ImageData: new_height new_width | $PICTURES, $SIZE | 5 |
ImageData: transform | $PICTURES | {scale: 0.5} |
InfogainLoss: axis | axis: 1 | 2 | (2, 3, 3), ones((2, 3)), arange(1.0, 10).reshape(3, 3)
InnerDistance: update_center_only | num_output: 3 | true | (3, 1), LABELS
MarginInnerProduct: axis | num_output: 2, weight_filler: gaussian | 0 | (1, 3), LABELS[:1]
MarginInnerProduct: num_output | num_output: 2, weight_filler: gaussian | 3 | (3, 2), LABELS
MultiBoxLoss: ignore_cross_boundary_bbox bp_inside | num_classes: 3 | true | normal(7, 1, 12), normal(8, 1, 9), OUTSIDE, TRUTH
MultiBoxLoss: nms_param | $MINED, use_prior_for_nms: true | {nms_threshold: 0.05} | normal(7, 1, 12), normal(8, 1, 9), OUTSIDE, TRUTH
MultiBoxLoss: sample_size | $MINED | 1 | normal(7, 1, 12), normal(8, 1, 9), OUTSIDE, TRUTH
MultiBoxLoss: use_prior_for_nms | $MINED, nms_param: {nms_threshold: 0.2} | true | normal(7, 1, 12), normal(8, 1, 9), OUTSIDE, TRUTH
Pooling: kernel_h kernel_w | kernel_h: 2, kernel_w: 2 | 3 | (2, 3, 5, 5)
Pooling: stride_h stride_w | kernel_size: 2, stride_h: 1, stride_w: 1 | 2 | (2, 3, 5, 5)
PriorBox: max_size | $BOX | [15] | (1, 2, 3, 3), (1, 3, 30, 40)
PriorBoxClustered: height | $CLUSTERED | [12, 8] | (1, 2, 3, 3), (1, 3, 30, 40)
PriorBoxClustered: width | $CLUSTERED | [9, 8] | (1, 2, 3, 3), (1, 3, 30, 40)
Proposal: min_size | $PROPOSED, top: [a, b] | 30 | MAPS[:, :8], MAPS[:, 8:], array([[60.0, 60, 1]])
Proposal: ratio scale | $PROPOSED | [1, 3] | MAPS[:, :8], MAPS[:, 8:], array([[60.0, 60, 1]])
Reshape: shape | shape: {dim: [2, 12]} | {dim: [3, 8]} | (2, 3, 4)
SoftmaxWithLoss SoftmaxWithLossOHEM: axis | axis: 1 | 2 | (2, 3, 3), ones((2, 3))
Transpose: dim | dim: [2, 0, 1] | [0, 2, 1] | (2, 3, 4)
Upsample: pad_out_h | scale: 2 | true | (2, 3, 2, 2), zeros((2, 3, 2, 2))
Upsample: upsample_h upsample_w | upsample_h: 4, upsample_w: 4 | 5 | (2, 3, 2, 2), zeros((2, 3, 2, 2))
VideoData: new_height new_width | $CLIPS, $SIZE | 5 |
VideoData: transform | $CLIPS | {scale: 0.5} |
WeightedSoftmaxWithLoss: axis | $WEIGHTED | 2 | (2, 3, 3), ones((2, 3))
WeightedSoftmaxWithLoss: class_weighting | $WEIGHTED | [1, 3, 3] | (2, 3), ones(2)
WindowData: bg_threshold | $WINDOWS, transform: {crop_size: 8}, bg_threshold: 0.5 | 0.05 |
WindowData: fg_fraction | $WINDOWS, transform: {crop_size: 8} | 0.75 |
WindowData: fg_threshold | $WINDOWS, transform: {crop_size: 8}, fg_fraction: 1.0 | 0.7 |
WindowData: transform | $WINDOWS, transform: {crop_size: 8} | {crop_size: 8, scale: 0.5} |
Yolov3DetectionOutput: anchors_scale | $YOLO | [32, 8] | normal(6, 1, 7, 2, 2), normal(7, 1, 7, 3, 3)
Yolov3DetectionOutput: biases | $YOLO | [30, 21, 9, 40] | normal(6, 1, 7, 2, 2), normal(7, 1, 7, 3, 3)
Yolov3DetectionOutput: mask | $YOLO | [1, 0] | normal(6, 1, 7, 2, 2), normal(7, 1, 7, 3, 3)
""")
    for pair in named(name)
}
# Rows of types without a gradient.
FORWARD = list(
    table("""
Accuracy | | normal(2, 6, 3, 3), arange(18.0).reshape(6, 3) % 3
AnnotatedData | $BOXES |
BoxAnnotatorOHEM | roi_per_img: 2, top: [a, b] | REGIONS, array([1.0, 3, 2, 4]), ones(4), ones((4, 4))
BoxOutput | $BOXED | normal(9, 1, 7, 3, 4)
ContinuationIndicator | time_step: 4, batch_size: 5 |
CTCGreedyDecoder | top: [a, b] | normal(5, 6, 2, 3), ones((6, 2))
Data | $DATABASE |
DecodeBBox | | normal(9, 4, 8), REGIONS, MATCHES
DenseImageData | $PAIRS |
DetectionEvaluate | num_classes: 3 | FOUND, TRUTH
DetectionOutput | num_classes: 3 | normal(2, 1, 12), normal(3, 1, 9), PRIORS
DummyData | shape: [{dim: [2, 3]}], data_filler: [gaussian] |
DummyData | num: 2, channels: 2, height: 2, width: 2, data_filler: [gaussian] |
ImageData | $PICTURES |
ImageLabelmapData | $PAIRS |
PriorBox | $BOX | (1, 2, 3, 3), (1, 3, 30, 40)
PriorBox | $BOX, img_h: 40, img_w: 50 | (1, 2, 3, 3), (1, 3, 30, 40)
PriorBox | $BOX, step_h: 4, step_w: 5 | (1, 2, 3, 3), (1, 3, 30, 40)
PriorBoxClustered | $CLUSTERED | (1, 2, 3, 3), (1, 3, 30, 40)
PriorBoxClustered | $CLUSTERED, img_h: 40, img_w: 50 | (1, 2, 3, 3), (1, 3, 30, 40)
PriorBoxClustered | $CLUSTERED, step_h: 4, step_w: 5 | (1, 2, 3, 3), (1, 3, 30, 40)
Proposal | $PROPOSED, top: [a, b] | MAPS[:, :8], MAPS[:, 8:], array([[60.0, 60, 1]])
SegAccuracy | | normal(8, 2, 3, 2, 3), arange(12.0).reshape(2, 1, 2, 3) % 3
VideoData | $CLIPS |
WindowData | $WINDOWS, transform: {crop_size: 8} |
Yolov3DetectionOutput | $YOLO | normal(6, 1, 7, 2, 2), normal(7, 1, 7, 3, 3)
""")
)
ROWS = rows.ROWS | {name: [row for one, row in FORWARD if one == name] for name, _ in FORWARD}
KEYS = [
    (name, key)
    for name in ROWS
    for key in keys_of(REGISTRY[name]).values()
    if (name, key.name) not in WITHOUT_EFFECT
]


def others(key: Key) -> list[object]:
    """Values for a key that are not its default."""
    kinds = [one for one in typing.get_args(key.type) or (key.type,) if one is not NoneType]
    words = [one for one in (key.type, *kinds) if typing.get_origin(one) is typing.Literal]
    if words:
        found = list(typing.get_args(words[0]))
    elif typing.get_origin(key.type) is tuple:
        found = [] if kinds[0] not in (int, float, bool) else [kinds[0](n) for n in (1, 2, 3)]
    elif bool in kinds:
        found = [True, False]
    elif int in kinds:
        found = [1, 2, 3, 0, -1]
    elif float in kinds:
        found = [0.25, 2.0, -0.5, 1.5]
    elif Filler in kinds:
        found = [{"type": "constant", "value": 0.7}, {"type": "constant", "value": 0.2}]
    else:
        found = ["no such", "0.5"]
    return [one for one in found if one != key.default]


def outcome(name, keys, bottoms, phase):
    """All numbers of a pass, or the error."""
    tops = list(keys.get("top", ["it"]))
    random = np.random.default_rng(5)
    given = kit.arrays_for(bottoms, random)
    try:
        net = kit.net_of({"type": name, **keys}, *bottoms, phase=phase)
        layer = net.layers["it"]
        for _ in range(2):  # the second from what the first left behind
            net.forward(**given)
        flows = [i for i in range(len(bottoms)) if i not in layer.traits.label_bottoms]
        if flows or any(param.learns for param in layer.params):
            net.backward(**{top: random.normal(size=net.blobs[top].shape) for top in tops})
        arrays = [net.blobs[top].data for top in tops]
        arrays += [net.blobs[f"b{i}"].diff for i in flows]
        arrays += [one for param in layer.params for one in (param.data, param.diff)]
        return [(array.shape, array.tobytes()) for array in map(np.asarray, arrays)]
    except MinicaffeError as error:
        return str(error)


@pytest.mark.parametrize("name, key", [pytest.param(n, k, id=f"{n}-{k.name}") for n, k in KEYS])
def test_a_key_matters(name, key):
    if name in (*FED.split(), "WindowData"):
        pytest.importorskip("PIL")  # the pictures are PNGs
    for keys, bottoms in ROWS[name]:
        usual = outcome(name, keys, bottoms, "TRAIN")
        assert not isinstance(usual, str), usual
    if (name, key.name) in MORE:
        keys, value, bottoms = MORE[name, key.name]
        usual = outcome(name, keys, bottoms, "TRAIN")
        got = outcome(name, {**keys, key.name: value}, bottoms, "TRAIN")
        assert not isinstance(usual, str), usual
        assert not isinstance(got, str) and got != usual, got
        return
    refused = (name, key.name) in REFUSED
    for keys, bottoms in ROWS[name]:
        for phase in ("TRAIN", "TEST"):
            usual = outcome(name, keys, bottoms, phase)
            for value in others(key):
                if keys.get(key.name) != value:
                    got = outcome(name, {**keys, key.name: value}, bottoms, phase)
                    if isinstance(got, str) == refused and got != usual:
                        return
    raise AssertionError(f"{name}: {key.name}: nothing changed with any of {others(key)}")
