"""Blobs and diffs that a user gives: used, or refused with the remedy, never thrown away."""

import itertools

import numpy as np
import pytest
from kit import model_of, registered

from minicaffe import Layer, Net, ShapeError, SpecError, parse
from minicaffe.core.layers.fillers import XAVIER
from minicaffe.errors import DataError
from minicaffe.interop import pycaffe

DATA = """
layers:
  - {name: digits, type: Data, top: [data, label], source: digits, batch_size: 4}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 10}
  - {name: accuracy, type: Accuracy, bottom: [ip, label], include: TEST}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""
SIDE = """
layers:
  - {name: in, type: Input, top: [x, label], shape: [{dim: [4, 3]}, {dim: 4}]}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 2}
  - {name: side, type: InnerProduct, bottom: x, num_output: 3}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""
pytestmark = pytest.mark.usefixtures("fifty_digits")


def pictures(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0, 1, (n, 1, 28, 28)).astype(np.float32)


def test_given_pictures_are_scored_not_the_data_sets(device):
    net = Net(parse(DATA), "TEST", device=device)
    x = pictures(4)
    scores = device.to_host(net.forward(start="ip", end="ip", data=x)["ip"]).copy()
    net.forward()  # the data set's
    assert not np.array_equal(device.to_host(net.blobs["data"].data), x)
    right = scores.argmax(axis=1)
    assert float(device.to_host(net.forward(data=x, label=right)["accuracy"])) == 1
    np.testing.assert_array_equal(device.to_host(net.blobs["data"].data), x)
    assert float(device.to_host(net.forward(data=x, label=(right + 1) % 10)["accuracy"])) == 0
    net.forward()  # and the data set's again
    assert not np.array_equal(device.to_host(net.blobs["data"].data), x)


def test_another_number_of_samples_after_a_reshape():
    net = Net(parse(DATA), "TEST", device="cpu")
    net.reshape(data=(7, 1, 28, 28))
    assert net.blobs["label"].shape == (7,)
    net.forward(data=pictures(7), label=np.arange(7))
    assert net.blobs["ip"].data.shape == (7, 10)
    net.forward()
    np.testing.assert_array_equal(
        net.blobs["label"].data, net.layers["digits"].dataset.labels[7:14]
    )


COUNTS = "data: expected a shape of integers of at least 1, got"


