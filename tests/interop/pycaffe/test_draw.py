"""Nets as graphs: what is drawn of each, and that any name is drawn as itself."""

import re
import stat
from pathlib import Path

import pytest
from kit import refusal

pytest.importorskip("google.protobuf")

from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

import minicaffe.interop.pycaffe as caffe
from minicaffe.interop.pycaffe import draw
from minicaffe.interop.pycaffe import layers as L
from minicaffe.interop.pycaffe import params as P
from minicaffe.interop.pycaffe.proto import caffe_pb2

NETS = Path(__file__).parent.parent / "caffe" / "nets"
NODE = re.compile(r'^  (\w+) \[label="((?:[^"\\]|\\.)*)" shape="(\w+)" fillcolor="(#\w+)"\]$', re.M)
EDGE = re.compile(r'^  (\w+) -> (\w+)(?: \[label="(.*)"\])?$', re.M)


def net(text):
    return text_format.Parse(text, caffe_pb2.NetParameter())


def stock(name):
    return net((NETS / name).read_text())


def nodes(dot):
    return {node: (label, shape, colour) for node, label, shape, colour in NODE.findall(dot)}


def test_the_labels_and_colours_of_lenet_are_caffes():
    found = nodes(draw.get_dot(stock("lenet_train_test.prototxt"), phase=caffe.TRAIN))
    labels = {label: (shape, colour) for label, shape, colour in found.values()}
    window = r"kernel size: 5\nstride: 1\npad: 0"
    assert labels[rf"conv1\n(Convolution)\n{window}"] == ("box", "#FF5050")
    window = r"kernel size: 2\nstride: 2\npad: 0"
    assert labels[rf"pool1\n(MAX Pooling)\n{window}"] == ("box", "#FF9900")
    assert labels[r"ip1\n(InnerProduct)"] == ("box", "#CC33FF")
    assert labels[r"relu1\n(ReLU)"] == ("box", "#90EE90")  # in place
    assert labels[r"loss\n(SoftmaxWithLoss)"] == ("box", "#6495ED")
    assert labels["ip1"] == ("octagon", "#E0E0E0")
    assert not any("accuracy" in label for label in labels)


def test_the_ways_are_those_of_the_net():
    given = stock("lenet_train_test.prototxt")
    dot = draw.get_dot(given)
    label = {node: one[0].split(r"\n")[0] for node, one in nodes(dot).items()}
    found = sorted((label[a], label[b]) for a, b, _ in EDGE.findall(dot))
    wanted = [(blob, layer.name) for layer in given.layer for blob in layer.bottom]
    wanted += [(layer.name, blob) for layer in given.layer for blob in layer.top]
    assert found == sorted(wanted)
    told = {(label[a], label[b]): text for a, b, text in EDGE.findall(dot) if text}
    assert told[("conv2", "conv2")] == "50"
    assert told[("ip2", "ip2")] == "10"
    of_data = {text for a, _, text in EDGE.findall(dot) if label[a] == "mnist" and text}
    assert of_data == {"Batch 64", "Batch 100"}
    assert not any(text for _, _, text in EDGE.findall(draw.get_dot(given, label_edges=False)))


def test_a_phase_has_its_layers():
    given = stock("lenet_train_test.prototxt")
    given.layer.add(name="not tested", type="ReLU").exclude.add(phase=caffe.TEST)
    for phase, names in (
        (caffe.TRAIN, {"mnist", "not tested"}),
        (caffe.TEST, {"mnist", "accuracy"}),
    ):
        found = {one[0].split(r"\n")[0] for one in nodes(draw.get_dot(given, phase=phase)).values()}
        assert found & {"mnist", "not tested", "accuracy"} == names
        assert draw.get_dot(given, phase=phase).count("(Data)") == 1
    assert draw.get_dot(given).count("(Data)") == 2


def test_labels_lie_in_one_line_where_the_graph_runs_down():
    conv = caffe.to_proto(
        L.Convolution(L.Input(), kernel_h=3, kernel_w=5, stride=[2, 2], param=dict(lr_mult=0))
    ).layer[1]
    told = "Convolution1 (Convolution) kernel size: 3x5 stride: 2 pad: 0"
    assert draw.get_layer_label(conv, "TB") == told
    assert draw.get_layer_label(conv, "LR", display_lrm=True).endswith("\nlr mult: 0.0, 1.0")
    pool = caffe.to_proto(L.Pooling(L.Input(), pool=P.Pooling.AVE, global_pooling=True)).layer[1]
    assert draw.get_layer_label(pool, "BT") == "Pooling1 (AVE Pooling) global"


@settings(max_examples=60)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=4))
def test_any_name_is_drawn_as_itself(names):
    """Quotes, braces, signs of other scripts: a statement stays one line, and its label gives the name."""
    given_ = caffe_pb2.NetParameter(name=names[0])
    for name in names:
        given_.layer.add(name=name, type="ReLU", bottom=[name], top=[name])
    dot = draw.get_dot(given_, rankdir="TB")
    assert len(dot.split("\n")) == 5 + len(names) + len(set(names)) + 2 * len(names)
    found = [label for label, shape, _ in nodes(dot).values() if shape == "box"]
    for label, name in zip(found, names, strict=True):
        shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in name)
        assert re.sub(r"\\(.)", lambda one: one[1].replace("n", "\n"), label) == f"{shown} (ReLU)"


@pytest.mark.parametrize("ending", ["dot", "gv", "DOT"])
def test_text_needs_no_program(tmp_path, ending, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    given = stock("lenet.prototxt")
    draw.draw_net_to_file(given, tmp_path / f"net.{ending}", "BT")
    written = (tmp_path / f"net.{ending}").read_text()
    assert written == draw.get_dot(given, "BT")
    assert written.startswith('digraph "LeNet" {\n  rankdir="BT"\n')


def program(folder, text):
    """A stand-in for Graphviz's program."""
    path = folder / "dot"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_pictures_are_drawn_by_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program(tmp_path, 'echo "drawn $1"; cat')
    given = stock("lenet.prototxt")
    caffe.draw.draw_net_to_file(given, str(tmp_path / "net.png"))
    assert (tmp_path / "net.png").read_text() == "drawn -Tpng\n" + draw.get_dot(given)
    program(tmp_path, "cat > /dev/null; echo 'Format: \"xyz\"' not recognized >&2; exit 1")
    told = refusal(draw.draw_net_to_file, given, tmp_path / "net.xyz")
    assert 'does not draw this as .xyz: Format: "xyz" not' in told
    assert not (tmp_path / "net.xyz").exists()


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda f: draw.draw_net(stock("lenet.prototxt"), ext="png"), "needs Graphviz's program `dot`"),
        (
            lambda f: draw.draw_net_to_file(stock("lenet.prototxt"), f / "net"),
            "expected the format of a picture, such as png or dot, got",
        ),
        (lambda f: draw.get_dot(stock("lenet.prototxt"), "UP"), "rankdir: expected one of LR, RL"),
        (lambda f: draw.get_dot("lenet.prototxt"), "expected a NetParameter, got str"),
        (lambda f: draw.get_dot(stock("lenet_v1.prototxt")), "`minicaffe convert` makes it new"),
        (
            lambda f: draw.get_dot(net("layer { name: 'a' include {} exclude {} }"), phase=0),
            "layer 'a': has both include and exclude",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(use, told, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert told in refusal(use, tmp_path)
