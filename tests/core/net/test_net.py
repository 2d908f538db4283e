"""Wiring, forward and backward between layers, sharing, reshaping, loading."""

from __future__ import annotations

import re

import numpy as np
import pytest
from caffe_cases import FIXTURES

from minicaffe import CheckpointError, DataError, Net, ShapeError, SpecError, parse
from minicaffe.backends.device import device as find_device
from minicaffe.core.ops.conv import autotune_cache as conv_memory

MLP = """
name: mlp
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [4, 3]}, {dim: 4}]}
  - {name: ip1, type: InnerProduct, bottom: x, num_output: 5}
  - {name: relu1, type: ReLU, top: ip1}
  - {name: ip2, type: InnerProduct, num_output: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip2, label]}
"""
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


def test_parameter_gradients_add_up_until_cleared():
    net = Net(parse(MLP), device="cpu", dtype="float64")
    net.forward(x=X, label=LABEL)
    net.backward()
    once = net.params["ip1"][0].diff.copy()
    net.backward()
    np.testing.assert_allclose(net.params["ip1"][0].diff, 2 * once)
    net.clear_param_diffs()
    assert not net.params["ip1"][0].diff.any()


def test_between_two_named_layers():
    net = Net(parse(MLP), device="cpu")
    net.forward(x=X, label=LABEL)
    whole = net.blobs["ip2"].data.copy()
    net.blobs["ip2"].data[...] = 0
    out = net.forward(start="ip2", end="ip2")
    assert list(out) == ["ip2"]
    np.testing.assert_array_equal(out["ip2"], whole)
    net.backward(start="ip2", end="ip2", ip2=np.ones((4, 2)))
    np.testing.assert_allclose(net.params["ip2"][1].diff, 4)
    assert not net.params["ip1"][1].diff.any()
    with pytest.raises(SpecError, match="there is no layer 'ip3'; did you mean 'ip2'"):
        net.forward(start="ip3")


def test_parameters_of_other_shapes_are_not_shared():
    text = """
layers:
  - {name: x, type: Input, shape: {dim: [4, %d]}}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 2}
"""
    train, test = Net(parse(text % 3), device="cpu"), Net(parse(text % 5), "TEST", device="cpu")
    said = r"layer 'ip': a parameter has shape \(2, 5\) in the phase TEST, \(2, 3\) in TRAIN"
    with pytest.raises(ShapeError, match=said):
        test.share_with(train)


def test_a_blob_used_twice_gets_the_sum_of_the_gradients():
    net = Net(
        parse("""
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: 3}}
  - {name: relu, type: ReLU, bottom: x}
  - {name: sum, type: Eltwise, bottom: [relu, relu, x], coeff: [2, 3, 10]}
"""),
        device="cpu",
    )
    net.forward(x=[1, 2, -3])
    net.backward(sum=[1, 1, 1])
    np.testing.assert_array_equal(net.blobs["x"].diff, [15, 15, 10])
    np.testing.assert_array_equal(net.blobs["relu"].diff, 5)


def test_several_losses_are_weighted():
    text = (
        MLP + "  - {name: loss2, type: SoftmaxWithLoss, bottom: [ip2, label], loss_weight: 0.5}\n"
    )
    one, two = Net(parse(MLP), device="cpu"), Net(parse(text), device="cpu")
    for net in (one, two):
        net.forward(x=X, label=LABEL)
        net.backward()
    assert two.loss == pytest.approx(1.5 * one.loss, rel=1e-6)
    np.testing.assert_allclose(
        two.params["ip1"][0].diff, 1.5 * one.params["ip1"][0].diff, rtol=1e-5, atol=1e-7
    )


def test_a_loss_weight_on_any_blob_is_its_gradient():
    net = Net(
        parse("""
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: 3}}
  - {name: y, type: ReLU, bottom: x, loss_weight: 2}
  - {name: z, type: Eltwise, bottom: [y, x], loss_weight: 10}
"""),
        device="cpu",
    )
    net.forward(x=[1, 2, -3])
    assert net.loss == pytest.approx(2 * 3 + 10 * (2 + 4 - 3))
    net.backward()
    np.testing.assert_array_equal(net.blobs["x"].diff, [22, 22, 10])


