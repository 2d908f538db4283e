"""Loss layers: second tops, what sums are divided by, bad labels on CUDA."""

import numpy as np
import pytest
from core.layers.fork_nets import build
from core.layers.rows.losses import H
from kit import net_of

from minicaffe import Net, gradcheck, parse
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import DataError

LABELS = np.array([1.0, 0.0, 3.0])
WITH_PROB = [("SoftmaxWithLoss", [(3, 4), LABELS]), ("InfogainLoss", [(3, 4), LABELS, np.eye(4)])]


@pytest.mark.parametrize(("name", "bottoms"), WITH_PROB)
def test_the_probabilities_and_their_gradient(name, bottoms, device):
    layer = REGISTRY[name]()
    layer.top = ("loss", "prob")
    assert gradcheck(layer, *bottoms, device=device) < 1e-6
    net = net_of(f"type: {name}, top: [loss, prob]", *bottoms, device=device)
    x = np.random.default_rng(0).normal(size=(3, 4))
    given = {f"b{i}": array for i, array in enumerate([x, *bottoms[1:]])}
    net.forward(**given)
    wanted = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(device.to_host(net.blobs["prob"].data), wanted, rtol=1e-12)
    assert net.loss == pytest.approx(-np.log(wanted[[0, 1, 2], [1, 0, 3]]).mean())
    net.backward(prob=np.zeros((3, 4)))
    alone = np.array(device.to_host(net.blobs["b0"].diff))
    once = net_of(f"type: {name}", *bottoms, device=device)
    once.forward(**given)
    once.backward()
    np.testing.assert_allclose(alone, device.to_host(once.blobs["b0"].diff), atol=1e-15)


@pytest.mark.parametrize(("name", "bottoms"), WITH_PROB)
def test_the_probabilities_are_not_overwritten_by_work_in_place(name, bottoms):
    relu = {"name": "relu", "type": "ReLU", "bottom": "prob", "top": "prob"}
    shapes = [(3, 4), (3,), (4, 4)][: len(bottoms)]
    net = build(name, {}, shapes, tops=("loss", "prob"), phase="TRAIN", more=[relu])
    assert net.steps[2].tops[0].reuses is None


NORMALIZERS = [
    ("", 3, 1),
    ("normalize: true", 3, 1),
    ("normalize: false", 2, 2),
    ("normalization: FULL", 6, 6),
    ("normalization: FULL, normalize: false", 6, 6),  # normalization decides
    ("normalization: NONE", 1, 1),
    ("normalization: VALID", 3, 3),
]


@pytest.mark.parametrize(("keys", "softmax", "bits"), NORMALIZERS)
def test_what_the_sum_is_divided_by(keys, softmax, bits, device):
    """Two samples of three labels, of which three count; the usual of SigmoidCrossEntropyLoss is BATCH_SIZE."""
    labels = np.array([[0, 9, 1], [9, 9, 1]], float)
    bits = {"": 2, "normalize: true": 3}.get(keys, bits)
    zero = {"b0": np.zeros((2, 2, 3)), "b1": labels}
    row = f"type: SoftmaxWithLoss, ignore_label: 9{', ' * bool(keys)}{keys}"
    net = net_of(row, (2, 2, 3), labels, device=device, dtype="float32")
    net.forward(**zero)
    assert net.loss == pytest.approx(3 * np.log(2) / softmax, rel=1e-6)
    row = row.replace("SoftmaxWithLoss", "SigmoidCrossEntropyLoss")
    net = net_of(row, (2, 3), labels, device=device, dtype="float32")
    net.forward(b0=np.zeros((2, 3)), b1=labels)
    assert net.loss == pytest.approx(3 * np.log(2) / bits, rel=1e-6)


def test_no_label_that_counts_divides_by_one(device):
    for name in ("SoftmaxWithLoss", "SigmoidCrossEntropyLoss"):
        row = f"type: {name}, ignore_label: 1, normalization: VALID"
        net = net_of(row, (1, 2) if name[1] == "o" else (1, 1), (1, 1), device=device)
        net.forward(b1=np.ones((1, 1)))
        net.backward()
        assert net.loss == 0 and not device.to_host(net.blobs["b0"].diff).any()


def test_a_matrix_is_read_once_from_beside_the_model(tmp_path, here):
    (tmp_path / "nets").mkdir()
    np.save(tmp_path / "nets" / "h.npy", np.eye(3) * 2)
    (tmp_path / "nets" / "net.yaml").write_text("""
layers:
  - {name: data, type: Input, top: [x, y], shape: [{dim: [4, 3]}, {dim: 4}]}
  - {name: it, type: InfogainLoss, source: h.npy, bottom: [x, y]}
""")
    net = Net("nets/net.yaml", device="cpu")
    (tmp_path / "nets" / "h.npy").unlink()
    net.reshape(x=(2, 3), y=(2,))
    net.forward(x=np.zeros((2, 3)), y=np.zeros(2))
    assert net.loss == pytest.approx(2 * np.log(3))
    for array, told in (
        (None, "source: no such file; looked for 'h.npy' and 'nets/h.npy'"),
        (np.eye(4), r"expected 3 x 3 numbers, got \(4, 4\)"),
        (np.full((3, 3), "a"), "expected numbers, got <U1"),
    ):
        if array is not None:
            np.save("nets/h.npy", array)
        with pytest.raises(DataError, match=told):
            Net("nets/net.yaml", device="cpu")


@pytest.mark.parametrize("name", ["HingeLoss", "MultinomialLogisticLoss", "InfogainLoss"])
def test_a_label_that_is_no_class_is_named(name, device):
    net = net_of(f"type: {name}", (2, 3), (2,), *[(3, 3)] * (name == "InfogainLoss"), device=device)

    told = rf"layer 'it' \({name}\): label 7 is not one of the 3 classes"
    with pytest.raises(DataError, match=told):
        net.forward(b0=np.full((2, 3), 0.3), b1=[0, 7])
        assert np.isnan(net.loss)
        net.check()


def test_targets_that_are_data_keep_the_nets_type():
    """An autoencoder's input is its target too: float32 would break the layers that read it as data."""
    text = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: y, type: InnerProduct, num_output: 3}
  - {name: loss, type: SigmoidCrossEntropyLoss, bottom: [y, x]}
"""
    net = Net(parse(text), dtype="float16", device="cpu", shapes_only=True)
    assert [v.dtype.name for s in net.steps for v in s.tops] == ["float16", "float16", "float32"]


def test_the_matrix_of_caffe_is_the_fixtures():
    net = net_of(f"type: InfogainLoss, source: {H}", (1, 5), (1,))
    assert net.layers["it"].matrix.shape == (5, 5)
