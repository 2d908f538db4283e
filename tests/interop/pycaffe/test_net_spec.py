"""Nets written in Python: names, bottoms and keys as Caffe's net_spec gives them, and what it says of mistakes."""

import copy

import numpy as np
import pytest
from kit import refusal

pytest.importorskip("google.protobuf")

from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

import minicaffe.interop.pycaffe as caffe
from minicaffe import Net
from minicaffe.interop.caffe import parse as parse_prototxt
from minicaffe.interop.pycaffe import layers as L
from minicaffe.interop.pycaffe import params as P
from minicaffe.interop.pycaffe.net_spec import Function, Top, to_proto
from minicaffe.interop.pycaffe.proto import caffe_pb2

LENET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 5 dim: 1 dim: 28 dim: 28 } shape { dim: 5 dim: 1 dim: 1 dim: 1 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  param { lr_mult: 1 } param { lr_mult: 2 }
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1"
  inner_product_param { num_output: 50 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" loss_weight: 0.5
  include { phase: TRAIN } loss_param { ignore_label: 255 } }
"""


def lenet(n):
    """As the notebook 01-learning-lenet writes it."""
    shapes = [dict(dim=[5, 1, 28, 28]), dict(dim=[5, 1, 1, 1])]
    n["data"], n["label"] = data, label = L.DummyData(shape=shapes, ntop=2)
    n["conv1"] = conv1 = L.Convolution(
        data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"),
        param=[dict(lr_mult=1), dict(lr_mult=2)],
    )  # fmt: skip
    n["pool1"] = pool1 = L.Pooling(conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n["ip1"] = ip1 = L.InnerProduct(pool1, num_output=50, weight_filler=dict(type="xavier"))
    n["relu1"] = relu1 = L.ReLU(ip1, in_place=True)
    n["ip2"] = ip2 = L.InnerProduct(relu1, num_output=10, weight_filler=dict(type="xavier"))
    loss = dict(loss_weight=0.5, include=dict(phase=caffe.TRAIN), loss_param=dict(ignore_label=255))
    n["loss"] = L.SoftmaxWithLoss(ip2, label, **loss)
    return n


def layers_of(spec):
    return [(one.name, one.type, one.bottom, one.tops) for one in spec.layers]


def test_lenet_is_the_same_message_and_the_same_text():
    net = lenet(caffe.NetSpec()).to_proto()
    wanted = text_format.Parse(LENET, caffe_pb2.NetParameter())
    assert net == wanted
    assert str(net) == str(wanted)
    assert layers_of(parse_prototxt(str(net))) == layers_of(parse_prototxt(LENET))
    net = Net(parse_prototxt(str(lenet(caffe.NetSpec()).to_proto())), "TRAIN", device="cpu")
    assert net.blobs["ip2"].shape == (5, 10)
    assert net.forward()["loss"] >= 0


def test_names_are_made_of_types_and_numbers_as_in_caffe():
    """Each layer behind those it reads, the first bottom's first; numbers by type in that order."""
    net = lenet({})["loss"].to_proto()
    assert [layer.name for layer in net.layer] == [
        "DummyData1", "Convolution1", "Pooling1", "InnerProduct1", "ReLU1", "InnerProduct2", "SoftmaxWithLoss1",
    ]  # fmt: skip
    assert list(net.layer[0].top) == ["DummyData1", "DummyData2"]
    assert list(net.layer[4].bottom) == list(net.layer[4].top) == ["InnerProduct1"]
    assert list(net.layer[6].bottom) == ["InnerProduct2", "DummyData2"]


def test_several_tops_share_what_is_below():
    data = L.Input(shape=dict(dim=[1, 2]))
    a, b = L.ReLU(data), L.TanH(data)
    net = to_proto(b, a, L.Eltwise(a, b))
    assert [layer.name for layer in net.layer] == ["Input1", "TanH1", "ReLU1", "Eltwise1"]
    assert list(net.layer[3].bottom) == ["ReLU1", "TanH1"]
    layers = to_proto(L.Eltwise(a, b)).layer
    assert [layer.name for layer in layers] == ["Input1", "ReLU1", "TanH1", "Eltwise1"]


def test_layers_without_tops_are_assigned_too(text_file):
    n = caffe.NetSpec()
    n.data, n.data2 = L.DummyData(shape=dict(dim=3), ntop=2)
    n.silence_data = L.Silence(n.data, ntop=0)
    n.silence_data2 = L.Silence(n.data2, ntop=0)
    net = n.to_proto()
    assert [layer.name for layer in net.layer] == ["data", "silence_data", "silence_data2"]
    assert not net.layer[1].top and not caffe.Net(text_file(str(net)), caffe.TEST).forward()
    assert to_proto(L.Silence(L.DummyData(shape=dict(dim=3)), ntop=0)).layer[1].name == "Silence1"


def test_the_names_of_a_net_spec_are_attributes_and_entries():
    n = caffe.NetSpec()
    n.x = L.Input(shape=dict(dim=[1, 2]))
    n["x/y"] = L.ReLU(n["x"])
    assert list(n.tops) == ["x", "x/y"]
    assert n["x"] is n.x is n.tops["x"]
    assert isinstance(n.x, Top)
    assert isinstance(n.x.fn, Function)
    assert (n["x/y"].fn.type_name, n["x/y"].fn.inputs, n.x.n) == ("ReLU", (n.x,), 0)
    assert n.to_proto().layer[1].top == ["x/y"]
    del n["x/y"]
    assert not hasattr(n, "y")
    del n.x
    with pytest.raises(KeyError):
        n["x"]
    assert copy.copy(n).tops == {}


def test_no_name_is_made_that_was_given():
    n = caffe.NetSpec()
    n.x = L.Input(shape=dict(dim=[1, 2]))
    n.y = L.ReLU(L.ReLU(n.x))
    n.ReLU1 = L.TanH(n.y)
    assert [one.name for one in n.to_proto().layer] == ["x", "ReLU2", "y", "ReLU1"]


def test_a_name_given_is_the_layers_alone():
    n = caffe.NetSpec()
    n.x = L.Input(shape=dict(dim=[1, 2]), name="entrance")
    layer = n.to_proto().layer[0]
    assert (layer.name, list(layer.top)) == ("entrance", ["x"])


def test_keys_find_their_messages():
    layer = to_proto(
        L.Data(
            source="a", backend=P.Data.LMDB, batch_size=np.int64(3), prefetch=2, phase=caffe.TEST,
            transform_param=dict(scale=1 / 256, mean_value=[104, 117.0], mirror=True),
        )
    ).layer[0]  # fmt: skip
    assert (layer.data_param.batch_size, layer.data_param.backend) == (3, 1)
    assert list(layer.transform_param.mean_value) == [104, 117]
    assert layer.phase == caffe.TEST
    layer = to_proto(
        L.Python(module="m", layer="K", param_str="{'a': 1}", loss_weight=[1, 0], ntop=2)[0]
    ).layer[0]
    assert (layer.python_param.param_str, list(layer.loss_weight)) == ("{'a': 1}", [1, 0])
    deconv = L.Deconvolution(L.Input(), convolution_param=dict(num_output=2, kernel_size=[3, 4]))
    assert list(to_proto(deconv).layer[1].convolution_param.kernel_size) == [3, 4]
    # further than Caffe, which takes neither without its message's name
    n = to_proto(L.Deconvolution(L.Input(), num_output=2))
    assert n.layer[1].convolution_param.num_output == 2
    n = to_proto(L.SoftmaxWithLoss(L.Input(), ignore_label=9))
    assert n.layer[1].loss_param.ignore_label == 9


def test_values_may_be_tuples_arrays_words_and_messages():
    shape = caffe_pb2.BlobShape(dim=[2, 3])
    for one in (shape, dict(dim=(2, 3)), dict(dim=np.array([2, 3]))):
        assert to_proto(L.Input(shape=one)).layer[0].input_param.shape[0] == shape
    pool = to_proto(L.Pooling(L.Input(), pool="AVE", global_pooling=True)).layer[1].pooling_param
    assert (pool.pool, pool.global_pooling) == (P.Pooling.AVE, True)
    assert not to_proto(L.ReLU(L.Input(), param=[])).layer[1].param


def test_nets_are_as_deep_as_they_come():
    top = L.Input(shape=dict(dim=[1]))
    for _ in range(3000):
        top = L.ReLU(top)
    assert top.to_proto().layer[-1].name == "ReLU3000"


@settings(max_examples=40)
@given(st.data())
def test_any_graph_comes_out_in_an_order_that_runs(data):
    """Layers with random bottoms: each is defined once, before it is read, under its own name."""
    n, tops = caffe.NetSpec(), [L.Input(shape=dict(dim=[1, 2]))]
    for i in range(data.draw(st.integers(1, 12))):
        picked = data.draw(st.lists(st.sampled_from(tops), min_size=1, max_size=3))
        tops.append(L.Eltwise(*picked, operation=P.Eltwise.MAX))
        if data.draw(st.booleans()):
            n[f"t{i}"] = tops[-1]
    n.last = L.Concat(*tops)
    net, seen = n.to_proto(), set()
    for layer in net.layer:
        assert set(layer.bottom) <= seen
        assert layer.name == layer.top[0] and layer.name not in seen
        seen.add(layer.name)
    assert len(net.layer) == len(tops) + 1
    assert set(n.tops) <= seen
    assert parse_prototxt(str(net)).layers[-1].bottom == tuple(net.layer[-1].bottom)


def inner_product(**keys):
    return L.InnerProduct(L.Input(), **keys).to_proto()


OF_IP = "layer 'InnerProduct1' (InnerProduct): "


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: L.Convolutoin, "there is no layer type 'Convolutoin'; did you mean 'Convolution'?"),
        (lambda: P.Poolin, "caffe.proto has no message PoolinParameter; did you mean 'Pooling'?"),
        (lambda: P.Pooling.MEX, "PoolingParameter has no word 'MEX'; did you mean 'MAX'?"),
        (lambda: L.ReLU(3), "ReLU input 0 is not a Top (type is <class 'int'>)"),
        (lambda: to_proto(caffe.NetSpec()), "to_proto: expected Tops, got NetSpec; n.to_proto() for all"),
        (lambda: L.Input(ntop=-1), "Input: ntop: expected a number of tops, got -1"),
        (lambda: L.Input(in_place=True), "Input: in_place: 1 tops cannot lie in 0 bottoms"),
        (lambda: inner_product(num_ouput=3), f"{OF_IP}caffe.proto has no key 'num_ouput' for it; did you mean 'num_output'?"),
        (lambda: inner_product(weight_filler=dict(typ="xavier")),
         f"{OF_IP}weight_filler: FillerParameter has no field 'typ'; did you mean 'type'?"),
        (lambda: L.Pooling(L.Input(), pool="MAXI").to_proto(),
         "layer 'Pooling1' (Pooling): pool: expected one of MAX, AVE, STOCHASTIC, got 'MAXI'; did you mean 'MAX'?"),
        (lambda: inner_product(num_output=[3, 4]), f"{OF_IP}num_output: expected one uint32, got [3, 4]"),
        (lambda: inner_product(num_output=-1), f"{OF_IP}num_output: expected one uint32, got -1"),
        (lambda: inner_product(weight_filler="xavier"),
         f"{OF_IP}weight_filler: expected a dict of the fields of FillerParameter, got 'xavier'"),
        (lambda: L.LayerNorm(L.Input(), affine=False).to_proto(),
         "layer 'LayerNorm1' (LayerNorm): caffe.proto has no key 'affine' for it"),
        (lambda: setattr(caffe.NetSpec(), "data", L.Input(ntop=2)),
         "data: expected a Top, got tuple; a name for each: n.a, n.b = L.X(..., ntop=2)"),
        (lambda: caffe.NetSpec().data, "the NetSpec has no top 'data'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(build, told):
    assert refusal(build) == told


def test_a_bottom_that_is_no_top_is_a_type_error_as_in_caffe():
    told = refusal(L.Silence, L.DummyData(ntop=2), ntop=0, error=TypeError)
    assert told == "Silence input 0 is not a Top (type is <class 'tuple'>)"