def test_the_first_convolution_computes_no_input_gradient():
    net = Net(
        parse("""
layers:
  - {name: data, type: Input, top: [x, label], shape: [{dim: [1, 1, 4, 4]}, {dim: 1}]}
  - {name: conv1, type: Convolution, bottom: x, num_output: 2, kernel_size: 2}
  - {name: conv2, type: Convolution, num_output: 2, kernel_size: 3}
  - {name: loss, type: SoftmaxWithLoss, bottom: [conv2, label]}
"""),
        device="cpu",
    )
    assert net.layers["conv1"].needs_gradient == [False]
    assert net.layers["conv2"].needs_gradient == [True]
    net.forward(x=np.ones((1, 1, 4, 4)), label=[1])
    net.backward()
    assert not net.blobs["x"].diff.any()
    assert net.params["conv1"][0].diff.any()


def test_layers_share_parameters_by_name(device):
    net = Net(
        parse("""
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: a, type: InnerProduct, num_output: 3, param: [{name: w, lr_mult: 3}, {lr_mult: 2}]}
  - {name: b, type: InnerProduct, num_output: 3, param: {name: w}}
"""),
        device=device,
    )
    a, b = net.params["a"], net.params["b"]
    assert b[0].owner is a[0]
    assert b[0].lr_mult == 3
    assert len(net.learnable) == 3
    a[0].data[...] = 7
    assert float(b[0].data.min()) == 7
    net.forward(x=np.ones((2, 3)))
    net.backward(b=np.ones((2, 3)))
    np.testing.assert_allclose(device.to_host(a[0].diff), 2 * 21 + 2 * 21)
    with pytest.raises(
        ShapeError, match=r"param 'w' has shape \(4, 3\) here, \(3, 3\) in layer 'a'"
    ):
        Net(
            parse("""
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: a, type: InnerProduct, num_output: 3, param: {name: w}}
  - {name: b, type: InnerProduct, num_output: 4, param: {name: w}}
""")
        )


def test_reshape_keeps_the_parameters():
    net = Net(
        parse("""
layers:
  - {name: x, type: Input, shape: {dim: [2, 1, 6, 6]}}
  - {name: conv, type: Convolution, num_output: 2, kernel_size: 3}
"""),
        device="cpu",
    )
    before = net.params["conv"][0].data.copy()
    small = net.forward(x=np.ones((2, 1, 6, 6)))["conv"][0, :, 0, 0].copy()
    net.reshape(x=(1, 1, 9, 8))
    assert net.blobs["conv"].shape == (1, 2, 7, 6)
    np.testing.assert_array_equal(net.params["conv"][0].data, before)
    np.testing.assert_array_equal(net.forward(x=np.ones((1, 1, 9, 8)))["conv"][0, :, 0, 0], small)
    with pytest.raises(ShapeError, match="parameter 0 has shape"):
        net.reshape(x=(1, 2, 9, 8))
    with pytest.raises(ShapeError, match="'conv' is not a top of an Input or Data layer"):
        net.reshape(conv=(1, 2))


def test_an_input_of_another_shape_is_refused_with_the_remedy():
    net = Net(parse(MLP), device="cpu")
    with pytest.raises(
        ShapeError, match=r"blob 'x' has shape \(4, 3\), got \(5, 3\); net.reshape\(x=\(5, 3\)\)"
    ):
        net.forward(x=np.ones((5, 3)))
    with pytest.raises(ShapeError, match="there is no blob 'labels'; did you mean 'label'"):
        net.forward(labels=LABEL)


