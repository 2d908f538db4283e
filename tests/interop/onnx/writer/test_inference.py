"""What becomes of a model that is trained when it only infers."""

import caffe_nets
import pytest
from kit import refusal

from minicaffe import Net, SpecError, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.interop.caffe.model import parse_prototxt
from minicaffe.tools.inference import inference

DATA = "{name: digits, type: Data, top: [data, label], source: digits, batch_size: 8}"
INPUT = "{name: data, type: Input, shape: {dim: [2, 3]}}"
IP = "{name: ip, type: InnerProduct, num_output: 10, bottom: data}"


def inferred(*lines: str):
    """The layers that are left, as (type, bottoms, tops), and the notes."""
    text = "\n".join(f"  - {line}" for line in lines)
    spec, notes = inference(parse(f"layers:\n{text}"))
    Net(spec, "TEST", device="cpu", shapes_only=True)
    return [(layer.type, layer.bottom or (), layer.tops) for layer in spec.layers], notes


def test_labels_and_what_is_computed_from_them_go():
    layers, notes = inferred(
        DATA,
        IP,
        "{name: twice, type: Power, scale: 2, bottom: label}",
        "{name: accuracy, type: Accuracy, bottom: [ip, label]}",
        "{name: loss, type: SoftmaxWithLoss, bottom: [ip, twice]}",
        "{name: more, type: Power, scale: 2, bottom: loss}",
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


LOSS = "{name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}"
OTHER = "{name: other, type: InnerProduct, num_output: 10, bottom: data}"
LEFT = {  # the layers, and what is left: types and tops
    "several softmaxes keep their layers' names": (
        [DATA, IP, OTHER, "{name: loss1, type: SoftmaxWithLoss, bottom: [other, label]}",
         "{name: loss2, type: SoftmaxWithLoss, bottom: [ip, label], top: [loss2, answer]}"],
        "Input data, InnerProduct ip, InnerProduct other, Softmax loss1, Softmax answer",
    ),
    "a loss of weighted classes becomes a softmax": (
        [DATA, IP, f"{{name: loss, type: WeightedSoftmaxWithLoss, bottom: [ip, label], class_weighting: {[0.5] * 10}}}"],
        "Input data, InnerProduct ip, Softmax prob",
    ),
    "prob is not taken twice": (
        [DATA, IP, "{name: prob, type: InnerProduct, num_output: 10, bottom: ip}", LOSS.replace("[ip", "[prob")],
        "Input data, InnerProduct ip, InnerProduct prob, Softmax loss",
    ),
    "a softmax that is there is not doubled": (
        [DATA, IP, LOSS, "{name: answer, type: Softmax, bottom: ip}"],
        "Input data, InnerProduct ip, Softmax answer",
    ),
    "what only a loss read is an output unless it was not learnt": (
        ["{name: in, type: Input, top: [data, wanted], shape: {dim: [2, 3]}}",
         "{name: half, type: Power, scale: 0.5, bottom: wanted}", IP.replace("10", "3"),
         "{name: loss, type: EuclideanLoss, bottom: [ip, half]}"],
        "Input data, InnerProduct ip",
    ),
    "silence keeps a blob from being an output": (
        [INPUT, IP, OTHER, "{name: hush, type: Silence, bottom: other, top: []}"],
        "Input data, InnerProduct ip",
    ),
    "where all is silenced that is what is wanted": (
        [INPUT, IP, "{name: hush, type: Silence, top: []}"], "Input data, InnerProduct ip",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left(case):
    lines, wanted = LEFT[case]
    layers, notes = inferred(*lines)
    assert ", ".join(f"{kind} {' '.join(tops)}" for kind, _, tops in layers) == wanted
    if case.startswith("where all is silenced"):
        assert notes == ["layer 'hush' (Silence): left out; what it reads is an output"]


def test_a_net_of_losses_alone_is_refused():
    pair = "{name: in, type: Input, top: [a, b], shape: {dim: [2, 3]}}"
    loss = "{name: loss, type: EuclideanLoss, bottom: [a, b]}"
    told = refusal(inferred, pair, loss, error=SpecError)
    assert "nothing is left of it without labels and losses" in told


def test_siamese_nets_give_both_features():
    text = (caffe_nets.NETS / "mnist_siamese_train_test.prototxt").read_text()
    head = 'input: "pair_data" input_shape { dim: 4 dim: 2 dim: 28 dim: 28 } input: "sim" '
    head += "input_shape { dim: 4 }"
    text = head + text[text.index('layer {\n  name: "slice_pair"') :]
    spec, _ = inference(parse_prototxt(text, REGISTRY))
    assert Net(spec, "TEST", device="cpu", shapes_only=True).outputs == ["feat", "feat_p"]
