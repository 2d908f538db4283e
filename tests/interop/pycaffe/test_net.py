"""caffe.Net: what scripts do with it, and what pycaffe does then."""

import numpy as np
import pytest
from kit import refusal

import minicaffe.interop.pycaffe as caffe
from minicaffe.errors import CheckpointError, DataError, ShapeError, SpecError

NET = """
name: "small" force_backward: true
layer { name: "data" type: "Input" top: "data" top: "label"
  input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2
  weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "constant" value: 1 } } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_weight: 0.5 }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }
"""
STAGED = """
input: "x" input_shape { dim: 2 dim: 3 }
layer { name: "a" type: "Power" bottom: "x" top: "a" include { phase: TRAIN } }
layer { name: "b" type: "Power" bottom: "x" top: "b" include { phase: TEST stage: "deploy" } }
layer { name: "c" type: "Power" bottom: "x" top: "c" include { phase: TEST min_level: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2
  weight_filler { type: "xavier" } } }
"""
IN_PLACE = """
force_backward: true
input: "x" input_shape { dim: 2 dim: 3 }
layer { name: "soft" type: "Sigmoid" bottom: "x" top: "y" }
layer { name: "twice" type: "Power" bottom: "y" top: "y" power_param { scale: 2 } }
layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 }
"""
CONV = """
input: "data" input_shape { dim: 1 dim: 2 dim: 6 dim: 6 }
input: "info" input_shape { dim: 1 dim: 3 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 3
  kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "twice" type: "Power" bottom: "info" top: "twice" power_param { scale: 2 } }
"""


@pytest.fixture
def net(text_file, placed):
    found = caffe.Net(text_file(NET), caffe.TRAIN)
    found.blobs["data"].data[...] = np.arange(12).reshape(4, 3) / 6 - 1
    found.blobs["label"].data[...] = [0, 1, 1, 0]
    return found


