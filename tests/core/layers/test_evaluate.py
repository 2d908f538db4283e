"""The average precision of a test, against loops over detections; the files of a test."""

import json

import numpy as np
import pytest
from core.layers.fork_nets import build
from core.layers.references.detection import DetectionEvaluate, found_and_true
from core.layers.test_detection import PRIOR, TWO
from core.ops.cases import cases
from hypothesis import given
from hypothesis import strategies as st

from minicaffe import Net, parse
from minicaffe.core.solver import mean_outputs
from minicaffe.errors import MinicaffeError, SpecError
from minicaffe.interop.caffe import parse as parse_prototxt
from minicaffe.interop.caffe.forks.ssd import average_precision


def curve(scores, right, count):
    """(recall, precision) after each detection."""
    hits, points = 0, []
    for n, i in enumerate(sorted(range(len(scores)), key=lambda i: -scores[i]), 1):
        hits += right[i]
        points.append((hits / count, hits / n))
    return points


@cases(80)
@given(st.integers(0, 10**6), st.integers(0, 30))
def test_average_precision_against_loops(device, seed, n):
    random = np.random.default_rng(seed)
    scores, right = random.random(n), (random.random(n) < 0.6).astype(float)
    count = int(right.sum()) + int(random.integers(0, 5))
    points = curve(scores.tolist(), right.tolist(), count) if count else []
    last, plain, highest = 0.0, 0.0, 0.0
    for i, (recall, precision) in enumerate(points):
        plain += (recall - last) * precision
        highest += (recall - last) * max(p for _, p in points[i:])
        last = recall
    eleven = (
        sum(max((p for r, p in points if r >= level / 10), default=0) for level in range(11)) / 11
    )
    for version, wanted in (("Integral", plain), ("MaxIntegral", highest), ("11point", eleven)):
        assert average_precision(scores, right, count, version) == pytest.approx(wanted)


def test_a_test_joins_the_rows_of_its_batches():
    """The mAP of all batches is that of all their rows at once, not a mean of batches."""
    keys = {"num_classes": 4, "show_per_class_result": True}
    net = build("DetectionEvaluate", keys, [(1, 1, 40, 7), (1, 1, 40, 8)], dtype="float64")
    scenes = [found_and_true(np.random.default_rng(seed)) for seed in (1, 2, 3)]
    waiting = list(scenes)
    original = net.forward

    def forward():
        arrays = []
        for array in waiting.pop(0):
            whole = np.full((1, 1, 40, array.shape[-1]), -1.0)
            whole[0, 0, : len(array)] = array
            arrays.append(whole)
        return original(b0=arrays[0], b1=arrays[1])

    net.forward = forward
    scores = mean_outputs(net, 3)
    layer = net.layers["it"]
    every = [
        np.array(DetectionEvaluate(layer, found[None, None], truth[None, None])[0][0])
        for found, truth in scenes
    ]
    wanted = layer.score(np.concatenate(every))
    assert scores["it"] == pytest.approx(wanted[""]) and 0 < scores["it"] < 1
    np.testing.assert_allclose(scores["it of each class"], wanted[" of each class"])
    assert scores["it"] == pytest.approx(scores["it of each class"].mean())
    assert scores["it"] != pytest.approx(np.mean([layer.score(rows)[""] for rows in every]))


SOLVER = """
net_param {
  layer { name: "in" type: "Input" top: "found" top: "truth"
    input_param { shape { dim: 1 dim: 1 dim: 4 dim: 7 } shape { dim: 1 dim: 1 dim: 4 dim: 8 } } }
  layer { name: "map" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "map"
    include { phase: TEST } detection_evaluate_param { num_classes: 3 } } }
base_lr: 0.1 lr_policy: "fixed" max_iter: 3 test_iter: 2 test_interval: 3
eval_type: "detection" ap_version: "11point" show_per_class_result: true
"""


