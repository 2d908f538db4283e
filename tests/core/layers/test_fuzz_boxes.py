"""Nets of detectors and of other forks with mistakes of every kind, as prototxts: each works, or is refused.

These are trained and tested on a small database, so that what augments pictures is spoilt, too.
"""

import random
from pathlib import Path

import kit
import numpy as np
import pytest
from core.layers.test_annotated import database
from interop.caffe.test_fuzz_text import TOKEN, mutated, read_and_written
from test_fuzz import fates, small
from test_fuzz import texts as yaml_texts

from minicaffe import Net, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.interop.caffe.prototxt import prototxt

pytest.importorskip("lmdb")
pytest.importorskip("PIL")

SSD = """
layer { name: "data" type: "AnnotatedData" top: "data" top: "label" include { phase: TRAIN }
  transform_param { mirror: true mean_value: 104 mean_value: 117 mean_value: 123 scale: 0.01 crop_h: 20 crop_w: 22
    resize_param { prob: 1 resize_mode: FIT_LARGE_SIZE_AND_PAD height: 30 width: 40 pad_mode: CONSTANT pad_value: 9
      interp_mode: LINEAR interp_mode: AREA interp_mode: NEAREST interp_mode: CUBIC interp_mode: LANCZOS4 }
    emit_constraint { emit_type: MIN_OVERLAP emit_overlap: 0.3 }
    noise_param { prob: 0.5 hist_eq: true inverse: true decolorize: true gauss_blur: true jpeg: 60
      posterize: true erode: true saltpepper: true saltpepper_param { fraction: 0.1 value: 1 value: 2 value: 3 } }
    distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5
      contrast_upper: 1.5 hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5
      saturation_upper: 1.5 random_order_prob: 0.5 }
    expand_param { prob: 0.5 max_expand_ratio: 2.0 } }
  data_param { source: "db" batch_size: 4 backend: LMDB }
  annotated_data_param { anno_type: BBOX label_map_file: "map.prototxt"
    batch_sampler { use_original_image: true max_sample: 1 max_trials: 1 }
    batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }
      sample_constraint { min_jaccard_overlap: 0.1 max_sample_coverage: 0.9 min_object_coverage: 0.1 }
      max_sample: 1 max_trials: 9 } } }
layer { name: "data" type: "AnnotatedData" top: "data" top: "label" include { phase: TEST }
  transform_param { resize_param { height: 20 width: 22 } } data_param { source: "db" batch_size: 4 backend: LMDB } }
layer { name: "small" type: "Pooling" bottom: "data" top: "small" pooling_param { pool: AVE kernel_size: 10 stride: 10 } }
layer { name: "prior" type: "PriorBox" bottom: "small" bottom: "data" top: "prior" prior_box_param { min_size: 6
  max_size: 9 aspect_ratio: 2 flip: true clip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 offset: 0.5 } }
layer { name: "loc" type: "InnerProduct" bottom: "small" top: "loc" inner_product_param { num_output: 96
  weight_filler { type: "xavier" } } }
layer { name: "conf" type: "InnerProduct" bottom: "small" top: "conf" inner_product_param { num_output: 96
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "MultiBoxLoss" bottom: "loc" bottom: "conf" bottom: "prior" bottom: "label" top: "loss"
  include { phase: TRAIN } propagate_down: true propagate_down: true propagate_down: false propagate_down: false
  loss_param { normalization: VALID }
  multibox_loss_param { loc_loss_type: SMOOTH_L1 conf_loss_type: SOFTMAX loc_weight: 1.0 num_classes: 4
    share_location: true match_type: PER_PREDICTION overlap_threshold: 0.3 use_prior_for_matching: true
    background_label_id: 0 use_difficult_gt: true neg_pos_ratio: 3.0 neg_overlap: 0.5 code_type: CENTER_SIZE
    ignore_cross_boundary_bbox: false mining_type: MAX_NEGATIVE sample_size: 8 use_prior_for_nms: false
    bp_inside: false encode_variance_in_target: false nms_param { nms_threshold: 0.4 top_k: 20 eta: 1 } } }
layer { name: "shares" type: "Reshape" bottom: "conf" top: "shares" reshape_param { shape { dim: 0 dim: -1 dim: 4 } } }
layer { name: "prob" type: "Softmax" bottom: "shares" top: "prob" softmax_param { axis: 2 } }
layer { name: "flat" type: "Flatten" bottom: "prob" top: "flat" flatten_param { axis: 1 } }
layer { name: "found" type: "DetectionOutput" bottom: "loc" bottom: "flat" bottom: "prior" top: "found"
  include { phase: TEST } detection_output_param { num_classes: 4 share_location: true background_label_id: 0
    nms_param { nms_threshold: 0.45 top_k: 30 eta: 0.9 } code_type: CENTER_SIZE keep_top_k: 20
    confidence_threshold: 0.01 variance_encoded_in_target: false
    save_output_param { output_directory: "out" output_name_prefix: "comp4_" output_format: "VOC"
      label_map_file: "map.prototxt" name_size_file: "sizes.txt" num_test_image: 4
      resize_param { height: 20 width: 22 } } } }
layer { name: "map" type: "DetectionEvaluate" bottom: "found" bottom: "label" top: "map" include { phase: TEST }
  detection_evaluate_param { num_classes: 4 background_label_id: 0 overlap_threshold: 0.5
    evaluate_difficult_gt: false name_size_file: "sizes.txt" } }
"""
VARIED = kit.rows("""
mining_type: MAX_NEGATIVE | mining_type: HARD_EXAMPLE
SOFTMAX | LOGISTIC
mining_type: MAX_NEGATIVE | mining_type: NONE
share_location: true match | share_location: false match
use_prior_for_matching: true | use_prior_for_matching: false
CENTER_SIZE | CORNER_SIZE
FIT_LARGE_SIZE_AND_PAD | FIT_SMALL_SIZE
FIT_LARGE_SIZE_AND_PAD | WARP
pad_mode: CONSTANT | pad_mode: MIRRORED
SMOOTH_L1 | L2
VALID | FULL
"VOC" | "COCO"
"VOC" | "ILSVRC"
bp_inside: false | bp_inside: true
bbox: false | bbox: true
use_difficult_gt: true | use_difficult_gt: false
""")
OTHERS = "detection regions faces sequences pictures losses between channels vision"
NUMBERS = """
0 -1 1 2 3 0.5 -0.5 1e-30 1e30 -1e30 1e39 1e308 inf -inf nan 100
101 255 256 1e5 1e9 2147483647 -2147483648 4294967295 1e-400
"""


