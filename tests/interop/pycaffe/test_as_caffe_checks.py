"""What Caffe's own tests of its Python interface check, test by test: in their order, in words of our own."""

from __future__ import annotations

import gc
import os
import sys

import numpy as np
import pytest

import minicaffe.interop.pycaffe as caffe
from minicaffe.interop.pycaffe import layers as L
from minicaffe.interop.pycaffe import params as P

HERE = "layers_as_caffe_has_them"
CLASSES = 13
SIMPLE = """
name: "testnet" force_backward: true
layer { type: "DummyData" name: "data" top: "data" top: "label" dummy_data_param {
  num: 5 channels: 2 height: 3 width: 4  num: 5 channels: 1 height: 1 width: 1
  data_filler { type: "gaussian" std: 1 }  data_filler { type: "constant" } } }
layer { type: "Convolution" name: "conv" bottom: "data" top: "conv"
  convolution_param { num_output: 11 kernel_size: 2 pad: 3
    weight_filler { type: "gaussian" std: 1 } bias_filler { type: "constant" value: 2 } }
  param { decay_mult: 1 } param { decay_mult: 0 } }
layer { type: "InnerProduct" name: "ip" bottom: "conv" top: "ip_blob"
  inner_product_param { num_output: 13
    weight_filler { type: "gaussian" std: 2.5 } bias_filler { type: "constant" value: -3 } } }
layer { type: "SoftmaxWithLoss" name: "loss" bottom: "ip_blob" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "%s" test_iter: 10 test_interval: 10 base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005
lr_policy: "inv" gamma: 0.0001 power: 0.75 display: 100 %s
snapshot_after_train: false snapshot_prefix: "model"
"""


class Times(caffe.Layer):
    """Its bottom ten times."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff


class Raises(caffe.Layer):
    """No more than this, as Caffe's has it."""

    def setup(self, bottom, top):
        raise RuntimeError