def test_a_net_too_large_for_memory_is_refused_before_it_is_taken():
    size = find_device("cpu").memory() // 4 // 1000
    with pytest.raises(ShapeError, match=r"<text>: the net needs .* MiB; cpu has"):
        Net(
            parse(
                f"name: big\nlayers: [{{name: x, type: Input, shape: {{dim: [{size}, 1000, 3]}}}}]"
            ),
            device="cpu",
        )


def test_a_label_that_is_no_class_is_named(device):
    net = Net(parse(MLP), device=device)
    with pytest.raises(
        DataError,
        match=r"layer 'loss' \(SoftmaxWithLoss\): label 2 is not one of the 2 classes 0..1",
    ):
        net.forward(x=X, label=[0, 1, 2, 0])
        assert np.isnan(net.loss)
        net.check()


def test_the_same_seed_gives_the_same_parameters(device):
    nets = [Net(parse(MLP), device=device, seed=seed) for seed in (1, 1, 2)]
    one, same, other = (net.weights()["ip1__0"] for net in nets)
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_weights_are_loaded_by_name(tmp_path):
    net, other = Net(parse(MLP), device="cpu"), Net(parse(MLP), device="cpu", seed=9)
    net.save(tmp_path / "w.npz")
    assert str(other.load(tmp_path / "w.npz")) == "4 loaded"
    np.testing.assert_array_equal(net.params["ip2"][0].data, other.params["ip2"][0].data)


def test_weights_that_are_not_finite_in_the_nets_type_are_refused():
    text = "layers: [{name: x, type: Input, shape: {dim: [1, 2]}}, {name: ip, type: InnerProduct, num_output: 1}]"
    large = {"ip__0": np.full((1, 2), 1e300), "ip__1": np.zeros(1)}
    made = Net(parse(text), device="cpu")
    before = made.weights()
    with pytest.raises(CheckpointError, match="entry 'ip__0' holds numbers too large for float32$"):
        made.load(large)
    with pytest.raises(CheckpointError, match="entry 'ip__1' holds numbers that are not finite$"):
        made.load({"ip__0": np.zeros((1, 2)), "ip__1": np.array([np.inf])})
    assert all(np.array_equal(before[name], array) for name, array in made.weights().items())
    wide = Net(parse(text), device="cpu", dtype="float64")
    wide.load(large)
    assert wide.weights()["ip__0"].tolist() == [[1e300, 1e300]]


@pytest.mark.parametrize(
    "odd", [np.full((5, 3), "a"), np.ones((5, 3), bool), np.ones((5, 3), complex)]
)
def test_weights_that_are_no_numbers_are_refused(odd):
    net = Net(parse(MLP), device="cpu")
    before = net.weights()
    said = f"weights: entry 'ip1__0' holds {odd.dtype}, expected numbers"
    with pytest.raises(CheckpointError, match=f"^{re.escape(said)}$"):
        net.load({**before, "ip1__0": odd, "ip1__1": before["ip1__1"] + 1})
    assert all(np.array_equal(before[name], array) for name, array in net.weights().items())


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


def test_a_caffe_lenet_of_another_net_is_refused():
    told = r"ip1__0 \(file \(500, 800\), net \(5, 3\)\), ip1__1 \(.*; conv1__0, conv1__1 unused"
    with pytest.raises(
        CheckpointError, match=f"lenet_iter_10000.npz: does not fit net 'mlp': {told}"
    ):
        Net(parse(MLP), device="cpu").load(FIXTURES / "lenet_iter_10000.npz")


FAN_OUT = """
layers:
  - {name: x, type: Input, top: [x, label], shape: [{dim: [2, 3]}, {dim: 2}]}
  - {name: a, type: InnerProduct, bottom: x, num_output: 3}
  - {name: b, type: InnerProduct, bottom: a, num_output: 3}
  - {name: s, type: Eltwise, bottom: [a, b]}
  - {name: loss, type: SoftmaxWithLoss, bottom: [s, label]}
"""


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
        [("loss", "s"), ("b", "b"), ("a", "x")],
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
    with pytest.raises(
        ShapeError, match="the diff of blob 'b' is computed from the layers that read it"
    ):
        net.backward(b=np.ones((2, 3)))