def varied(rng: random.Random) -> str:
    """SSD's net, with some of its words others."""
    text = SSD
    for old, new in (row.values for row in VARIED):
        if rng.random() < 0.15:
            text = text.replace(old, new)
    return text


def turned(text: str, rng: random.Random) -> str:
    """The text with one to three of its numbers or words another."""
    pieces = [match.group() for match in TOKEN.finditer(text)]
    numbers = [k for k, piece in enumerate(pieces) if piece[0].isdigit()]
    words = [k for k, piece in enumerate(pieces) if piece.isupper() or piece in ("true", "false")]
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.7:
            pieces[rng.choice(numbers)] = rng.choice(NUMBERS.split())
        else:
            k = rng.choice(words)
            pieces[k] = rng.choice([pieces[j] for j in words]) if rng.random() < 0.8 else "x"
    return "".join(pieces)


def light(net: Net) -> bool:
    """Whether a net of pictures may be run."""
    for step in net.steps:
        given = getattr(step.layer, "transform", None)
        expand, several = (getattr(given, key, None) for key in ("expand_param", "resize_param"))
        resized = several[0] if several else None
        if expand is not None and not expand.max_expand_ratio < 10:
            return False
        if resized is not None and not resized.height * resized.width < 10**6:
            return False
        if sum(one.max_trials for one in getattr(step.layer, "batch_sampler", ())) > 1000:
            return False
    return small(net)


@np.errstate(all="ignore")
def attempt(text: str, path: Path) -> str:
    """How far a prototxt goes."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    spec = read_and_written(path)
    nets = [Net(spec, phase, device="cpu", shapes_only=True) for phase in ("TRAIN", "TEST")]
    if not all(map(light, nets)):
        return "shapes"
    for phase in ("TRAIN", "TEST"):
        net = Net(spec, phase, device="cpu", seed=1)
        for _ in range(2):
            net.forward()
        net.backward()
        for step in net.steps:
            if step.spec.type == "DetectionEvaluate":
                step.layer.score(net.blobs[step.tops[0].name].data)
    return "ran"


def test_spoilt_detectors_and_layers_of_forks_work_or_are_refused(
    request, tmp_path, monkeypatch, few_digits
):
    monkeypatch.chdir(tmp_path)
    database(tmp_path / "db")
    items = "".join(f'item {{ name: "n{i}" label: {i} }}\n' for i in range(4))
    (tmp_path / "map.prototxt").write_text(items)
    (tmp_path / "sizes.txt").write_text("".join(f"p{i} 48 64\n" for i in range(6)))
    count = 5000 if request.config.getoption("--long") else 120
    texts = yaml_texts()  # nets with the layers of every fork
    others = [prototxt(parse(texts[f"{name}.yaml"]), REGISTRY) for name in OTHERS.split()]

    def spoilt(i):
        rng = random.Random(f"boxes {i}")
        text = others[i // 4 % len(others)] if i % 4 == 0 else varied(rng)
        return rng.choice((mutated, turned, turned))(text, rng)

    counts = fates(map(spoilt, range(count)), attempt, tmp_path / "a.prototxt")
    assert counts["ran"] > count // 20 and counts["SpecError"] > count // 10