def test_keys_of_ssds_solver_are_the_layers():
    from minicaffe.core.layers import REGISTRY
    from minicaffe.interop.caffe.prototxt import prototxt

    spec = parse_prototxt(SOLVER)
    layer = spec.layers[1]
    assert layer.options["ap_version"] == "11point" and layer.options["show_per_class_result"]
    text = prototxt(spec, REGISTRY)
    for line in ('ap_version: "11point"', 'eval_type: "detection"', "show_per_class_result: true"):
        assert line in text
    assert "minicaffe_param" not in text
    assert parse_prototxt(text).layers[1].options == layer.options
    with pytest.raises(SpecError, match="layer without|type"):
        parse_prototxt(SOLVER.replace('type: "DetectionEvaluate"', ""))
    with pytest.raises(SpecError, match="ap_version"):
        parse_prototxt(SOLVER.replace("11point", "12point"))


MAP = 'item { name: "none" label: 0 } item { name: "cat" label: 1 display_name: "a cat" }'


def saving(tmp_path, kind, **more):
    (tmp_path / "map.prototxt").write_text(MAP)
    (tmp_path / "sizes.txt").write_text("7 10 20\n8 100 50\n9 30 40\n")
    given = {
        "output_directory": str(tmp_path / "out"),
        "output_name_prefix": "found_",
        "output_format": kind,
        "label_map_file": str(tmp_path / "map.prototxt"),
        "name_size_file": str(tmp_path / "sizes.txt"),
    }
    return {**TWO, "save_output_param": {**given, **more}}


@pytest.mark.parametrize("kind", ["VOC", "COCO", "ILSVRC"])
def test_the_files_of_a_test(kind, tmp_path):
    """Three pictures in batches of one; a second test begins anew."""
    net, lines = build("DetectionOutput", saving(tmp_path, kind), [(1, 8), (1, 4), (1, 2, 8)]), []
    net.context.tell = lines.append
    for _ in range(2):
        net.context.passes = 0
        for score in (0.9, 0.05, 0.7):  # of the second nothing is found
            net.forward(b0=np.zeros((1, 8)), b1=[[0, score, 0, 0]], b2=PRIOR)
    (line,) = lines
    assert (
        "save_output_param: the detections of each test's first 3 pictures are written to " in line
    )
    (file,) = (tmp_path / "out").iterdir()
    if kind == "COCO":
        assert file.name == "found_.json"
        assert json.loads(file.read_text()) == [
            {"image_id": 7, "category_id": "cat", "bbox": [0, 0, 10, 5], "score": 0.9},
            {"image_id": 9, "category_id": "cat", "bbox": [0, 0, 20, 15], "score": 0.7},
        ]
        return
    label = "" if kind == "VOC" else " 1"
    assert file.name == ("found_cat.txt" if kind == "VOC" else "found_.txt")
    assert file.read_text() == f"7{label} 0.9 0 0 10 5\n9{label} 0.7 0 0 20 15\n"


def test_what_a_test_joins_has_a_score_of_its_own(monkeypatch):
    net = build("DetectionEvaluate", {"num_classes": 3}, [(1, 1, 1, 7), (1, 1, 2, 8)])
    net.blobs["b0"].data[...], net.blobs["b1"].data[...] = -1, [0, 1, 0, 0, 0, 1, 1, 0]
    monkeypatch.delattr(type(net.layers["it"]), "score")
    with pytest.raises(TypeError, match="layer DetectionEvaluate must define score"):
        mean_outputs(net)


def test_without_a_folder_or_a_list_nothing_is_written(tmp_path):
    for missing in ("output_directory", "output_format", "label_map_file", "name_size_file"):
        keys = saving(tmp_path, "VOC", **{missing: ""})
        build("DetectionOutput", keys, [(1, 8), (1, 4), (1, 2, 8)]).forward(b2=PRIOR)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"label_map_file": "nowhere.prototxt"}, "nowhere.prototxt"),
        ({"name_size_file": "nowhere.txt"}, "nowhere.txt: no such file"),
        ({"num_test_image": 4}, "num_test_image 4: .* names 3 pictures"),
        ({"sizes.txt": "7 10\n"}, "sizes.txt:1: expected a name, a height and a width, got '7 10'"),
        ({"map.prototxt": MAP.partition(" item")[0]}, "label_map_file: has no class 1"),
    ],
)
def test_lists_that_are_none_are_told_when_they_are_needed(more, message, tmp_path):
    keys = saving(tmp_path, "VOC", **{key: more[key] for key in more if "." not in key})
    for name in more.keys() - keys["save_output_param"].keys():
        (tmp_path / name).write_text(more[name])
    net = build("DetectionOutput", keys, [(1, 8), (1, 4), (1, 2, 8)])
    with pytest.raises(MinicaffeError, match=message):
        for _ in range(3):
            net.forward(b0=np.zeros((1, 8)), b1=[[0, 0.9, 0, 0]], b2=PRIOR)


