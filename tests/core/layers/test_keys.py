"""No key of a layer is ignored: given another value, some row gives other numbers, other shapes or an error."""

from __future__ import annotations

import typing
from pathlib import Path
from types import NoneType

import numpy as np
import pytest
from core.layers.rows import ROWS

from minicaffe import MinicaffeError, Net, parse
from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import Key, keys_of
from minicaffe.core.layers import REGISTRY

FED = ("Data", "DenseImageData", "ImageData", "ImageLabelmapData", "VideoData")
WITHOUT_EFFECT = {  # they say how, not what, is computed; or what `visualize`, refused, would show
    *((name, key) for name in FED for key in ("workers", "feed", "prefetch")),
    *((name, "on_error") for name in FED),  # no picture here is damaged
    ("DetectionOutput", "save_file"),
    ("DetectionOutput", "visualize_threshold"),
    ("DetectionEvaluate", "name_size_file"),
    ("DetectionEvaluate", "resize_param"),
    ("DetectionEvaluate", "ap_version"),  # of a test's score: test_evaluate
    ("DetectionEvaluate", "show_per_class_result"),
    *(("AnnotatedData", key) for key in ("workers", "feed", "prefetch", "on_error")),
    ("AnnotatedData", "label_map_file"),
    ("AnnotatedData", "anno_type"),
    ("WindowData", "cache_images"),
    ("BatchNorm", "sync"),  # of one rank all is the same: tests/tools/parallel
    ("CTCLoss", "loss_calculation_t"),
    ("Convolution", "engine"),
    ("Convolution", "force_nd_im2col"),
    ("Deconvolution", "engine"),
    ("Deconvolution", "force_nd_im2col"),
    ("Eltwise", "stable_prod_grad"),
    ("Im2col", "force_nd_im2col"),
    ("Python", "share_in_parallel"),
    ("JMMDLoss", "fix_gamma"),
    (
        "MMDLoss",
        "fix_gamma",
    ),  # here each pass is of the same numbers: tests/interop/caffe/forks/test_metrics.py
}
REFUSED = {  # in the rows any other value is refused: it wants other keys, bottoms or files
    ("AnnotatedData", "backend"),
    ("AnnotatedData", "source"),
    *(("MultiBoxLoss", key) for key in ("num_classes", "share_location", "do_neg_mining")),
    *(("MultiBoxLoss", key) for key in ("background_label_id", "map_object_to_agnostic")),
    ("CenterLoss", "axis"),
    ("CtcLoss", "alphabet_size"),
    ("CtcLoss", "time_step"),
    ("Data", "backend"),
    ("Data", "force_encoded_color"),
    ("Data", "source"),
    ("DetectionOutput", "num_classes"),
    ("DetectionOutput", "save_output_param"),
    ("DetectionOutput", "share_location"),
    ("DetectionOutput", "visualize"),
    *((name, key) for name in FED[1:] for key in ("root_folder", "source")),
    ("DeformableConvolution", "deformable_group"),
    ("DeformableConvolution", "kernel_h"),
    ("DeformableConvolution", "kernel_size"),
    ("DeformableConvolution", "kernel_w"),
    ("InfogainLoss", "normalize"),
    ("InfogainLoss", "source"),
    ("LSTM", "debug_info"),
    ("LSTM", "expose_hidden"),
    ("PSROIPooling", "group_size"),
    ("PSROIPooling", "output_dim"),
    ("Pooling", "global_pooling"),
    ("Python", "layer"),
    ("Python", "module"),
    ("RNN", "debug_info"),
    ("RNN", "expose_hidden"),
    ("WindowData", "root_folder"),
    ("WindowData", "source"),
    ("Yolov3DetectionOutput", "mask_group_num"),
    ("Yolov3DetectionOutput", "num_box"),
    ("Yolov3DetectionOutput", "num_classes"),
}
REGIONS = np.array([[0, 0, 1, 0], [0] * 4, [0] * 4, [9] * 4, [9] * 4]).T
HARD = [REGIONS, np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4), np.ones((4, 4))]
PROPOSED = {"ratio": [1, 2], "scale": [1, 2], "pre_nms_topn": 12, "post_nms_topn": 5}
STEPS = [np.random.default_rng(5).normal(size=(6, 2, 3)), np.ones((6, 2))]
YOLO = {"num_classes": 2, "num_box": 1, "biases": [30, 20, 9, 40], "mask": [0, 1]}
YOLO |= {"anchors_scale": [32, 16]}
GRIDS = [np.random.default_rng(6).normal(size=(1, 7, n, n)) for n in (2, 3)]
CLUSTERED = {"width": [9, 20], "height": [12, 7]}
ONE = {"num_output": 2, "kernel_size": 1, "stride_h": 2, "stride_w": 2}
THREE, SPREAD = {"num_output": 2, "kernel_size": 3, "stride": 5}, [(1, 2, 5, 5), (1, 18, 1, 1)]
MOVED = [np.random.default_rng(4).random((1, n, 2, 3)) / 2 for n in (8, 16)]
MOVED += [np.array([[60.0, 60.0, 1.0]])]
BOXED = {"field_w": 8, "field_h": 12, "downsample_rate": 8, "min_size": 2, "fg_thr": -3}
BOXED |= {"bbox_mean": [0.1] * 4, "bbox_std": [0.5] * 4, "top": ["a", "b"]}
PLACES = [np.random.default_rng(9).normal(size=(1, 7, 3, 4))]
MATCHED = [np.random.default_rng(9).normal(size=(4, 8)), REGIONS]
MATCHED += [np.array([[0, 0, 0, 0, 0, 0.3], [0, 0, 0, 0, 0, 0.97]] * 2)]
NORMAL = {"bbox_mean": [0.1] * 4, "bbox_std": [0.5] * 4}
IMAGE, PLANE = (2, 3, 5, 5), [(2, 3, 4)]
SIZE = {"upsample_h": 4, "upsample_w": 4}
GAIN = np.arange(9.0).reshape(3, 3) + 1
RANDOM = np.random.default_rng(2)
PRIORS = np.array(
    [[0.1, 0.1, 0.5, 0.5, 0.2, 0.1, 0.6, 0.5, 0.6, 0.6, 0.9, 0.8], [0.1, 0.2, 0.3, 0.4] * 3]
)
FOUND = [RANDOM.normal(size=(1, 12)), RANDOM.random((1, 9)), PRIORS.reshape(1, 2, 12)]
BOX = {"min_size": [8], "max_size": [12], "aspect_ratio": [2]}
FILES = Path(__file__).parent.parent.parent / "fixtures" / "examples"
PAIRS = {"source": str(FILES / "pairs.txt"), "batch_size": 2, "top": ["a", "b"]}
CLIPS = {"source": str(FILES / "clips.txt"), "batch_size": 2, "top": ["a", "b"]}
SCORES = [
    np.random.default_rng(8).normal(size=(2, 3, 2, 3)),
    np.arange(12.0).reshape(2, 1, 2, 3) % 3,
]
PICTURES = {"source": str(FILES / "images.txt"), "batch_size": 2, "top": ["a", "b"]}
WINDOWS = {"source": str(FILES / "windows.txt"), "batch_size": 4, "top": ["a", "b"]}
WINDOWS |= {"transform": {"crop_size": 8}}
DATABASE = {"source": str(FILES / "lmdb"), "batch_size": 2, "backend": "LMDB", "top": ["a", "b"]}
BOXES = {"source": str(FILES / "boxes_lmdb"), "batch_size": 2, "top": ["a", "b"]}
OUTSIDE = PRIORS.reshape(1, 2, 12) * np.array([[[1.3] * 12, [1] * 12]])
TRUTH = np.array([[0, 1, 0, 0.15, 0.1, 0.6, 0.6, 0], [0, 2, 0, 0.7, 0.7, 1, 1, 1]])[None, None]
LOSS = [*(np.random.default_rng(7).normal(size=(1, n)) for n in (12, 9)), OUTSIDE, TRUTH]
MINED = {"num_classes": 3, "mining_type": "HARD_EXAMPLE", "overlap_threshold": 0.3}
SUPPRESSED = {**MINED, "nms_param": {"nms_threshold": 0.2}}
LABELS = np.array([1.0, 0.0, 1.0])
FEW = {"num_output": 2, "weight_filler": "gaussian"}
MORE = {  # what the rows do not hold: (keys, the key's other value, bottoms)
    ("DetectionEvaluate", "num_classes"): ({"num_classes": 3}, 4, [(1, 1, 2, 7), TRUTH]),
    ("CenterLoss", "num_output"): ({"num_output": 2}, 3, [(3, 2), LABELS]),
    ("MarginInnerProduct", "num_output"): (FEW, 3, [(3, 2), LABELS]),
    ("MarginInnerProduct", "axis"): (FEW, 0, [(1, 3), LABELS[:1]]),
    ("InnerDistance", "update_center_only"): ({"num_output": 3}, True, [(3, 1), LABELS]),
    ("CTCLoss", "blank_index"): ({}, 0, [*STEPS, np.array([[1], *[[-1]] * 5]) * STEPS[1]]),
    **{
        (name, key): ({**keys, **NORMAL}, [0.2, 0.1, 0.1, 0.3], bottoms)
        for name, keys, bottoms in (("BoxOutput", BOXED, PLACES), ("DecodeBBox", {}, MATCHED))
        for key in NORMAL
    },
    ("BoxOutput", "min_size"): (BOXED, 9, PLACES),
    ("Concat", "axis"): ({"axis": 1}, 2, PLANE * 2),
    ("Eltwise", "coeff"): ({}, [2, 0.5], PLANE * 2),
    ("Embed", "input_dim"): ({"num_output": 2, "input_dim": 4}, 5, [np.array([0, 1])]),
    ("InfogainLoss", "axis"): ({"axis": 1}, 2, [(2, 3, 3), np.ones((2, 3)), GAIN]),
    ("Pooling", "kernel_h"): ({"kernel_h": 2, "kernel_w": 2}, 3, [IMAGE]),
    ("Pooling", "kernel_w"): ({"kernel_h": 2, "kernel_w": 2}, 3, [IMAGE]),
    ("Pooling", "stride_h"): ({"kernel_size": 2, "stride_h": 1, "stride_w": 1}, 2, [IMAGE]),
    ("Pooling", "stride_w"): ({"kernel_size": 2, "stride_h": 1, "stride_w": 1}, 2, [IMAGE]),
    ("Proposal", "min_size"): ({**PROPOSED, "top": ["a", "b"]}, 30, MOVED),
    ("Proposal", "ratio"): (PROPOSED, [1, 3], MOVED),
    ("Proposal", "scale"): (PROPOSED, [1, 3], MOVED),
    ("Transpose", "dim"): ({"dim": [2, 0, 1]}, [0, 2, 1], [(2, 3, 4)]),
    ("Reshape", "shape"): ({"shape": {"dim": [2, 12]}}, {"dim": [3, 8]}, PLANE),
    ("Upsample", "pad_out_h"): ({"scale": 2}, True, [(2, 3, 2, 2), np.zeros((2, 3, 2, 2))]),
    ("Upsample", "upsample_h"): (SIZE, 5, [(2, 3, 2, 2), np.zeros((2, 3, 2, 2))]),
    ("Upsample", "upsample_w"): (SIZE, 5, [(2, 3, 2, 2), np.zeros((2, 3, 2, 2))]),
    ("SoftmaxWithLoss", "axis"): ({"axis": 1}, 2, [(2, 3, 3), np.ones((2, 3))]),
    ("WeightedSoftmaxWithLoss", "axis"): (
        {"class_weighting": [1, 2, 3]},
        2,
        [(2, 3, 3), np.ones((2, 3))],
    ),
    ("WeightedSoftmaxWithLoss", "class_weighting"): (
        {"class_weighting": [1, 2, 3]},
        [1, 3, 3],
        [(2, 3), np.ones(2)],
    ),
    ("SoftmaxWithLossOHEM", "axis"): ({"axis": 1}, 2, [(2, 3, 3), np.ones((2, 3))]),
    ("Accuracy", "axis"): (
        {},
        2,
        [RANDOM.normal(size=(2, 3, 3)), np.arange(6.0).reshape(2, 3) % 3],
    ),
    ("Data", "new_height"): ({**PICTURES, "new_height": 4, "new_width": 4}, 5, []),
    ("Data", "new_width"): ({**PICTURES, "new_height": 4, "new_width": 4}, 5, []),
    ("Data", "split"): (PICTURES, 0.5, []),
    ("Data", "transform"): (DATABASE, {"scale": 0.5}, []),
    ("DetectionOutput", "nms_param"): ({"num_classes": 3}, {"top_k": 1}, FOUND),
    ("PriorBoxClustered", "height"): (CLUSTERED, [12, 8], [(1, 2, 3, 3), (1, 3, 30, 40)]),
    ("PriorBoxClustered", "width"): (CLUSTERED, [9, 8], [(1, 2, 3, 3), (1, 3, 30, 40)]),
    ("Yolov3DetectionOutput", "anchors_scale"): (YOLO, [32, 8], GRIDS),
    ("Yolov3DetectionOutput", "biases"): (YOLO, [30, 21, 9, 40], GRIDS),
    ("Yolov3DetectionOutput", "mask"): (YOLO, [1, 0], GRIDS),
    ("DeformableConvolution", "dilation"): (
        {**THREE, "kernel_size": 2},
        2,
        [SPREAD[0], (1, 8, 1, 1)],
    ),
    ("DeformableConvolution", "group"): (THREE, 2, SPREAD),
    ("DeformableConvolution", "pad"): (THREE, 1, SPREAD),
    ("DeformableConvolution", "pad_h"): (THREE, 1, SPREAD),
    ("DeformableConvolution", "pad_w"): (THREE, 1, SPREAD),
    ("DeformableConvolution", "stride"): (
        {"num_output": 2, "kernel_size": 1, "stride": 2},
        3,
        [(1, 2, 4, 4), (1, 2, 2, 2)],
    ),
    ("DeformableConvolution", "stride_h"): (ONE, 3, [(1, 2, 4, 4), (1, 2, 2, 2)]),
    ("DeformableConvolution", "stride_w"): (ONE, 3, [(1, 2, 4, 4), (1, 2, 2, 2)]),
    ("DummyData", "data_filler"): ({"shape": {"dim": [2]}}, {"type": "constant", "value": 2}, []),
    ("DummyData", "shape"): ({"shape": {"dim": [2]}}, {"dim": [3]}, []),
    ("DenseImageData", "label_divide_factor"): (
        {**PAIRS, "new_height": 4, "new_width": 6},
        2,
        [],
    ),
    ("DenseImageData", "crop_height"): ({**PAIRS, "crop_height": 4, "crop_width": 4}, 5, []),
    ("DenseImageData", "crop_width"): ({**PAIRS, "crop_height": 4, "crop_width": 4}, 5, []),
    **{
        (name, key): ({**PAIRS, "new_height": 4, "new_width": 4}, 5, [])
        for name in ("DenseImageData", "ImageLabelmapData")
        for key in ("new_height", "new_width")
    },
    ("VideoData", "new_height"): ({**CLIPS, "new_height": 4, "new_width": 4}, 5, []),
    ("VideoData", "new_width"): ({**CLIPS, "new_height": 4, "new_width": 4}, 5, []),
    ("VideoData", "transform"): (CLIPS, {"scale": 0.5}, []),
    ("DenseImageData", "transform"): (PAIRS, {"scale": 0.5}, []),
    ("ImageLabelmapData", "transform"): (PAIRS, {"scale": 0.5}, []),
    ("ImageData", "new_height"): ({**PICTURES, "new_height": 4, "new_width": 4}, 5, []),
    ("ImageData", "new_width"): ({**PICTURES, "new_height": 4, "new_width": 4}, 5, []),
    ("ImageData", "transform"): (PICTURES, {"scale": 0.5}, []),
    ("AnnotatedData", "batch_sampler"): (
        BOXES | {"transform": {"resize_param": {"height": 9, "width": 9}}},
        [{"sampler": {"min_scale": 0.3}}],
        [],
    ),
    ("AnnotatedData", "transform"): (BOXES, {"crop_h": 20, "crop_w": 20}, []),
    ("MultiBoxLoss", "ignore_cross_boundary_bbox"): ({"num_classes": 3}, True, LOSS),
    ("MultiBoxLoss", "bp_inside"): ({"num_classes": 3}, True, LOSS),
    ("MultiBoxLoss", "nms_param"): (
        {**MINED, "use_prior_for_nms": True},
        {"nms_threshold": 0.05},
        LOSS,
    ),
    ("MultiBoxLoss", "sample_size"): (MINED, 1, LOSS),
    ("MultiBoxLoss", "use_prior_for_nms"): (SUPPRESSED, True, LOSS),
    ("PriorBox", "max_size"): (BOX, [15], [(1, 2, 3, 3), (1, 3, 30, 40)]),
    ("WindowData", "bg_threshold"): ({**WINDOWS, "bg_threshold": 0.5}, 0.05, []),
    ("WindowData", "fg_fraction"): (WINDOWS, 0.75, []),
    ("WindowData", "fg_threshold"): ({**WINDOWS, "fg_fraction": 1.0}, 0.7, []),
    ("WindowData", "transform"): (WINDOWS, {"crop_size": 8, "scale": 0.5}, []),
}
EVALUATED = [
    np.array(
        [[0, 1, 0.9, 0.1, 0.1, 0.6, 0.6], [0, 2, 0.8, 0.7, 0.7, 1, 1], [0, 2, 0.7, 0, 0, 1, 1]]
    )[None, None],
    TRUTH,
]
FORWARD = {  # of types without a gradient
    "Accuracy": [({}, [RANDOM.normal(size=(6, 3, 3)), np.arange(18.0).reshape(6, 3) % 3])],
    "BoxAnnotatorOHEM": [({"roi_per_img": 2, "top": ["a", "b"]}, HARD)],
    "BoxOutput": [(BOXED, PLACES)],
    "DecodeBBox": [({}, MATCHED)],
    "CTCGreedyDecoder": [({"top": ["a", "b"]}, STEPS)],
    "ContinuationIndicator": [({"time_step": 4, "batch_size": 5}, [])],
    "Data": [(DATABASE, [])],
    "AnnotatedData": [(BOXES, [])],
    "DetectionEvaluate": [({"num_classes": 3}, EVALUATED)],
    "DetectionOutput": [({"num_classes": 3}, FOUND)],
    "DummyData": [
        ({"shape": [{"dim": [2, 3]}], "data_filler": ["gaussian"]}, []),
        ({"num": 2, "channels": 2, "height": 2, "width": 2, "data_filler": ["gaussian"]}, []),
    ],
    "DenseImageData": [(PAIRS, [])],
    "VideoData": [(CLIPS, [])],
    "ImageData": [(PICTURES, [])],
    "ImageLabelmapData": [(PAIRS, [])],
    "PriorBox": [
        (BOX, [(1, 2, 3, 3), (1, 3, 30, 40)]),
        ({**BOX, "img_h": 40, "img_w": 50}, [(1, 2, 3, 3), (1, 3, 30, 40)]),
        ({**BOX, "step_h": 4, "step_w": 5}, [(1, 2, 3, 3), (1, 3, 30, 40)]),
    ],
    "SegAccuracy": [({}, SCORES)],
    "PriorBoxClustered": [
        (CLUSTERED, [(1, 2, 3, 3), (1, 3, 30, 40)]),
        ({**CLUSTERED, "img_h": 40, "img_w": 50}, [(1, 2, 3, 3), (1, 3, 30, 40)]),
        ({**CLUSTERED, "step_h": 4, "step_w": 5}, [(1, 2, 3, 3), (1, 3, 30, 40)]),
    ],
    "Proposal": [({**PROPOSED, "top": ["a", "b"]}, MOVED)],
    "WindowData": [(WINDOWS, [])],
    "Yolov3DetectionOutput": [(YOLO, GRIDS)],
}
ROWS = {**ROWS, **FORWARD}
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
    shapes = [{"dim": list(one if isinstance(one, tuple) else np.shape(one))} for one in bottoms]
    data = {"name": "data", "type": "Input", "top": [f"b{i}" for i in range(len(bottoms))]}
    it = {**keys, "name": "it", "type": name, "bottom": data["top"], "top": tops}
    random = np.random.default_rng(5)
    given = {
        f"b{i}": random.normal(size=one) if isinstance(one, tuple) else np.asarray(one)
        for i, one in enumerate(bottoms)
    }
    try:
        model = {"force_backward": True, "layers": [{**data, "shape": shapes}, it][not bottoms :]}
        net = Net(parse(model), phase, device="cpu", dtype="float64")
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
    if name in (*FED, "AnnotatedData", "WindowData"):
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