class Half(caffe.Layer):
    """Lacks forward."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(1)


class Parameter(caffe.Layer):
    """A parameter of 0 with a gradient of 1."""

    def setup(self, bottom, top):
        self.blobs.add_blob(1)
        self.blobs[0].data[0] = 0

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        pass

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[0] = 1


class Phase(caffe.Layer):
    """The phase it is of."""

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[()] = self.phase


class ByText(caffe.Layer):
    """Its bottom times a number in param_str."""

    def setup(self, bottom, top):
        try:
            self.value = float(self.param_str)
        except ValueError:
            raise ValueError("Parameter string must be a legible float") from None

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.value * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.value * top[0].diff


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])
    return tmp_path


@pytest.fixture
def net(text_file, placed):
    made = caffe.Net(text_file(SIMPLE), caffe.TRAIN)
    made.blobs["label"].data[...] = np.random.default_rng(0).integers(
        CLASSES, size=made.blobs["label"].data.shape
    )
    return made


def python(name, layer, bottom, param_str=""):
    bottoms = f'bottom: "{bottom}" ' if bottom else ""
    param = f'python_param {{ module: "{HERE}" layer: "{layer}" param_str: "{param_str}" }}'
    return f'layer {{ type: "Python" name: "{name}" {bottoms}top: "{name}" {param} }}\n'


INPUT = 'force_backward: true input: "data" input_shape { dim: 10 dim: 9 dim: 8 }\n'
THREE = INPUT + "".join(python(*row) for row in (("one", "Times", "data"), ("two", "Times", "one")))
THREE += python("three", "Times", "two")


# nets


def test_memory_of_blobs_outlives_the_net(net):
    params = [param for some in net.params.values() for param in some]
    blobs = list(net.blobs.values())
    del net
    gc.collect()
    total = sum(p.data.sum() + p.diff.sum() for p in params)
    total += sum(b.data.sum() + b.diff.sum() for b in blobs)
    assert np.isfinite(total)


def test_layer_dict(net):
    assert list(net.layer_dict) == list(net._layer_names)
    assert [net.layer_dict[name].type for name in net._layer_names] == [
        "DummyData",
        "Convolution",
        "InnerProduct",
        "SoftmaxWithLoss",
    ]


def test_forward_start_end(net):
    conv, ip = net.blobs["conv"], net.blobs["ip_blob"]
    conv.data[...] = np.random.default_rng(1).uniform(size=conv.data.shape)
    out = net.forward(start="ip", end="ip")
    weight, bias = (param.data for param in net.params["ip"])
    by_hand = conv.data.reshape(5, -1) @ weight.reshape(CLASSES, -1).T + bias
    assert list(out) == ["ip_blob"] and out["ip_blob"].shape == ip.data.shape
    np.testing.assert_allclose(out["ip_blob"].reshape(5, -1), by_hand, rtol=1e-3, atol=1e-4)


def test_backward_start_end(net):
    """Nothing has run forward."""
    conv, ip = net.blobs["conv"], net.blobs["ip_blob"]
    ip.diff[...] = np.random.default_rng(2).uniform(size=ip.diff.shape)
    out = net.backward(start="ip", end="ip")
    by_hand = ip.diff.reshape(5, -1) @ net.params["ip"][0].data.reshape(CLASSES, -1)
    assert list(out) == ["conv"]
    np.testing.assert_allclose(conv.diff.reshape(5, -1), by_hand, rtol=1e-3, atol=1e-4)


def test_clear_param_diffs(net):
    net.forward()
    net.backward()
    diff = net.params["conv"][0].diff
    assert not (diff == 0).all()
    net.clear_param_diffs()
    assert (net.params["conv"][0].diff == 0).all()


def test_inputs_outputs_and_names(net):
    assert (list(net.inputs), list(net.outputs)) == ([], ["loss"])
    assert net.top_names == {
        "data": ["data", "label"],
        "conv": ["conv"],
        "ip": ["ip_blob"],
        "loss": ["loss"],
    }
    assert net.bottom_names == {
        "data": [],
        "conv": ["data"],
        "ip": ["conv"],
        "loss": ["ip_blob", "label"],
    }


@pytest.mark.parametrize("how", ["legacy", "named", "hdf5"])
def test_save_and_read(net, text_file, how):
    if how == "hdf5":
        pytest.importorskip("h5py")
        net.save_hdf5("weights")
        other = caffe.Net(text_file(SIMPLE), caffe.TRAIN)
        other.load_hdf5("weights")
    else:
        net.save("weights")
        file = text_file(SIMPLE)
        legacy = how == "legacy"
        other = (
            caffe.Net(file, "weights", caffe.TRAIN)
            if legacy
            else caffe.Net(file, caffe.TRAIN, weights="weights")
        )
    for name in net.params:
        for mine, theirs in zip(net.params[name], other.params[name], strict=True):
            assert abs(mine.data - theirs.data).sum() == 0


LEVELS = 'layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 5 } } }\n' + "".join(
    f'layer {{ name: "{name}" type: "InnerProduct" bottom: "data" top: "{name}"'
    f" inner_product_param {{ num_output: 1 }} {include} }}\n"
    for name, include in {
        "NoLevel": "",
        "Level0Only": "include { min_level: 0 max_level: 0 }",
        "Level1Only": "include { min_level: 1 max_level: 1 }",
        "Level>=0": "include { min_level: 0 }",
        "Level>=1": "include { min_level: 1 }",
        "A": 'include { stage: "A" }',
        "AandB": 'include { stage: "A" stage: "B" }',
        "AorB": 'include { stage: "A" } include { stage: "B" }',
    }.items()
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, ["NoLevel", "Level0Only", "Level>=0"]),
        ({"level": 1}, ["NoLevel", "Level1Only", "Level>=0", "Level>=1"]),
        ({"stages": ["A"]}, ["NoLevel", "Level0Only", "Level>=0", "A", "AorB"]),
        ({"stages": ["B"]}, ["NoLevel", "Level0Only", "Level>=0", "AorB"]),
        ({"stages": ["A", "B"]}, ["NoLevel", "Level0Only", "Level>=0", "A", "AandB", "AorB"]),
    ],
)
def test_levels_and_stages(text_file, given, names):
    blobs = caffe.Net(text_file(LEVELS), caffe.TEST, **given).blobs
    assert [name for name in blobs if "data" not in name] == names


def test_all_in_one_net(text_file):
    text = """
    layer { name: "train_data" type: "DummyData" top: "data" top: "label" include { phase: TRAIN stage: "train" }
      dummy_data_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } shape { dim: 1 dim: 1 dim: 1 dim: 1 } } }
    layer { name: "val_data" type: "DummyData" top: "data" top: "label" include { phase: TEST stage: "val" }
      dummy_data_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } shape { dim: 1 dim: 1 dim: 1 dim: 1 } } }
    layer { name: "deploy_data" type: "Input" top: "data" include { phase: TEST stage: "deploy" }
      input_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss"
      include { phase: TRAIN stage: "train" } include { phase: TEST stage: "val" } }
    layer { name: "pred" type: "Softmax" bottom: "ip" top: "pred" include { phase: TEST stage: "deploy" } }
    """
    file = text_file(text)
    for phase, stage, outputs in (
        (caffe.TRAIN, "train", ["loss"]),
        (caffe.TEST, "val", ["loss"]),
        (caffe.TEST, "deploy", ["pred"]),
    ):
        made = caffe.Net(file, phase, stages=[stage])
        assert list(made.forward()) == outputs


# solvers


@pytest.fixture
def solver(text_file, placed):
    def made(more="max_iter: 100"):
        file = text_file(SOLVER % (text_file(SIMPLE), more), "solver")
        one = caffe.get_solver(file)
        for net in (one.net, *one.test_nets):
            net.blobs["label"].data[...] = np.random.default_rng(3).integers(
                CLASSES, size=(5, 1, 1, 1)
            )
        return one

    return made


def test_solve(solver):
    one = solver()
    assert one.iter == 0
    one.solve()
    assert one.iter == 100


def test_step_without_max_iter(solver):
    one = solver("")
    one.step(3)
    one.step(2)
    assert one.iter == 5


def test_apply_update(solver):
    """The rate times the gradient, and nothing has run."""
    one = solver()
    blob = one.net.layers[1].blobs[0]
    blob.data[...] = 0
    blob.diff[...] = 1
    one.apply_update()
    np.testing.assert_allclose(blob.data, -one.lr, rtol=1e-5)


def test_nets_outlive_the_solver(solver):
    one = solver()
    nets = [one.net, *one.test_nets]
    del one
    gc.collect()
    assert all(np.isfinite(b.data.sum()) for made in nets for b in made.blobs.values())


def test_snapshot(solver):
    solver().snapshot()
    assert os.path.isfile("model_iter_0.caffemodel") and os.path.isfile("model_iter_0.solverstate")


# layers in Python


def test_python_forward_backward_reshape(text_file, placed):
    net = caffe.Net(text_file(THREE), caffe.TRAIN)
    net.blobs["data"].data[...] = 8
    net.forward()
    assert (net.blobs["three"].data == 8 * 10**3).all()
    net.blobs["data"].reshape(4, 4, 4, 4)
    net.forward()
    assert {blob.data.shape for blob in net.blobs.values()} == {(4, 4, 4, 4)}


def test_python_backward_before_any_forward(text_file, placed):
    net = caffe.Net(text_file(THREE), caffe.TRAIN)
    net.blobs["three"].diff[...] = 7
    net.backward()
    assert (net.blobs["data"].diff == 7 * 10**3).all()


def test_python_exception(text_file):
    with pytest.raises(RuntimeError) as caught:
        caffe.Net(text_file(INPUT + python("layer", "Raises", "data")), caffe.TRAIN)
    assert type(caught.value) is RuntimeError


def test_python_without_forward(text_file):
    with pytest.raises(
        Exception, match="class 'Half' of module .* has no forward: a layer has setup"
    ):
        caffe.Net(text_file(INPUT + python("layer", "Half", "data")), caffe.TRAIN)


def test_python_parameter(text_file):
    file = text_file(INPUT + python("layer", "Parameter", "data"))
    net = caffe.Net(file, caffe.TRAIN)
    net.forward()
    net.backward()
    layer = net.layers[list(net._layer_names).index("layer")]
    assert (layer.blobs[0].data[0], layer.blobs[0].diff[0]) == (0, 1)
    layer.blobs[0].data[0] += layer.blobs[0].diff[0]
    assert layer.blobs[0].data[0] == 1
    net.save("weights")
    again = caffe.Net(file, "weights", caffe.TRAIN)
    assert again.layers[list(again._layer_names).index("layer")].blobs[0].data[0] == 1
    shared = caffe.Net(file, caffe.TRAIN)
    shared.share_with(net)
    assert shared.layers[list(shared._layer_names).index("layer")].blobs[0].data[0] == 1


def test_python_phase(text_file):
    file = text_file(python("phase", "Phase", ""))
    for phase in (caffe.TRAIN, caffe.TEST):
        assert caffe.Net(file, phase).forward()["phase"] == phase


def test_param_str(text_file, placed):
    text = INPUT + python("mul10", "ByText", "data", "10") + python("mul2", "ByText", "mul10", "2")
    net = caffe.Net(text_file(text), caffe.TRAIN)
    net.blobs["mul2"].diff[...] = 7
    net.backward()
    assert (net.blobs["data"].diff == 7 * 2 * 10).all()
    net.blobs["data"].data[...] = 8
    net.forward()
    assert (net.blobs["mul2"].data == 8 * 2 * 10).all()
    with pytest.raises(ValueError, match="^Parameter string must be a legible float$"):
        caffe.Net(text_file(INPUT + python("mul", "ByText", "data", "ten")), caffe.TRAIN)


def test_layer_type_list():
    assert {"Data", "Convolution", "InnerProduct", "Python"} <= set(caffe.layer_type_list())


# net specs


def lenet(batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.DummyData(
        shape=[dict(dim=[batch_size, 1, 28, 28]), dict(dim=[batch_size, 1, 1, 1])],
        transform_param=dict(scale=1.0 / 255),
        ntop=2,
    )
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(
        n.pool1, kernel_size=5, num_output=50, weight_filler=dict(type="xavier")
    )
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool2, num_output=500, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    return n.to_proto()


def test_lenet_of_a_net_spec(text_file):
    """Its DummyData has a transform_param, which Caffe does not look at."""
    pytest.importorskip("google.protobuf")
    proto = lenet(50)
    assert proto.layer[6].bottom == proto.layer[6].top  # in place
    assert len(caffe.Net(text_file(str(proto)), caffe.TEST).layers) == 9


def test_zero_tops(text_file):
    pytest.importorskip("google.protobuf")
    n = caffe.NetSpec()
    n.data, n.data2 = L.DummyData(shape=dict(dim=3), ntop=2)
    n.silence_data = L.Silence(n.data, ntop=0)
    n.silence_data2 = L.Silence(n.data2, ntop=0)
    assert len(caffe.Net(text_file(str(n.to_proto())), caffe.TEST).forward()) == 0


# what tests/interop/pycaffe/test_io.py, test_coord_map.py and test_draw.py do not check


def test_nccl():
    if caffe.has_nccl():
        assert isinstance(caffe.NCCL.new_uid(), bytes)
    else:
        assert caffe.has_nccl() is False
