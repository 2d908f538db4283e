"""Names of layers and blobs: those that a target takes, unique, and the same in both files."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe import Net
from minicaffe.interop.caffe import weights
from minicaffe.interop.onnx.reader import from_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from interop.onnx.reader.mutants import model_of, normal  # noqa: E402

node = onnx.helper.make_node
ALLOWED = r"[A-Za-z0-9_./-]+"  # of ascend
TENSORS = {
    "data:é+0": "input",
    "backbone/stage1/block.0/branch/relu/Relu_output_0": "before the weight",
    "backbone/stage2/block.0/branch/relu/Relu_output_0": "ends as the one before",
    "Ausgabe.größe:0": "output",
}


def chained(names, path):
    """A file whose tensors are called so: convolutions and ReLUs, one behind another."""
    nodes, arrays = [], {}
    for i, (bottom, top) in enumerate(itertools.pairwise(names)):
        weight = f"backbone.stage.features.{i}.of.a.long.path.conv.weight"
        arrays[weight] = normal(3, 3, 1, 1, seed=i)
        nodes += [node("Conv", [bottom, weight], [f"{i}/conv"]), node("Relu", [f"{i}/conv"], [top])]
    model = model_of(nodes, {names[0]: (1, 3, 2, 2)}, [names[-1]], arrays)
    path.write_bytes(model.SerializeToString())
    return path


def names_of(spec):
    """The names of a net's layers, and of its blobs."""
    return [layer.name for layer in spec.layers], [
        top for layer in spec.layers for top in layer.tops
    ]


def test_names_that_a_compiler_takes(tmp_path):
    """In the text and in the weights, of inputs and outputs too; the net that is read again is the same."""
    path = chained(list(TENSORS), tmp_path / "it.onnx")
    imported = from_onnx(path, tmp_path / "net", target="ascend")
    layers, blobs = names_of(imported.spec)
    assert len(set(layers)) == len(layers) and len(set(blobs)) == len(blobs)
    assert all(re.fullmatch(ALLOWED, name) for name in layers + blobs), layers
    assert set(Net(tmp_path / "net.prototxt", "TEST", device="cpu").blobs) == set(blobs)
    stored = {name for name, arrays in weights.read(tmp_path / "net.caffemodel").items() if arrays}
    assert stored == {name.rpartition("__")[0] for name in imported.arrays}
    assert stored <= set(layers)
    ends = {name: imported.tensors[name] for name in ("data:é+0", "Ausgabe.größe:0")}
    assert set(ends.values()) <= set(blobs)
    listed = [f"{name!r} is called {end!r}" for name, end in ends.items() if name != end]
    assert imported.notes[0] == f"input {listed[0]}, output {listed[1]}"


def test_other_targets_keep_them_whole(tmp_path):
    imported = from_onnx(chained(list(TENSORS), tmp_path / "it.onnx"), tmp_path / "net")
    assert "backbone/stage1/block.0/branch/relu" in names_of(imported.spec)[0]
    assert imported.tensors["data:é+0"] == "data:é+0"
    assert not any("is called" in line for line in imported.notes)


@settings(max_examples=25)
@given(st.lists(st.text("ab/._:+ é", min_size=1, max_size=40), min_size=2, max_size=9, unique=True))
def test_no_two_names_become_one(tmp_path_factory, names):
    names = [f"{name}{'~' * i}" for i, name in enumerate(names)]  # '~' becomes '_'
    path = chained(names, tmp_path_factory.getbasetemp() / "it.onnx")
    imported = from_onnx(path, target="ascend")
    layers, blobs = names_of(imported.spec)
    assert len(set(layers)) == len(layers) and len(set(blobs)) == len(blobs)
    assert all(re.fullmatch(ALLOWED, name) for name in layers + blobs)
    assert len({imported.tensors[name] for name in names}) == len(names)


def test_a_layer_called_as_the_one_that_silences(tmp_path):
    nodes = [
        node("Split", ["x", "sizes"], ["part", "rest"], axis=1),
        node("Relu", ["part"], ["unread"]),
    ]
    model = model_of(nodes, {"x": (1, 3, 2, 2)}, ["unread"], {"sizes": np.array([1, 2])})
    (tmp_path / "it.onnx").write_bytes(model.SerializeToString())
    layers, _ = names_of(from_onnx(tmp_path / "it.onnx", tmp_path / "net").spec)
    assert layers == ["x", "part_slice", "unread", "unread_"]
