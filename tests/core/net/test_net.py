"""Wiring, forward and backward between layers, sharing, reshaping, loading."""

import itertools

import numpy as np
import pytest
from caffe_cases import FIXTURES
from kit import model_of, refusal, same_numbers, small_net

from minicaffe import CheckpointError, DataError, Net, ShapeError, Solver, parse
from minicaffe.backends.device import device as find_device
from minicaffe.core.ops.conv import autotune_cache as conv_memory

MLP = model_of(
    {"x": [4, 3], "label": 4},
    "ip1 InnerProduct bottom: x, num_output: 5",
    "relu1 ReLU top: ip1",
    "ip2 InnerProduct num_output: 2",
    "loss SoftmaxWithLoss bottom: [ip2, label]",
    head="name: mlp",
)
X = np.random.default_rng(0).normal(size=(4, 3))
LABEL = np.array([0, 1, 1, 0])


def test_forward_and_backward_by_hand(device):
    net = Net(parse(MLP), device=device, dtype="float64")
    host = device.to_host
    w1, b1, w2, b2 = (host(p.data) for name in ("ip1", "ip2") for p in net.params[name])
    loss = float(host(net.forward(x=X, label=LABEL)["loss"]))
    h = np.maximum(X @ w1.T + b1, 0)
    scores = h @ w2.T + b2
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert loss == pytest.approx(-np.log(p[range(4), LABEL]).mean(), rel=1e-12)
    net.backward()
    ds = (p - np.eye(2)[LABEL]) / 4
    dh = ds @ w2 * (h > 0)
    for param, wanted in zip(
        net.learnable, (dh.T @ X, dh.sum(axis=0), ds.T @ h, ds.sum(axis=0)), strict=True
    ):
        np.testing.assert_allclose(host(param.diff), wanted, atol=1e-14)


def test_a_blob_used_twice_gets_the_sum_of_the_gradients():
    net = small_net(
        {"x": 3},
        "relu ReLU bottom: x",
        "sum Eltwise bottom: [relu, relu, x], coeff: [2, 3, 10]",
        head="force_backward: true",
    )
    net.forward(x=[1, 2, -3])
    net.backward(sum=[1, 1, 1])
    np.testing.assert_array_equal(net.blobs["x"].diff, [15, 15, 10])
    np.testing.assert_array_equal(net.blobs["relu"].diff, 5)


@pytest.mark.parametrize(
    ("last", "loss", "gradient"),
    [("ReLU bottom: y", 2 * 3 + 10 * 3, [12, 12, 0]),
     ("Eltwise bottom: [y, x]", 2 * 3 + 10 * (2 + 4 - 3), [22, 22, 10])],
)  # fmt: skip
def test_a_loss_weight_on_any_blob_is_its_gradient(last, loss, gradient):
    layers = ("y ReLU bottom: x, loss_weight: 2", f"z {last}, loss_weight: 10")
    net = small_net({"x": 3}, *layers, head="force_backward: true")
    net.forward(x=[1, 2, -3])
    assert net.loss == pytest.approx(loss)
    for pieces in ([(None, None)], [("z", "z"), ("y", None)]):
        for start, end in pieces:
            net.backward(start=start, end=end)
        np.testing.assert_array_equal(net.blobs["x"].diff, gradient)