def test_a_pass_is_over_when_its_last_layer_has_run():
    net = Net(parse(FAN_OUT), device="cpu")
    for count, (start, end) in enumerate([(None, None), (None, "loss"), ("s", "loss")], 1):
        net.forward(start, end)
        assert net.context.passes == count
    net.forward(end="s")
    assert net.context.passes == 3


def test_a_loss_weight_inside_a_chain():
    net = Net(
        parse("""
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: 3}}
  - {name: y, type: ReLU, bottom: x, loss_weight: 2}
  - {name: z, type: ReLU, bottom: y, loss_weight: 10}
"""),
        device="cpu",
    )
    net.forward(x=[1, 2, -3])
    net.backward()
    np.testing.assert_array_equal(net.blobs["x"].diff, [12, 12, 0])


def test_a_refused_reshape_leaves_the_net_as_it_was():
    net = Net(parse(FAN_OUT), device="cpu")
    before = net.forward(x=np.ones((2, 3)), label=[0, 1])["loss"].copy()
    for shape in ((2, 4), (0, 3), (2.5, 3), (2,), (10**6, 10**6)):
        with pytest.raises(ShapeError):
            net.reshape(x=shape)
        assert net.forward(x=np.ones((2, 3)), label=[0, 1])["loss"] == before


def test_propagate_down_decides_either_way_as_in_caffe():
    text = FAN_OUT.replace(
        "bottom: x, num_output: 3", "bottom: x, num_output: 3, propagate_down: true"
    )
    net = Net(parse(text), device="cpu")
    net.forward(x=np.ones((2, 3)), label=[0, 1])
    net.backward()
    assert net.blobs["x"].diff.any()


def test_phase_and_dtype_are_checked():
    with pytest.raises(SpecError, match="phase: expected TRAIN or TEST, got 'train'"):
        Net(parse(FAN_OUT), "train", device="cpu")
    with pytest.raises(SpecError, match="dtype: expected float32, .* or bfloat16, got 'int32'"):
        Net(parse(FAN_OUT), device="cpu", dtype="int32")


def test_a_parameter_shared_in_the_test_phase_alone_is_the_trained_one():
    text = """
name: siamese
layers:
  - {name: x, type: Input, top: [x, label], shape: [{dim: [2, 3]}, {dim: 2}]}
  - {name: a, type: InnerProduct, bottom: x, num_output: 3, param: {name: w}}
  - {name: b, type: InnerProduct, bottom: x, num_output: 3, param: {name: w}, include: TEST}
  - {name: loss, type: SoftmaxWithLoss, bottom: [a, label]}
solver: {base_lr: 1, max_iter: 3, test_iter: 1, test_interval: 9, snapshot_after_train: false}
"""
    from minicaffe import Solver

    solver = Solver(parse(text), device="cpu")
    solver.net.forward(x=np.ones((2, 3)))
    solver.step(2)
    trained = solver.net.params["a"][0].data
    for name in ("a", "b"):
        np.testing.assert_array_equal(solver.test_net.params[name][0].data, trained)


def test_weights_of_which_nothing_fits_are_refused():
    with pytest.raises(CheckpointError, match="has nothing that fits net 'mlp'"):
        Net(parse(MLP), device="cpu").load({"other__0": np.zeros(3)}, strict=False)


def test_pieces_with_a_loss_weight_on_what_is_read_further():
    text = """
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: y, type: InnerProduct, num_output: 3, loss_weight: 1}
  - {name: z, type: InnerProduct, num_output: 3, loss_weight: 1}
"""
    net = Net(parse(text), device="cpu", dtype="float64")
    net.forward(x=X[:2])
    net.backward()
    whole = net.blobs["x"].diff.copy()
    net.backward(start="z", end="z")
    net.backward(start="y")
    np.testing.assert_allclose(net.blobs["x"].diff, whole)