@pytest.mark.parametrize(
    ("way", "given", "why"),
    [
        ("reshape", {"data": (4, 1, 28, 27)}, r"data: expected \(n, 1, 28, 28\), .*, got \(4, 1, 28, 27\)"),
        ("reshape", {"label": ()}, r"label: expected \(n,\), .*, got \(\)"),
        ("reshape", {"data": (5, 1, 28, 28), "label": (6,)}, "while another top of its layer has other"),
        ("reshape", {"dat": 5}, "'dat' is not a top of an Input or Data layer; did you mean 'data'"),
        ("reshape", {"data": 5}, f"^{COUNTS} 5"),
        ("reshape", {"data": (True, 1, 28, 28)}, f"^{COUNTS}"),
        ("reshape", {"data": (0, 1, 28, 28)}, f"^{COUNTS}"),
        ("reshape", {"data": (2.0, 1, 28, 28)}, f"^{COUNTS}"),
        ("reshape", {"data": None}, f"^{COUNTS} None"),
        ("forward", {"data": np.zeros((7, 1, 28, 28)), "label": np.zeros(7)},
         r"net.reshape\(data=\(7, 1, 28, 28\)\) would change it"),
        ("forward", {"data": np.zeros((4, 1, 28, 28)), "label": np.zeros(5)}, "blob 'label' has shape"),
        ("forward", {"data": np.zeros((4, 1, 28, 28))},
         "label is not: .*; minicaffe.Classifier needs no labels"),
        ("forward", {"label": np.zeros(4)}, r"data is not: layer 'digits' \(Data\) gives them together$"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_a_data_set_does_not_take_leaves_the_next_pass_as_it_was(way, given, why):
    net = Net(parse(DATA), "TEST", device="cpu")
    with pytest.raises(ShapeError, match=why):
        getattr(net, way)(**given)
    assert net.blobs["data"].shape == (4, 1, 28, 28)
    net.forward()
    np.testing.assert_array_equal(net.blobs["label"].data, net.layers["digits"].dataset.labels[:4])


def test_a_blob_that_a_layer_computes_cannot_be_given_to_it():
    net = Net(parse(SIDE), device="cpu")
    with pytest.raises(ShapeError, match="blob 'ip' is computed by layer 'ip' or not .*start="):
        net.forward(ip=np.zeros((4, 2)))
    net.forward(x=np.ones((4, 3)))
    side = np.zeros((4, 3))
    for wrong in ({"start": "loss", "side": side}, {"end": "ip", "side": side}):
        before = net.blobs["side"].data.copy()
        with pytest.raises(ShapeError, match="blob 'side' is computed by layer 'side' or not read"):
            net.forward(**wrong)
        np.testing.assert_array_equal(net.blobs["side"].data, before)
    ip = np.full((4, 2), 7.0)
    assert net.forward(start="loss", ip=ip, label=np.zeros(4))["loss"] == pytest.approx(np.log(2))
    np.testing.assert_array_equal(net.blobs["ip"].data, ip)


class Learnt(Layer):
    """A blob that is a parameter."""

    def setup(self):
        self.values = self.param((4, 3), XAVIER)
        return (4, 3)

    def forward(self):
        return self.values.data

    def backward(self, dy):
        self.values.diff[...] += dy


def test_a_layer_that_was_passed_over_gets_no_gradient():
    loss = "{name: y, type: Eltwise, bottom: [x, x], operation: PROD, loss_weight: 1}"
    with registered(Learnt):
        net = Net(parse(f"layers: [{{name: x, type: Learnt}}, {loss}]"), device="cpu")
    net.forward()
    net.backward()
    np.testing.assert_allclose(net.params["x"][0].diff, 2 * net.params["x"][0].data, rtol=1e-6)
    net.clear_param_diffs()
    net.forward(x=np.ones((4, 3)))
    net.backward()
    assert not net.params["x"][0].diff.any()
    np.testing.assert_array_equal(net.blobs["x"].diff, np.full((4, 3), 2))


def test_a_diff_that_would_go_nowhere_is_refused_with_the_remedy():
    net = Net(parse(SIDE), device="cpu")
    net.forward(x=np.ones((4, 3)), label=[0, 1, 0, 1])
    d = np.arange(12.0).reshape(4, 3)
    said = "'side' would go nowhere: .* no loss .* force_backward: true"
    for start in (None, "side"):
        with pytest.raises(ShapeError, match=said):
            net.backward(start=start, side=d)
    forced = Net(parse("force_backward: true" + SIDE), device="cpu")
    forced.forward(x=np.ones((4, 3)), label=[0, 1, 0, 1])
    forced.backward(side=d)
    np.testing.assert_allclose(forced.params["side"][1].diff, d.sum(axis=0))
    forced.clear_param_diffs()
    forced.backward(start="side", end="side", side=d)
    np.testing.assert_allclose(forced.params["side"][1].diff, d.sum(axis=0))


@pytest.mark.parametrize("layer", ["Accuracy, bottom: [ip, label]", "Input, shape: {dim: [3]}"])
def test_no_remedy_is_named_that_would_not_help(layer):
    net = Net(parse(f"force_backward: true{SIDE}  - {{name: more, type: {layer}}}\n"), device="cpu")
    with pytest.raises(ShapeError, match="'more' would go nowhere: [^;]*$"):
        net.backward(more=np.zeros(net.blobs["more"].shape))


def test_what_an_input_holds_may_be_given_to_any_pass():
    net = Net(parse(SIDE), device="cpu")
    net.forward(end="side", x=np.ones((4, 3)), label=[1, 1, 0, 0])
    loss = float(net.forward(start="loss")["loss"])
    assert float(net.forward(start="loss", label=[0, 0, 0, 1])["loss"]) != loss


def test_layers_in_the_wrong_order_run_nothing():
    net = Net(parse(SIDE), device="cpu")
    with pytest.raises(SpecError, match="layer 'side' stands after layer 'ip'"):
        net.forward(start="side", end="ip")
    with pytest.raises(SpecError, match="layer 'side' stands after layer 'ip'"):
        net.backward(start="ip", end="side")


def test_a_net_of_shapes_alone_computes_nothing():
    net = Net(parse(SIDE), device="cpu", shapes_only=True)
    for call in (net.forward, net.backward, net.weights, lambda: net.loss):
        with pytest.raises(ShapeError, match="the net has shapes only"):
            call()


@pytest.mark.parametrize(
    ("head", "loss", "told"),
    [("", "", 1), ("force_backward: true", "", 0), ("", "loss EuclideanLoss bottom: [ip, ip]", 0)],
)
def test_zeros_that_are_no_gradient_are_told_once(head, loss, told, capsys, tmp_path):
    """A deploy net's inputs have no gradient, in Caffe too, and people lost days over that."""
    layers = ["ip InnerProduct bottom: data, num_output: 3, weight_filler: xavier", loss]
    text = model_of({"data": [1, 4]}, *filter(None, layers), head=head)
    net = Net(parse(text), "TEST", device="cpu")
    for _ in range(2):
        net.forward(data=np.ones((1, 4)))
        net.backward(**({} if loss else {"ip": np.ones((1, 3))}))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == told
    if told:
        assert lines[0] == (
            "minicaffe: the gradient of data is not computed and stays 0, as in Caffe; with force_backward: true in"
            " the model it is computed"
        )
        assert not net.blobs["data"].diff.any()
    (tmp_path / "net.yaml").write_text(text)
    caffes = pycaffe.Net(str(tmp_path / "net.yaml"), pycaffe.TEST)
    caffes.forward()
    caffes.backward()
    assert capsys.readouterr().err.count("is not computed and stays 0") == told


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.zeros((4, 3), complex), "complex128"),
        (np.zeros((4, 3), object), "object"),
        (np.full((4, 3), "x"), "<U1"),
        ([[1.0, 2.0, 3.0], [4.0]], "setting an array element with a sequence"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_refused(array, got):
    net = Net(parse(SIDE), device="cpu")
    net.forward(x=np.ones((4, 3)))
    with pytest.raises(DataError, match=rf"^blob 'x': expected real numbers of .*, got {got}"):
        net.forward(x=array)
    with pytest.raises(DataError, match=rf"^blob 'ip': expected real numbers of .*, got {got}"):
        net.forward(start="loss", ip=array, label=np.zeros(4))
    assert (net.blobs["x"].data == 1).all()