def loading(odd):
    """To load weights of which the last are `odd`, when those before could be there already."""
    return lambda net: net.load({**net.weights(), "ip1__1": np.zeros(5), "ip2__1": np.array(odd)})


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda net: net.forward(start="ip3"), "there is no layer 'ip3'; did you mean 'ip2'?"),
        (lambda net: net.forward(labels=LABEL), "there is no blob 'labels'; did you mean 'label'?"),
        (lambda net: net.forward(x=np.ones((5, 3))),
         "blob 'x' has shape (4, 3), got (5, 3); net.reshape(x=(5, 3)) would change it"),
        (lambda net: net.reshape(ip1=(1, 2)), "'ip1' is not a top of an Input or Data layer"),
        (lambda net: net.reshape(x=(4, 2)), "<text>:4:5: layer 'ip1' (InnerProduct): parameter 0 has"
         " shape (5, 3); these bottoms need (5, 2)"),
        (lambda net: small_net({"x": [4, 5]}, "ip1 InnerProduct num_output: 5", phase="TEST").share_with(net),
         "layer 'ip1': a parameter has shape (5, 5) in the phase TEST, (5, 3) in TRAIN"),
        (lambda net: net.backward(ip1=np.ones((4, 5))),
         "the diff of blob 'ip1' is computed from the layers that read it"),
        (lambda net: Net(net.spec, "train"), "phase: expected TRAIN or TEST, got 'train'"),
        (lambda net: Net(net.spec, dtype="int8"),
         "dtype: expected float32, float64, float16 or bfloat16, got 'int8'"),
        (lambda net: Net(net.spec, dtype=bool),
         "dtype: expected float32, float64, float16 or bfloat16, got <class 'bool'>"),
        (lambda net: net.load({"other__0": np.zeros(3)}, strict=False),
         "weights: has nothing that fits net 'mlp': ip1__0, ip1__1 missing; ip2__0, ip2__1 missing;"
         " other__0 unused"),
        (lambda net: net.load(FIXTURES / "lenet_iter_10000.npz"),
         f"{FIXTURES}/lenet_iter_10000.npz: does not fit net 'mlp': ip1__0 (file (500, 800), net (5, 3)),"
         " ip1__1 (file (500,), net (5,)); ip2__0 (file (10, 500), net (2, 5)), ip2__1 (file (10,), net"
         " (2,)); conv1__0, conv1__1 unused; conv2__0, conv2__1 unused"),
        (loading([1, np.inf]), "weights: entry 'ip2__1' holds numbers that are not finite"),
        (loading([1, 1e300]), "weights: entry 'ip2__1' holds numbers too large for float32"),
        (loading(["a", "b"]), "weights: entry 'ip2__1' holds <U1, expected numbers"),
        (loading([True, False]), "weights: entry 'ip2__1' holds bool, expected numbers"),
        (loading([1j, 1]), "weights: entry 'ip2__1' holds complex128, expected numbers"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_a_mistake_is_told_in_a_line_and_changes_nothing(work, said):
    net = Net(parse(MLP), device="cpu")
    net.params["ip1"][1].data[...] = 1
    before = net.weights()
    assert refusal(work, net) == said
    assert net.blobs["x"].shape == (4, 3)
    same_numbers(net.weights(), before)


def test_a_net_too_large_for_memory_is_refused_before_it_is_taken():
    size = find_device("cpu").memory() // 4 // 1000
    with pytest.raises(ShapeError, match=r"^<text>: the net needs .* MiB; cpu has"):
        small_net({"x": [size, 1000, 3]})


def test_a_label_that_is_no_class_is_named(device):
    net = Net(parse(MLP), device=device)
    said = r"layer 'loss' \(SoftmaxWithLoss\): label 2 is not one of the 2 classes 0..1"
    with pytest.raises(DataError, match=said):
        net.forward(x=X, label=[0, 1, 2, 0])
        assert np.isnan(net.loss)
        net.check()


def test_the_same_seed_gives_the_same_parameters(device):
    nets = [Net(parse(MLP), device=device, seed=seed) for seed in (1, 1, 2)]
    one, same, other = (net.weights()["ip1__0"] for net in nets)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_float64_holds_what_is_too_large_for_float32():
    net = small_net({"x": [1, 2]}, "ip InnerProduct num_output: 1", dtype="float64")
    net.load({"ip__0": np.full((1, 2), 1e300), "ip__1": np.zeros(1)})
    assert net.weights()["ip__0"].tolist() == [[1e300, 1e300]]


def test_loading_is_strict_unless_asked_otherwise():
    net = Net(parse(MLP), device="cpu")
    weights = net.weights()
    weights["ip1__0"] = np.zeros((5, 4))
    weights["extra__0"] = weights.pop("ip2__1")
    before = net.weights()["ip1__1"].copy()
    wanted = r"ip1__0 \(file \(5, 4\), net \(5, 3\)\); ip2__1 missing; extra__0 unused$"
    with pytest.raises(CheckpointError, match=f"weights: does not fit net 'mlp': {wanted}"):
        net.load({**weights, "ip1__1": before + 1})
    np.testing.assert_array_equal(net.params["ip1"][1].data, before)
    report = net.load({**weights, "ip1__1": before + 1}, strict=False)
    assert report.loaded == ["ip1__1", "ip2__0"]
    assert (report.missing, report.unused) == (["ip2__1"], ["extra__0"])
    np.testing.assert_array_equal(net.params["ip1"][1].data, before + 1)


FAN_OUT = model_of(
    {"x": [2, 3], "label": 2},
    "a InnerProduct bottom: x, num_output: 3",
    "b InnerProduct bottom: a, num_output: 3",
    "s Eltwise bottom: [a, b]",
    "loss SoftmaxWithLoss bottom: [s, label]",
)


def gradients(net, *pieces):
    net.clear_param_diffs()
    net.forward(x=[[1, 2, 3], [-1, 0, 2]], label=[0, 2])
    for start, end in pieces:
        net.backward(start=start, end=end)
    return [param.diff.copy() for param in net.learnable]


@pytest.mark.parametrize(
    "pieces",
    [
        [("loss", None)],
        [(None, "s"), ("b", None)],
        [("loss", "s"), ("b", "b"), ("a", "data")],
        [(None, "loss"), ("s", "b"), ("a", None)],
    ],
)
def test_backward_in_pieces_is_backward(pieces):
    net = Net(parse(FAN_OUT), device="cpu", dtype="float64")
    whole = gradients(net, (None, None))
    assert all(gradient.any() for gradient in whole)
    for _ in range(2):
        for got, wanted in zip(gradients(net, *pieces), whole, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_a_pass_is_over_when_its_last_layer_has_run():
    net = Net(parse(FAN_OUT), device="cpu")
    for count, (start, end) in enumerate([(None, None), (None, "loss"), ("s", "loss")], 1):
        net.forward(start, end)
        assert net.context.passes == count
    net.forward(end="s")
    assert net.context.passes == 3


def test_a_refused_reshape_leaves_the_net_as_it_was():
    net = Net(parse(FAN_OUT), device="cpu")
    before = net.forward(x=np.ones((2, 3)), label=[0, 1])["loss"].copy()
    for shape in ((2, 4), (0, 3), (2.5, 3), (2,), (10**6, 10**6)):
        with pytest.raises(ShapeError):
            net.reshape(x=shape)
        assert net.forward(x=np.ones((2, 3)), label=[0, 1])["loss"] == before


def test_a_parameter_shared_in_the_test_phase_alone_is_the_trained_one():
    text = model_of(
        {"x": [2, 3], "label": 2},
        "a InnerProduct bottom: x, num_output: 3, param: {name: w}",
        "b InnerProduct bottom: x, num_output: 3, param: {name: w}, include: TEST",
        "loss SoftmaxWithLoss bottom: [a, label]",
        head="solver: {base_lr: 1, max_iter: 3, test_iter: 1, test_interval: 9, snapshot_after_train: false}",
    )
    solver = Solver(parse(text), device="cpu")
    solver.net.forward(x=np.ones((2, 3)))
    solver.step(2)
    trained = solver.net.params["a"][0].data
    for name in ("a", "b"):
        np.testing.assert_array_equal(solver.test_net.params[name][0].data, trained)


def test_names_written_twice_mean_what_the_layer_sees():
    net = small_net(
        {"x": [1, 2]},
        "y InnerProduct bottom: x, num_output: 2",
        "side ReLU bottom: y",
        "r ReLU bottom: y, top: y",
        "last ReLU bottom: y, top: last",
        head="force_backward: true",
    )
    net.forward(x=[[1, 2]])
    assert net.forward(start="last", y=[[5, 6]])["last"].tolist() == [[5, 6]]
    net.backward(start="y", y=[[7, 7]])
    np.testing.assert_array_equal(net.params["y"][1].diff, [7, 7])


def test_an_input_overwritten_in_place_by_another_shape_can_be_reshaped():
    net = small_net({"x": [2, 3]}, "ip InnerProduct bottom: x, top: x, num_output: 4")
    with pytest.raises(ShapeError, match=r"these bottoms need \(4, 5\)"):
        net.reshape(x=(2, 5))
    assert net.forward(x=np.ones((2, 3)))["x"].shape == (2, 4)
    net.reshape(x=(5, 3))
    assert net.forward(x=np.ones((5, 3)))["x"].shape == (5, 4)
    shapes = Net(net.spec, device="cpu", shapes_only=True)
    shapes.reshape(x=(7, 3))
    assert shapes.steps[-1].tops[0].shape == (7, 4)


def test_a_backward_pass_before_any_forward_pass_stays_within_its_arrays():
    """There is no winner of a pooling window yet, and no label is a class."""
    net = small_net(
        {"x": [4, 2, 6, 6], "label": 4},
        "conv Convolution bottom: x, num_output: 3, kernel_size: 3",
        "pool Pooling kernel_size: 3, stride: 1",
        "ip InnerProduct num_output: 5",
        "loss SoftmaxWithLoss bottom: [ip, label]",
    )
    net.layers["pool"].grad = [net.blobs["conv"].diff]
    net.blobs["pool"].diff.fill(1)
    net.layers["pool"].backward(net.blobs["pool"].diff)
    assert not net.blobs["conv"].diff.any()
    net.forward(label=np.arange(4))
    net.blobs["label"].data.fill(1e6)
    net.backward()
    assert np.isfinite(net.blobs["ip"].diff).all()


def test_images_of_another_size_are_not_measured_anew(monkeypatch):
    """A script may give pictures of any size, one after the other."""
    asked, known = [], conv_memory.findings
    monkeypatch.setattr(conv_memory, "findings", lambda case: asked.append(case.g) or known(case))
    conv = "conv Convolution num_output: 8, kernel_size: 3, weight_filler: {type: xavier}"
    net, fixed = (
        small_net({"x": [1, 8, 24, 24]}, conv, deterministic=same) for same in (False, True)
    )
    for shape, measured in (((1, 8, 24, 24), 1), ((1, 8, 20, 33), 1), ((2, 8, 24, 24), 1),
                            ((18, 8, 24, 24), 2), ((2, 8, 25, 24), 2)):  # fmt: skip
        x = np.random.default_rng(1).normal(size=shape)
        for one in (net, fixed):
            one.reshape(x=shape)
        np.testing.assert_allclose(net.forward(x=x)["conv"], fixed.forward(x=x)["conv"], atol=1e-5)
        assert len(asked) == measured


def test_the_way_back_follows_a_pass_forward():
    net = Net(parse(MLP), device="cpu")
    said = (
        r"layer 'loss' \(SoftmaxWithLoss\): has not run forward since the net was built or reshaped"
    )
    for shapes in ({}, {"x": (5, 3), "label": (5,)}):
        net.reshape(**shapes)
        with pytest.raises(ShapeError, match=said):
            net.backward()
        net.forward()
        net.backward()
