"""minicaffe export: what it writes and tells, and what it refuses before anything is written."""

from __future__ import annotations

import sys

import my_layers
import numpy as np
import pytest

from minicaffe import Net

runtime = pytest.importorskip("onnxruntime")


@pytest.fixture
def weights(folder):
    """tiny.yaml's parameters, as they are filled."""
    Net(folder / "tiny.yaml", "TEST", device="cpu").save("w.npz")
    return "w.npz"


def test_a_trained_net_becomes_a_classifier(cli, mistake, weights):
    given = ("export", "tiny.yaml", "--weights", weights, "--onnx", "tiny.onnx")
    ran = cli(*given, "--dynamic", "batch")
    assert ran.code == 0
    assert ran.err.splitlines()[-4:] == [
        "layer 'mnist' (Data): an input, data",
        "layer 'accuracy' (Accuracy): left out",
        "layer 'loss' (SoftmaxWithLoss): a Softmax, prob",
        "weights: w.npz: 4 loaded",
    ]
    first, other, last = ran.out.splitlines()
    assert first.startswith("prob (1, 10): checked against onnxruntime: max. relative difference ")
    assert other.startswith("prob (3, 10): checked against onnxruntime: max. relative difference ")
    assert last == "tiny.onnx: 5 nodes, opset 17, 0.0 MiB"
    session = runtime.InferenceSession("tiny.onnx", providers=["CPUExecutionProvider"])
    (prob,) = session.run(["prob"], {"data": np.zeros((7, 1, 28, 28), np.float32)})
    assert prob.shape == (7, 10)
    assert mistake(*given) == "minicaffe: tiny.onnx: is there already; --force writes over it"
    assert cli(*given, "--force").code == 0


def test_a_state_dict_is_told_of(cli, weights):
    safetensors = pytest.importorskip("safetensors.numpy")
    ran = cli("export", "tiny.yaml", "--weights", weights, "--torch", "tiny.safetensors")
    assert "conv1: Conv2d(1, 4, kernel_size=(5, 5), stride=(2, 2))" in ran.out.splitlines()
    assert "  ip1__1 (10,) -> ip1.bias (10,)" in ran.out.splitlines()
    found = safetensors.load_file("tiny.safetensors")
    assert sorted(found) == ["conv1.bias", "conv1.weight", "ip1.bias", "ip1.weight"]


MISTAKES = [
    (["--onnx", "x.onnx"], "tiny.yaml: holds no weights; give them by --weights FILE"),
    (["--weights", "w.npz"], "one of the arguments --onnx --torch is required"),
    (["--weights", "w.npz", "--torch", "x", "--dynamic", "batch"], "--dynamic goes with --onnx"),
    (["--weights", "w.npz", "--onnx", "x.onnx", "--dynamic", "bach"], "did you mean 'batch'?"),
    (
        ["--weights", "w.npz", "--onnx", "no/x.onnx"],
        "no/x.onnx: cannot be written: there is no folder 'no'",
    ),
    (["--weights", "w.npz", "--torch", ""], "--torch: expected a file, got ''"),
]


@pytest.mark.parametrize(("words", "told"), MISTAKES)
def test_mistakes_are_told_in_a_line(words, told, mistake, weights, folder):
    before = sorted(folder.iterdir())
    assert told in mistake("export", "tiny.yaml", *words)
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
    assert told.endswith("needs the package onnxruntime: pip install 'minicaffe[onnx]'")
