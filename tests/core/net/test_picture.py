"""What is drawn of a net: its boxes, arrows and words; and how it shows itself in a notebook."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from kit import small_net

from minicaffe import Net, Solver
from minicaffe.core.net import parse
from minicaffe.tools.visualize import notebook as picture

MODELS = Path(__file__).parent.parent.parent.parent / "models"


def built(text, phase="TRAIN"):
    return Net(parse(text), phase, device="cpu", shapes_only=True)


def arrows(net):
    graph = picture.boxes(net.graph)
    names = [node.name for node in graph.nodes]
    return {(names[edge.source], names[edge.target], edge.label) for edge in graph.edges}


IN_PLACE = """
name: folded
layers:
  - {name: data, type: Input, top: [data, label], shape: [{dim: [4, 3, 8, 8]}, {dim: [4]}]}
  - {name: conv, type: Convolution, bottom: data, num_output: 6, kernel_size: [3, 1], stride: 2, group: 3}
  - {name: relu, type: ReLU, top: conv}
  - {name: pool, type: Pooling, global_pooling: true, pool: AVE}
  - {name: ip, type: InnerProduct, num_output: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""


def test_layers_in_place_stand_in_the_box_before():
    net = built(IN_PLACE)
    boxes = {node.name: node for node in picture.boxes(net.graph).nodes}
    assert list(boxes) == ["data", "conv", "pool", "ip", "loss"]
    conv = boxes["conv"]
    said = "conv\nConvolution 6 of 3x1, stride 2, group 3\n+ ReLU\n24 parameters"
    assert "\n".join(conv.lines) == said
    assert conv.folded == ("relu",) and "relu: ReLU" in conv.title.splitlines()
    assert "bottom data 4x3x8x8" in conv.title and "864 multiply-adds" in conv.title
    assert boxes["pool"].lines[1] == "Pooling AVE global"
    assert " ".join(box.family for box in boxes.values()) == "data convolution pooling product loss"
    assert arrows(net) == {
        ("data", "conv", "4x3x8x8"), ("data", "loss", "4"), ("conv", "pool", "4x6x3x4"),
        ("pool", "ip", "4x6x1x1"), ("ip", "loss", "4x2"),
    }  # fmt: skip


def test_what_is_read_before_it_is_written_over_keeps_its_own_box():
    layers = [
        "ip InnerProduct num_output: 3",
        "raw Power bottom: ip",
        "relu ReLU bottom: ip, top: ip",
    ]
    net = small_net({"data": [2, 3]}, *layers, "both Eltwise bottom: [ip, raw]", shapes_only=True)
    names = [node.name for node in picture.boxes(net.graph).nodes]
    assert names == ["data", "ip", "raw", "relu", "both"]
    assert ("ip", "raw", "2x3") in arrows(net) and ("relu", "both", "2x3") in arrows(net)
    assert picture.boxes(net.graph).nodes[-1].lines[-1] == "gives 2x3"


def test_shared_parameters_are_told_by_whose_they_are():
    net = Net(MODELS / "mnist_siamese.yaml", "TRAIN", device="cpu", shapes_only=True)
    boxes = {node.name: node for node in picture.boxes(net.graph).nodes}
    assert boxes["conv1"].lines[-1] == "520 parameters"
    assert boxes["conv1_p"].lines[-1] == "parameters of conv1"
    into_loss = {("feat", "loss", "64x2"), ("feat_p", "loss", "64x2"), ("sim", "loss", "64")}
    assert into_loss <= arrows(net)


@pytest.mark.parametrize("name", ["googlenet", "resnet50", "lstm", "fcn8s"])
def test_every_layer_is_in_a_box_and_every_bottom_has_its_arrow(name):
    net = Net(MODELS / f"{name}.yaml", device="cpu", shapes_only=True)
    graph = picture.boxes(net.graph)
    drawn = [layer for node in graph.nodes for layer in (node.name, *node.folded)]
    assert sorted(drawn) == sorted(net.layers)
    folded = sum(len(node.folded) for node in graph.nodes)
    bottoms = sum(len({id(value) for value in step.bottoms}) for step in net.steps)
    assert len(graph.edges) == bottoms - folded
    ElementTree.fromstring(picture.svg(net.graph))


def test_a_net_shows_itself_in_a_notebook():
    text = built(IN_PLACE)._repr_html_()
    root = ElementTree.fromstring(text)
    cells = [cell.text for cell in root.iter("td")]
    assert cells[:2] == ["data", "Input"] and "864" in cells
    assert root.find("details/summary").text.startswith("parameters: 38 (")
    assert 'data-layer="conv"' in text


def test_a_hostile_net_is_drawn_as_text():
    layer = "{name: '<script>1</script>', type: Input, shape: {dim: [1]}}"
    net = built(f"{{name: '</svg><b>', layers: [{layer}]}}")
    assert "<script" not in net._repr_html_() and "&lt;script&gt;" in net._repr_html_()


def test_the_picture_in_the_docs_is_what_is_drawn():
    net = Net(MODELS / "lenet.yaml", device="cpu", shapes_only=True)
    shown = (MODELS.parent / "docs" / "lenet.svg").read_text("utf-8")
    assert shown == picture.svg(net.graph, alone=True)


def test_a_solver_shows_its_settings_and_its_net():
    solver = Solver(parse(IN_PLACE + "solver: {base_lr: 0.25, max_iter: 10}\n"), device="cpu")
    root = ElementTree.fromstring(solver._repr_html_())
    assert "base_lr" in root.find("pre").text and root.find("div/details") is not None
