"""minicaffe export: what it writes and tells, and what it refuses before anything is written."""

import json
import sys
from pathlib import Path

import my_layers
import numpy as np
import pytest
from kit import onnx_runs

from minicaffe import Net
from minicaffe.errors import pip_install

pytest.importorskip("onnxruntime")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def weights(folder):
    """tiny.yaml's parameters, as they are filled."""
    Net(folder / "tiny.yaml", "TEST", device="cpu").save("w.npz")
    return "w.npz"


def test_a_trained_net_becomes_a_classifier(cli, mistake, weights):
    given = ("export", "tiny.yaml", "--weights", weights, "--onnx", "tiny.onnx")
    ran = cli(*given, "--dynamic", "batch")
    assert ran.code == 0
    assert ran.err.splitlines()[-5:] == [
        "layer 'mnist' (Data): an input, data",
        "layer 'accuracy' (Accuracy): left out",
        "layer 'loss' (SoftmaxWithLoss): a Softmax, prob",
        "weights: w.npz: 4 loaded",
        "classes and pictures: tiny.json",
    ]
    first, other, last = ran.out.splitlines()
    assert first.startswith("prob (1, 10): checked against onnxruntime: max. relative difference ")
    assert other.startswith("prob (3, 10): checked against onnxruntime: max. relative difference ")
    assert last == "tiny.onnx: 5 nodes, opset 17, 0.0 MiB"
    assert onnx_runs("tiny.onnx", data=np.zeros((7, 1, 28, 28)))["prob"].shape == (7, 10)
    assert mistake(*given) == "minicaffe: tiny.onnx: is there already; --force writes over it"
    assert cli(*given, "--force").code == 0


def test_a_state_dict_is_told_of(cli, weights):
    safetensors = pytest.importorskip("safetensors.numpy")
    ran = cli("export", "tiny.yaml", "--weights", weights, "--torch", "tiny.safetensors")
    assert "conv1: Conv2d(1, 4, kernel_size=(5, 5), stride=(2, 2))" in ran.out.splitlines()
    assert "  ip1__1 (10,) -> ip1.bias (10,)" in ran.out.splitlines()
    found = safetensors.load_file("tiny.safetensors")
    assert sorted(found) == ["conv1.bias", "conv1.weight", "ip1.bias", "ip1.weight"]


MISTAKES = [  # $ is --weights w.npz
    ("--onnx x.onnx", "tiny.yaml: holds no weights; give them by --weights FILE"),
    ("$", "one of the arguments --onnx --torch -o/--output is required"),
    ("$ --torch x --dynamic batch", "--dynamic goes with --onnx: a state_dict holds no inputs"),
    ("$ --onnx x.onnx --dynamic bach", "did you mean 'batch'?"),
    ("$ --onnx no/x.onnx", "no/x.onnx: cannot be written: there is no folder 'no'"),
    ("$ --torch=", "--torch: expected a file, got ''"),
    ("$ --onnx x.onnx --mean 3", "--mean: the layer 'mnist' says it; give --set layers.mnist.transform.mean_value=..."),
    ("$ --onnx x.onnx --channels rgb", "--channels: pictures have 1 channels, not 3"),
    ("$ --torch x --tensorrt-safe", "--tensorrt-safe goes with --onnx"),
    ("$ --onnx x.onnx --dynamic height --tensorrt-safe", "dynamic height: for TensorRT only the batch may be of any size"),
    ("--onnx x.onnx --run no", "no: is no run's folder: there is no run.json in it"),
    ("--onnx x.json $", "x.json: expected a name that ends in .onnx"),
    ("--onnx x.onnx --run a $", "--weights cannot be given with --run"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "told"), MISTAKES)
def test_mistakes_are_told_in_a_line(words, told, mistake, weights, folder):
    before = sorted(folder.iterdir())
    assert told in mistake("export", "tiny.yaml", *words.replace("$", "--weights w.npz").split())
    assert sorted(folder.iterdir()) == before


