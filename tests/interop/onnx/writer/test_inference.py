"""What becomes of a model that is trained when it only infers."""

from __future__ import annotations

import caffe_nets
import pytest

from minicaffe import Net, SpecError, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.tools.inference import inference

DATA = "  - {name: digits, type: Data, top: [data, label], source: digits, batch_size: 8}"
IP = "  - {name: ip, type: InnerProduct, num_output: 10, bottom: data}"


def inferred(*lines: str):
    """The layers that are left, as (type, bottoms, tops), and the notes."""
    spec, notes = inference(parse("\n".join(["layers:", *lines])))
    Net(spec, "TEST", device="cpu", shapes_only=True)
    return [(layer.type, layer.bottom or (), layer.tops) for layer in spec.layers], notes


def test_labels_and_what_is_computed_from_them_go():
    layers, notes = inferred(
        DATA,
        IP,
        "  - {name: twice, type: Power, scale: 2, bottom: label}",
        "  - {name: accuracy, type: Accuracy, bottom: [ip, label]}",
        "  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, twice]}",
        "  - {name: more, type: Power, scale: 2, bottom: loss}",
    )
    assert layers == [
        ("Input", (), ("data",)),
        ("InnerProduct", ("data",), ("ip",)),
        ("Softmax", ("ip",), ("prob",)),
    ]
    assert notes == [
        "layer 'digits' (Data): an input, data",
        "layer 'twice' (Power): left out",
        "layer 'accuracy' (Accuracy): left out",
        "layer 'loss' (SoftmaxWithLoss): a Softmax, prob",
        "layer 'more' (Power): left out",
    ]


def test_several_softmaxes_keep_their_layers_names():
    layers, _ = inferred(
        DATA,
        IP,
        "  - {name: aux, type: InnerProduct, num_output: 10, bottom: data}",
        "  - {name: loss1, type: SoftmaxWithLoss, bottom: [aux, label]}",
        "  - {name: loss2, type: SoftmaxWithLoss, bottom: [ip, label], top: [loss2, answer]}",
    )
    assert [tops for kind, _, tops in layers if kind == "Softmax"] == [("loss1",), ("answer",)]


def test_a_loss_of_weighted_classes_becomes_a_softmax():
    weights = f"class_weighting: {[0.5] * 10}"
    loss = f"  - {{name: loss, type: WeightedSoftmaxWithLoss, bottom: [ip, label], {weights}}}"
    layers, _ = inferred(DATA, IP, loss)
    assert layers[2:] == [("Softmax", ("ip",), ("prob",))]


def test_prob_is_not_taken_twice():
    layers, _ = inferred(
        DATA,
        IP,
        "  - {name: prob, type: InnerProduct, num_output: 10, bottom: ip}",
        "  - {name: loss, type: SoftmaxWithLoss, bottom: [prob, label]}",
    )
    assert [tops for _, _, tops in layers[1:]] == [("ip",), ("prob",), ("loss",)]


def test_a_softmax_that_is_there_is_not_doubled():
    layers, _ = inferred(
        DATA,
        IP,
        "  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}",
        "  - {name: answer, type: Softmax, bottom: ip}",
    )
    assert [tops for kind, _, tops in layers if kind == "Softmax"] == [("answer",)]


def test_what_only_a_loss_read_is_an_output_unless_it_was_not_learnt():
    layers, _ = inferred(
        "  - {name: in, type: Input, top: [data, wanted], shape: {dim: [2, 3]}}",
        "  - {name: half, type: Power, scale: 0.5, bottom: wanted}",
        IP.replace("10", "3"),
        "  - {name: loss, type: EuclideanLoss, bottom: [ip, half]}",
    )
    assert [tops for _, _, tops in layers] == [("data",), ("ip",)]


def test_silence_keeps_a_blob_from_being_an_output():
    layers, _ = inferred(
        "  - {name: data, type: Input, shape: {dim: [2, 3]}}",
        IP,
        "  - {name: other, type: InnerProduct, num_output: 2, bottom: data}",
        "  - {name: hush, type: Silence, bottom: other, top: []}",
    )
    assert [tops for _, _, tops in layers] == [("data",), ("ip",)]


def test_where_all_is_silenced_that_is_what_is_wanted():
    layers, notes = inferred(
        "  - {name: data, type: Input, shape: {dim: [2, 3]}}",
        IP,
        "  - {name: hush, type: Silence, top: []}",
    )
    assert [tops for _, _, tops in layers] == [("data",), ("ip",)]
    assert notes == ["layer 'hush' (Silence): left out; what it reads is an output"]


def test_a_net_of_losses_alone_is_refused():
    with pytest.raises(SpecError, match="nothing is left of it without labels and losses"):
        inferred(
            "  - {name: in, type: Input, top: [a, b], shape: {dim: [2, 3]}}",
            "  - {name: loss, type: EuclideanLoss, bottom: [a, b]}",
        )


def test_siamese_nets_give_both_features():
    text = (caffe_nets.NETS / "mnist_siamese_train_test.prototxt").read_text()
    head = 'input: "pair_data" input_shape { dim: 4 dim: 2 dim: 28 dim: 28 } input: "sim" '
    head += "input_shape { dim: 4 }"
    spec = read_prototxt_text(head + text[text.index('layer {\n  name: "slice_pair"') :])
    spec, _ = inference(spec)
    net = Net(spec, "TEST", device="cpu", shapes_only=True)
    assert net.outputs == ["feat", "feat_p"]


def read_prototxt_text(text):
    from minicaffe.interop.caffe.model import parse_prototxt

    return parse_prototxt(text, REGISTRY)