def test_names_written_twice_mean_what_the_layer_sees():
    net = Net(
        parse("""
force_backward: true
layers:
  - {name: x, type: Input, shape: {dim: [1, 2]}}
  - {name: y, type: InnerProduct, bottom: x, num_output: 2}
  - {name: side, type: ReLU, bottom: y}
  - {name: r, type: ReLU, bottom: y, top: y}
  - {name: last, type: ReLU, bottom: y, top: last}
"""),
        device="cpu",
    )
    net.forward(x=[[1, 2]])
    assert net.forward(start="last", y=[[5, 6]])["last"].tolist() == [[5, 6]]
    net.backward(start="y", y=[[7, 7]])
    np.testing.assert_array_equal(net.params["y"][1].diff, [7, 7])


def test_an_input_overwritten_in_place_by_another_shape_can_be_reshaped():
    net = Net(
        parse("""
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: ip, type: InnerProduct, bottom: x, top: x, num_output: 4}
"""),
        device="cpu",
    )
    with pytest.raises(ShapeError, match=r"these bottoms need \(4, 5\)"):
        net.reshape(x=(2, 5))
    assert net.forward(x=np.ones((2, 3)))["x"].shape == (2, 4)
    net.reshape(x=(5, 3))
    assert net.forward(x=np.ones((5, 3)))["x"].shape == (5, 4)
    shapes = Net(net.spec, device="cpu", shapes_only=True)
    shapes.reshape(x=(7, 3))
    assert shapes.steps[-1].tops[0].shape == (7, 4)


@pytest.mark.parametrize("dtype", ["flaot32", bool, "int8"])
def test_dtypes_that_are_none(dtype):
    with pytest.raises(SpecError, match="dtype: expected float32, float64, float16 or bfloat16"):
        Net(parse(MLP), device="cpu", dtype=dtype)


def test_a_backward_pass_before_any_forward_pass_stays_within_its_arrays():
    """There is no winner of a pooling window yet, and no label is a class."""
    net = Net(
        parse("""
layers:
  - {name: in, type: Input, top: [x, label], shape: [{dim: [4, 2, 6, 6]}, {dim: [4]}]}
  - {name: conv, type: Convolution, bottom: x, num_output: 3, kernel_size: 3}
  - {name: pool, type: Pooling, kernel_size: 3, stride: 1}
  - {name: ip, type: InnerProduct, num_output: 5}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""),
        device="cpu",
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
    text = """
    layers:
    - {name: x, type: Input, shape: {dim: [1, 8, 24, 24]}}
    - {name: conv, type: Convolution, num_output: 8, kernel_size: 3, weight_filler: {type: xavier}}
    """
    net, fixed = (Net(parse(text), device="cpu", deterministic=same) for same in (False, True))
    for shape, measured in (((1, 8, 24, 24), 1), ((1, 8, 20, 33), 1), ((2, 8, 24, 24), 1),
                            ((18, 8, 24, 24), 2), ((2, 8, 25, 24), 2)):  # fmt: skip
        x = np.random.default_rng(1).normal(size=shape)
        for one in (net, fixed):
            one.reshape(x=shape)
        np.testing.assert_allclose(net.forward(x=x)["conv"], fixed.forward(x=x)["conv"], atol=1e-5)
        assert len(asked) == measured


def test_the_way_back_follows_a_pass_forward():
    text = """
    layers:
      - {name: in, type: Input, top: [x, label], shape: [{dim: [2, 3]}, {dim: [2]}]}
      - {name: ip, type: InnerProduct, bottom: x, num_output: 4}
      - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
    """
    net = Net(parse(text), device="cpu")
    told = (
        r"layer 'loss' \(SoftmaxWithLoss\): has not run forward since the net was built or reshaped"
    )
    for shapes in ({}, {"x": (5, 3), "label": (5,)}):
        net.reshape(**shapes)
        with pytest.raises(ShapeError, match=told):
            net.backward()
        net.forward()
        net.backward()