def same(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_every_way_to_build_one(text_file, tmp_path):
    path = text_file(STAGED)
    net = caffe.Net(path, caffe.TRAIN)
    assert list(net.blobs) == ["x", "a", "ip"] and net.outputs == ["a", "ip"]
    net.params["ip"][0].data[...] = 7
    weights = str(tmp_path / "weights.caffemodel")
    net.save(weights)
    for words, keys in (
        ((path, weights, caffe.TEST), {}),
        ((path, caffe.TEST), {"weights": weights}),
        ((), {"network_file": path, "phase": caffe.TEST, "weights": weights}),
        ((path, caffe.TEST, 0, [], weights), {}),
    ):
        other = caffe.Net(*words, **keys)
        assert (other.params["ip"][0].data == 7).all() and list(other.blobs) == ["x", "ip"]
    assert "b" in caffe.Net(path, caffe.TEST, stages=["deploy"]).blobs
    assert "c" in caffe.Net(path, caffe.TEST, level=2).blobs
    yaml = text_file("layers: [{name: x, type: Input, shape: {dim: [1]}}]", "net.yaml")
    for file in (text_file(STAGED, "test.pt"), yaml):  # .pt as in py-faster-rcnn
        assert caffe.Net(file, caffe.TEST).inputs == ["x"]


def test_what_cannot_be_built(text_file, tmp_path):
    path = text_file(STAGED)
    for phase in (None, 2, "TEST"):
        told = refusal(caffe.Net, path, phase)
        assert "phase: expected caffe.TRAIN or caffe.TEST, got" in told
    (tmp_path / "net.pt").write_bytes(b"PK\x03\x04\xff")
    for words, wrong, error, told in (
        ([path], {"stages": "deploy"}, SpecError, "stages: expected a list of names, got 'deploy'"),
        ([path], {"stages": [1]}, SpecError, "stages: expected a list of names, got [1]"),
        ([path], {"level": "2"}, SpecError, "level: expected an integer, got '2'"),
        (["not there.prototxt"], {}, SpecError, "there.prototxt: no such file"),
        ([path, "none.caffemodel"], {}, CheckpointError, "none.caffemodel"),
        ([tmp_path / "net.pt"], {}, SpecError, "is no prototxt: it is a zip archive"),
    ):
        assert told in refusal(caffe.Net, *map(str, words), caffe.TEST, **wrong, error=error)


def test_names_and_sizes_in_caffes_order(net):
    assert list(net.blobs) == ["data", "label", "ip", "loss", "accuracy"]
    assert net._layer_names == ["data", "ip", "relu", "loss", "accuracy"]
    assert list(net.layer_dict) == net._layer_names
    kinds = ["Input", "InnerProduct", "ReLU", "SoftmaxWithLoss", "Accuracy"]
    assert [layer.type for layer in net.layers] == kinds
    assert net.inputs == ["data", "label"]
    assert net.outputs == ["accuracy", "loss"]  # by name, as Caffe's set gives them
    assert net.top_names["data"] == ["data", "label"] and net.top_names["relu"] == ["ip"]
    assert net._blob_names == list(net.blobs) and net._blobs[2] is net.blobs["ip"]
    assert [net._top_ids(i) for i in range(5)] == [[0, 1], [2], [2], [3], [4]]
    assert [net._bottom_ids(i) for i in (0, 2, 3)] == [[], [2], [2, 1]]
    assert net.bottom_names["loss"] == ["ip", "label"] and net.bottom_names["data"] == []
    assert net.blob_loss_weights == {"data": 0, "label": 0, "ip": 0, "loss": 0.5, "accuracy": 0}
    assert list(net.params) == ["ip"]
    assert net.layer_dict["ip"].blobs == net.params["ip"] == net.layers[1].blobs

    data, label, loss = (net.blobs[name] for name in ("data", "label", "loss"))
    assert (data.shape, data.count, data.num, data.channels) == ((4, 3), 12, 4, 3)
    assert (data.height, data.width) == (1, 1)
    assert (label.shape, loss.shape, loss.count, loss.num) == ((4,), (), 1, 1)
    weight = net.params["ip"][0]
    assert weight.shape == weight.data.shape == weight.diff.shape == (2, 3)


def test_inputs_by_keyword(net):
    label = np.array([0, 1, 1, 0])
    data = np.arange(12.0).reshape(4, 3)
    first = {k: v.copy() for k, v in net.forward(data=data, label=label).items()}
    net.blobs["data"].data[...] = data
    same(net.forward()["loss"], first["loss"])
    for given, told in (
        ({"x": data}, "the net's inputs are data, label; arrays were given for x"),
        ({"data": data}, "the net's inputs are data, label"),
        ({"data": data[:2], "label": label}, "data: expected a batch of (4, 3), got (2, 3)"),
        ({"data": np.zeros((4, 5)), "label": label}, "broadcast"),
    ):
        assert told in refusal(net.forward, **given, error=Exception)
    for wrong in (np.zeros((4, 3), complex), np.zeros((4, 3), object), [[1.0, 2.0], [3.0]]):
        for way in (net.forward, net.forward_all):
            told = refusal(way, data=wrong, label=np.zeros(4), error=DataError)
            assert "blob 'data': expected real numbers of shape (4, 3), got " in told


def test_names_that_are_not_there(net):
    for error, told, use in (
        (KeyError, "there is no layer 'conv1'", lambda: net.forward(start="conv1")),
        (KeyError, "there is no layer 'conv1'", lambda: net.backward(end="conv1")),
        (KeyError, "conv1", lambda: net.forward(blobs=["conv1"])),
        (SpecError, "layer 'loss' stands after layer 'ip'", lambda: net.forward(start="loss", end="ip")),
        (KeyError, "there is no blob 'dato'; did you mean 'data'", lambda: net.blobs["dato"]),
    ):  # fmt: skip
        assert told in refusal(use, error=error)
    with pytest.raises(ValueError, match="broadcast"):
        net.blobs["data"].data[...] = np.zeros((4, 4))


def test_a_part_of_the_layers(net):
    whole = net.forward()["loss"].copy()
    assert set(net.forward(end="ip")) == {"ip"}
    net.blobs["ip"].data[...] = [[1, -2], [3, 4], [0, 0], [-1, 1]]
    out = net.forward(start="relu", end="relu", blobs=["data"])
    assert set(out) == {"ip", "data"} and np.shares_memory(out["ip"], net.blobs["ip"].data)
    assert out["ip"].tolist() == [[1, 0], [3, 4], [0, 0], [0, 1]]
    assert net.forward(start="loss")["loss"] != whole
    assert net.forward()["loss"] == whole
    assert net._forward(0, 4) == pytest.approx(0.5 * float(whole))


def test_the_gradient(net):
    net.forward()
    assert set(net.backward(diffs=["ip"])) == {"data", "label", "ip"}
    once = {name: net.blobs[name].diff.copy() for name in ("data", "ip")}
    weight = net.params["ip"][0].diff.copy()
    assert np.abs(weight).max() > 0 and np.abs(once["data"]).max() > 0
    net.backward()
    same(net.params["ip"][0].diff, 2 * weight)  # added to, until they are cleared
    same(net.blobs["data"].diff, once["data"])  # not added to
    net.clear_param_diffs()
    assert not net.params["ip"][0].diff.any()
    assert net.blobs["loss"].diff == 0.5  # the loss weight, for a script to change
    net.blobs["loss"].diff[...] = 2
    net.backward()
    same(net.blobs["data"].diff, 4 * once["data"])


def test_a_part_of_the_gradient(net):
    net.forward()
    net.backward()
    wanted = net.blobs["data"].diff.copy()
    ip = net.blobs["ip"].diff.copy()
    net.blobs["data"].diff[...] = 0
    out = net.backward(end="relu")
    assert set(out) == {"ip"} and not net.blobs["data"].diff.any()
    same(out["ip"], ip)
    assert set(net.backward(start="ip", end="ip")) == {"data"}
    same(net.blobs["data"].diff, wanted)
    net.blobs["ip"].diff[...] = 1  # as deep dream does
    net.backward(start="ip")
    same(net.blobs["data"].diff, np.ones((4, 2)) @ net.params["ip"][0].data)


def test_gradients_given_for_the_outputs(text_file, placed):
    net = caffe.Net(text_file(STAGED + "force_backward: true"), caffe.TEST)
    net.forward()
    net.backward(ip=np.ones((2, 2)))
    same(net.blobs["x"].diff, np.ones((2, 2)) @ net.params["ip"][0].data)
    net.blobs["ip"].diff[...] = -1
    net.backward()
    same(net.blobs["x"].diff, -np.ones((2, 2)) @ net.params["ip"][0].data)
    told = "the net's outputs are ip; arrays were given for x"
    assert told in refusal(net.backward, x=np.ones((2, 3)), error=Exception)
    assert "expected a batch" in refusal(net.backward, ip=np.ones((1, 2)), error=Exception)


def test_a_name_is_one_blob_though_work_in_place_needs_two_arrays(text_file, placed):
    """Sigmoid wants its top again on the way back; to a script, as in Caffe, there is one array y."""
    net = caffe.Net(text_file(IN_PLACE), caffe.TEST)
    half = np.full((2, 3), 0.5, np.float32)
    net.forward(end="soft")
    same(net.blobs["y"].data, half)
    net.forward()
    same(net.blobs["y"].data, 2 * half)
    net.forward(start="twice", end="twice")
    same(net.blobs["y"].data, 4 * half)
    net.blobs["y"].data[...] = 3
    assert net.forward(start="twice")["sum"] == 36
    net.forward()
    net.backward()
    same(net.blobs["y"].diff, 4 * half)  # of what Sigmoid wrote: the last that was written
    same(net.blobs["x"].diff, half)


def test_a_shape_changes_at_once_and_the_net_with_the_next_pass(text_file, placed):
    net = caffe.Net(text_file(CONV), caffe.TEST)
    data = net.blobs["data"]
    net.blobs["info"].data[...] = [[1, 2, 3]]
    data.reshape(2, 2, 8, 9)
    assert data.shape == data.data.shape == (2, 2, 8, 9) and data.num == 2
    assert net.blobs["conv"].shape == (1, 3, 4, 4)
    net.reshape()
    assert net.blobs["conv"].shape == (2, 3, 6, 7)
    data.reshape(1, 2, 7, 6)
    image = np.arange(84, dtype=np.float32).reshape(1, 2, 7, 6)
    data.data[...] = image
    out = net.forward()
    assert out["conv"].shape == (1, 3, 5, 4) and out["twice"].tolist() == [[2, 4, 6]]
    patch = image[0, :, 4:7, 3:6]
    same(out["conv"][0, :, 4, 3], (net.params["conv"][0].data * patch).sum((1, 2, 3)))
    assert net.blobs["data"].data.tolist() == image.tolist()
    net.blobs["conv"].reshape(5, 5)  # the layer's again with the next pass
    assert net.forward()["conv"].shape == (1, 3, 5, 4)


HELD = """
force_backward: true
input: "data" input_shape { dim: 2 dim: 3 }
input: "other" input_shape { dim: 2 dim: 2 }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4
  weight_filler { type: "constant" value: 1 } } }
layer { name: "scale" type: "Scale" bottom: "ip" top: "ip" scale_param { filler { value: 2 } } }
layer { name: "prelu" type: "PReLU" bottom: "ip" top: "ip" }
layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" loss_weight: 1 }
layer { name: "twice" type: "Power" bottom: "other" top: "twice" power_param { scale: 2 } }
"""
TWO_ENDS = """
force_backward: true
input: "data" input_shape { dim: 1 dim: 2 dim: 6 dim: 6 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 3
  kernel_size: 3 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE kernel_size: 4 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 2
  weight_filler { type: "gaussian" std: 1 } } }
"""


def test_a_shape_that_only_fits_the_layers_that_run(text_file, placed):
    """Deep dream: pictures of all sizes go through the convolutions of a net that ends in a classifier."""
    net = caffe.Net(text_file(TWO_ENDS), caffe.TEST)
    alone = caffe.Net(text_file(TWO_ENDS[: TWO_ENDS.index('layer { name: "pool"')]), caffe.TEST)
    alone.share_with(net)
    image = np.random.default_rng(1).normal(size=(1, 2, 9, 8))
    net.forward(data=image[..., :6, :6])
    for each in (net, alone):
        each.blobs["data"].reshape(*image.shape)
        each.blobs["data"].data[...] = image
    out = net.forward(end="conv")["conv"]
    assert out.shape == net.blobs["conv"].diff.shape == (1, 3, 7, 6) and out.min() < 0
    same(net.forward(start="relu", end="relu")["conv"], alone.forward()["conv"])
    assert (net.blobs["data"].data == np.float32(image)).all()
    for each in (net, alone):
        each.blobs["conv"].diff[...] = 1
        each.backward(start="relu")
    same(net.blobs["data"].diff, alone.blobs["data"].diff)
    assert net.forward(end="pool")["pool"].shape == (1, 3, 4, 3)
    for run in (net.forward, net.backward, net.reshape, lambda: net.forward(start="ip")):
        assert "'ip' (InnerProduct): parameter 0 has shape (2, 3)" in refusal(run, error=ShapeError)
    assert net.forward(end="pool")["pool"].shape == (1, 3, 4, 3)  # still
    net.blobs["data"].reshape(1, 2, 2, 9)
    assert "'conv'" in refusal(net.forward, end="conv", error=ShapeError)
    net.blobs["data"].reshape(2, 2, 6, 6)
    assert net.forward(end="relu")["conv"].shape == (2, 3, 4, 4)
    assert net.blobs["ip"].shape == (2, 2)  # all fit again
    net.forward(), net.backward()


def test_arrays_that_are_held_stay_the_blobs(text_file, placed):
    """As long as Caffe's would: a blob that was reshaped, another input, one that is worked on in place."""
    net = caffe.Net(text_file(HELD), caffe.TRAIN)
    other, inside, gradient = net.blobs["other"].data, net.blobs["ip"].data, net.blobs["ip"].diff
    for value in (3, 4):
        net.forward(data=np.full((2, 3), value), other=np.ones((2, 2)))
        net.backward()
        now = net.blobs["ip"]
        assert now.data[0, 0] == inside[0, 0] == 6 * value
        assert now.diff[0, 0] == gradient[0, 0] == 2
    data = net.blobs["data"]
    data.reshape(4, 3)
    held = data.data
    for value in (1, 2):
        data.data[...], net.blobs["other"].data[...] = value, value + 4  # asked for anew, for CUDA
        assert held[0, 0] == value and other[0, 0] == value + 4
        assert net.forward(blobs=["ip"])["ip"].tolist() == [[6 * value] * 4] * 4
        assert net.blobs["twice"].data.tolist() == [[2 * value + 8] * 2] * 2


def test_two_inputs_change_together(net):
    for name, shape in (("data", (6, 3)), ("label", (6,))):
        net.blobs[name].reshape(*shape)
    net.blobs["label"].data[...] = 1
    assert net.forward()["loss"].shape == ()
    assert net.blobs["ip"].shape == (6, 2)
    net.backward()
    assert net.blobs["data"].diff.shape == (6, 3) and np.abs(net.blobs["data"].diff).max() > 0
    net.blobs["data"].reshape(6, 5)
    assert "ip" in refusal(net.reshape, error=ShapeError)
    assert "reshape" in refusal(net.blobs["data"].reshape, 6, "a", error=ShapeError)
    net.params["ip"][0].reshape(2, 3)
    told = refusal(net.params["ip"][0].reshape, 3, 2, error=ShapeError)
    assert "reshape: a parameter of (2, 3) cannot be of (3, 2)" in told


def test_any_number_of_samples(net, text_file):
    data = np.random.default_rng(1).normal(size=(10, 3))
    label = np.zeros(10)
    out = net.forward_all(blobs=["ip"], data=data, label=label)
    assert out["ip"].shape == (10, 2) and out["loss"].shape == (3,)
    weight, bias = (blob.data for blob in net.params["ip"])
    same(out["ip"], np.maximum(data @ weight.T + bias, 0))
    batches = list(net._batch({"data": data}))
    assert [len(batch["data"]) for batch in batches] == [4, 4, 4]
    assert not batches[2]["data"][2:].any()
    told = refusal(net.forward_all, data=data, label=label[:9], error=ShapeError)
    assert "data 10, label 9" in told
    told = refusal(net.forward_all, data=np.ones(3), label=np.zeros(3), error=ShapeError)
    assert "data: expected samples of (3,) along a first axis, got" in told
    plain = caffe.Net(text_file(STAGED + "force_backward: true", "plain"), caffe.TEST)
    rows = np.random.default_rng(2).normal(size=(5, 3))
    blobs, diffs = plain.forward_backward_all(x=rows, ip=np.ones((5, 2)), diffs=["ip"])
    weight = plain.params["ip"][0].data
    same(blobs["ip"], rows @ weight.T)
    same(diffs["x"], np.ones((5, 2)) @ weight)
    assert diffs["ip"].tolist() == np.ones((5, 2)).tolist()


@pytest.mark.parametrize("how", ["save", "save_hdf5", "npz"])
def test_weights_come_back_whatever_the_file_is_called(net, text_file, tmp_path, how):
    if how == "save_hdf5":
        pytest.importorskip("h5py")
    path = str(tmp_path / ("weights.npz" if how == "npz" else "weights"))
    (net.save_hdf5 if how == "save_hdf5" else net.save)(path)
    other = caffe.Net(text_file(NET), caffe.TEST)
    other.params["ip"][0].data[...] = 0
    (other.load_hdf5 if how == "save_hdf5" else other.copy_from)(path)
    for one, two in zip(net.params["ip"], other.params["ip"], strict=True):
        np.testing.assert_array_equal(one.data, two.data)
    kind = (tmp_path / path).read_bytes()[:4]
    assert (kind == b"\x89HDF") == (how == "save_hdf5") and (kind[:2] == b"PK") == (how == "npz")


def test_nets_that_share_write_into_the_same(net, text_file):
    other = caffe.Net(text_file(NET), caffe.TEST)
    other.params["ip"][0].data[...] = 1
    other.share_with(net)
    np.testing.assert_array_equal(other.params["ip"][0].data, net.params["ip"][0].data)
    net.params["ip"][0].data[...] = 0
    net.params["ip"][1].data[...] = [3, 4]
    other.forward()
    assert other.blobs["ip"].data.tolist() == [[3, 4]] * 4
    net.params["ip"][1].diff[...] = 7  # gradients are each net's own, as in Caffe
    other.backward()
    assert (net.params["ip"][1].diff == 7).all() and other.params["ip"][1].diff.any()
    other.clear_param_diffs()
    assert (net.params["ip"][1].diff == 7).all()


def test_watching_the_passes_and_changing_what_flows(net):
    seen = []
    net.before_forward(lambda i: seen.append(("before", i)))
    net.after_forward(lambda i: seen.append(("after", i)))
    net.before_backward(lambda i: seen.append(("down", i)))
    net.after_backward(lambda i: seen.append(("up", i)))
    net.forward()
    assert seen == [(when, i) for i in range(5) for when in ("before", "after")]
    seen.clear()
    net.backward(start="loss", end="ip")
    assert seen == [(when, i) for i in (3, 2, 1) for when in ("down", "up")]

    def change(i):
        if net._layer_names[i] == "relu":
            assert (net.blobs["ip"].data >= 0).all()
            net.blobs["ip"].data[...] = [[0, 9]] * 4

    net.after_forward(change)
    net.forward()
    assert net.blobs["accuracy"].data == 0.5 and net.blobs["ip"].data.tolist() == [[0, 9]] * 4


def test_arrays_for_a_memory_data_layer(text_file, placed):
    text = """layer { name: "d" type: "MemoryData" top: "data" top: "label"
      memory_data_param { batch_size: 2 channels: 1 height: 2 width: 2 } }"""
    net = caffe.Net(text_file(text), caffe.TRAIN)
    images = np.arange(16, dtype=np.float32).reshape(4, 1, 2, 2)
    net.set_input_arrays(images, np.arange(4, dtype=np.float32))
    for batch in ([0, 1], [2, 3], [0, 1]):
        net.forward()
        np.testing.assert_array_equal(net.blobs["data"].data, images[batch])
        assert net.blobs["label"].data.ravel().tolist() == batch
    other = caffe.Net(text_file(STAGED), caffe.TEST)
    told = refusal(other.set_input_arrays, images, np.zeros(4), error=DataError)
    assert "the first layer is Input" in told


def test_16_bits_are_refused(text_file, cuda):
    caffe.set_mode_gpu()
    with pytest.raises(SpecError, match="dtype float16: blobs are NumPy arrays here"):
        caffe.Net(text_file(NET + 'minicaffe_param { dtype: "float16" }'), caffe.TRAIN)


def test_a_gradient_before_any_pass_is_of_what_the_blobs_hold(net, text_file):
    """As in Caffe, whose own tests begin with backward; the blobs, and what was written into them, stay."""
    other = caffe.Net(text_file(NET, "other"), caffe.TRAIN)
    other.share_with(net)
    other.forward(**{name: net.blobs[name].data for name in ("data", "label")})
    held = np.arange(net.blobs["ip"].data.size).reshape(net.blobs["ip"].shape) - 5.0
    for one in (net, other):
        one.blobs["ip"].data[...] = held
        one.blobs["ip"].diff[...] = 1
        one.backward(start="relu", end="ip")
    assert np.array_equal(net.blobs["ip"].data, held)
    for mine, theirs in zip(net.params["ip"], other.params["ip"], strict=True):
        assert np.array_equal(mine.diff, theirs.diff)
    net.forward()
    net.backward()
    net.blobs["data"].reshape(2, 3)
    net.blobs["label"].reshape(2)
    net.reshape()
    assert net.backward() is not None  # there was none since they were reshaped