def test_a_layer_that_onnx_cannot_say_is_named(mistake, folder):
    text = "layers:\n  - {name: x, type: Input, shape: {dim: [2]}}\n  - {name: own, type: Python, "
    (folder / "own.yaml").write_text(text + f"module: {my_layers.__name__}, layer: Scaled}}\n")
    Net(folder / "own.yaml", device="cpu").save("own.npz")
    told = mistake("export", "own.yaml", "--weights", "own.npz", "--onnx", "x.onnx")
    assert told.startswith("minicaffe: own.yaml:3:5: layer 'own' (Python): cannot be exported")


def test_the_extra_is_named(mistake, weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    told = mistake("export", "tiny.yaml", "--weights", weights, "--onnx", "x.onnx")
    assert told.endswith(f"needs the package onnxruntime: {pip_install('onnx')}")


DEPLOY = """\
name: "Deploy"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 6 dim: 8 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.fixture
def deploy(folder):
    """A deploy net and weights for it."""
    (folder / "deploy.prototxt").write_text(DEPLOY)
    Net(folder / "deploy.prototxt", "TEST", device="cpu").save("d.npz")
    return ("export", "deploy.prototxt", "--weights", "d.npz", "--onnx", "d.onnx")


def test_a_deploy_nets_pictures_are_as_the_options_say(cli, mistake, deploy, folder):
    (folder / "words.txt").write_text("cat\ndog\n")
    options = ("--mean", "104,117,123", "--scale", "0.017", "--channels", "bgr")
    assert cli(*deploy, *options, "--labels", "words.txt", "--tensorrt-safe").code == 0
    told = json.loads((folder / "d.json").read_text())
    how = told["preprocessing"]
    assert told["classes"] == ["cat", "dog"]
    assert (how["mean"], how["scale"], how["channels"]) == ([104, 117, 123], 0.017, "bgr")
    assert (how["size"], how["fit"]) == ([6, 8], None)
    (folder / "d.onnx").unlink()
    assert mistake(*deploy) == "minicaffe: d.json: is there already; --force writes over it"
    assert cli(*deploy, "--force").code == 0
    how = json.loads((folder / "d.json").read_text())["preprocessing"]
    assert (how["mean"], how["scale"], how["channels"]) == (None, None, None)


def test_a_deploy_nets_mean_may_be_an_image(cli, mistake, deploy, folder):
    np.save("mean.npy", np.arange(144.0).reshape(3, 6, 8))
    assert cli(*deploy, "--mean", "mean.npy").code == 0
    how = json.loads((folder / "d.json").read_text())["preprocessing"]
    assert np.array_equal(np.load(how["mean_image"]), np.load("mean.npy"))
    told = "--mean 1,2: expected 1 or 3 numbers, or an image of (3, 6, 8)"
    assert told in mistake(*deploy, "--force", "--mean", "1,2")
    assert "--labels tiny.yaml: names " in mistake(*deploy, "--force", "--labels", "tiny.yaml")


def test_a_run_is_exported_with_its_best_weights(cli, mistake, folder, model):
    name = model(("solver: {", "solver: {best: accuracy, "))
    assert cli("train", name, "--device", "cpu", "--run", "run", "--quiet").code == 0
    ran = cli("export", "--run", "run", "--onnx", "r.onnx")
    assert ran.code == 0 and "weights: changed_best.npz: 4 loaded" in ran.err.splitlines()
    ran = cli("export", name, "--run", "run", "--onnx", "other.onnx")
    assert ran.code == 0
    assert (folder / "other.onnx").stat().st_size == (folder / "r.onnx").stat().st_size
    assert json.loads((folder / "r.json").read_text())["preprocessing"]["fit"] == "digit"
    told = mistake("export", "--onnx", "x.onnx")
    assert told == "minicaffe: no MODEL: give its file or name, or --run DIR, whose folder holds it"


def test_a_detectors_classes_are_those_of_a_label_map(cli, folder):
    faces = ROOT / "examples" / "after_opencv_5" / "faces.prototxt"
    Net(faces, "TEST", device="cpu").save("f.npz")
    (folder / "map.prototxt").write_text(
        'item { name: "none" label: 0 display_name: "ground" }\n'
        'item { name: "n1" label: 1 display_name: "face" }\n'
    )
    given = ("export", str(faces), "--weights", "f.npz", "--onnx", "f.onnx", "--tensorrt-safe")
    assert cli(*given, "--labels", "map.prototxt").code == 0
    assert json.loads((folder / "f.json").read_text())["classes"] == ["ground", "face"]