def test_a_net_that_trains_and_is_tested_by_its_map(tmp_path):
    """The whole way: AnnotatedData, MultiBoxLoss, DetectionOutput, DetectionEvaluate, the best snapshot."""
    from core.layers.test_annotated import database

    from minicaffe import Solver

    database(tmp_path / "db", count=8)
    spec = parse(TRAINED.format(source=tmp_path / "db", prefix=tmp_path / "net"))
    scores = Solver(spec, device="cpu", random_seed=1).solve()
    assert set(scores) == {"map"} and 0 <= scores["map"] <= 1
    assert scores["map"] > 0.6  # rectangles of three colours, each in its third of the picture
    assert (tmp_path / "net_best.npz").exists()
    net = Net(spec, "TEST", device="cpu")
    net.load(tmp_path / "net_iter_120.npz")
    assert mean_outputs(net)["map"] == pytest.approx(scores["map"])


TRAINED = """
layers:
  - {{name: data, type: AnnotatedData, top: [data, truth], source: {source}, batch_size: 4,
     transform: {{scale: 0.00390625, resize_param: {{height: 24, width: 24}}}}}}
  - {{name: conv1, type: Convolution, num_output: 16, kernel_size: 3, stride: 2, weight_filler: msra}}
  - {{name: relu1, type: ReLU}}
  - {{name: conv2, type: Convolution, num_output: 16, kernel_size: 3, stride: 2, weight_filler: msra}}
  - {{name: relu2, type: ReLU}}
  - {{name: prior, type: PriorBox, bottom: [relu2, data], min_size: 8, aspect_ratio: 2, variance: [0.1, 0.1, 0.2, 0.2]}}
  - {{name: loc, type: Convolution, bottom: relu2, num_output: 12, kernel_size: 3, pad: 1, weight_filler: xavier}}
  - {{name: loc_rows, type: Permute, order: [0, 2, 3, 1]}}
  - {{name: loc_flat, type: Flatten}}
  - {{name: conf, type: Convolution, bottom: relu2, num_output: 12, kernel_size: 3, pad: 1, weight_filler: xavier}}
  - {{name: conf_rows, type: Permute, order: [0, 2, 3, 1]}}
  - {{name: conf_flat, type: Flatten}}
  - {{name: loss, type: MultiBoxLoss, bottom: [loc_flat, conf_flat, prior, truth], include: TRAIN, num_classes: 4,
     code_type: CENTER_SIZE}}
  - {{name: shares, type: Reshape, bottom: conf_flat, shape: {{dim: [0, -1, 4]}}, include: TEST}}
  - {{name: prob, type: Softmax, axis: 2, include: TEST}}
  - {{name: prob_flat, type: Flatten, include: TEST}}
  - {{name: found, type: DetectionOutput, bottom: [loc_flat, prob_flat, prior], include: TEST, num_classes: 4,
     code_type: CENTER_SIZE, nms_param: {{nms_threshold: 0.45, top_k: 100}}, keep_top_k: 20, confidence_threshold: 0.01}}
  - {{name: map, type: DetectionEvaluate, bottom: [found, truth], include: TEST, num_classes: 4}}
solver:
  type: Adam
  base_lr: 0.01
  momentum: 0.9
  momentum2: 0.999
  max_iter: 120
  test_interval: 40
  best: map
  snapshot_prefix: {prefix}
"""
