"""caffe.proto as protobuf's messages: Caffe's own files come out as they went in, and ours agree with them."""

import importlib
import random
import sys

import caffe_cases as cases
import numpy as np
import pytest
from caffe_messages import drawn, filled, same
from kit import plain

pytest.importorskip("google.protobuf")

from google.protobuf import json_format, text_format

from minicaffe import MinicaffeError
from minicaffe.interop.caffe import weights
from minicaffe.interop.caffe.schema import schema
from minicaffe.interop.caffe.text import parse
from minicaffe.interop.caffe.typed import typed
from minicaffe.interop.pycaffe.net_spec import layers, params, to_proto
from minicaffe.interop.pycaffe.proto import caffe_pb2
from minicaffe.storage import wire
from minicaffe.tools.data import datum

LENET = cases.SHARED / "lenet" / "lenet_iter_10000.caffemodel"


def solver_files(kind):
    """Bytes of the files that solvers in the real Caffe wrote."""
    for name in cases.names("Solver"):
        for key, value in cases.load(name).items():
            if key.startswith(f"{kind}_iter") and value.ndim == 1:
                yield value.tobytes()


def test_names_are_those_of_generated_code():
    assert (caffe_pb2.TRAIN, caffe_pb2.TEST) == (0, 1)
    assert caffe_pb2.Phase.Name(1) == "TEST"
    assert caffe_pb2.Phase.Value("TRAIN") == 0
    assert caffe_pb2.PoolingParameter.AVE == 1
    assert caffe_pb2.PoolingParameter.PoolMethod.Name(2) == "STOCHASTIC"
    assert caffe_pb2.V1LayerParameter.CONVOLUTION == 4
    assert caffe_pb2.V1LayerParameter.LayerType.Name(21) == "SOFTMAX_LOSS"
    assert caffe_pb2.SolverParameter.SolverMode.Value("GPU") == 1
    assert caffe_pb2.LayerParameter.DESCRIPTOR.full_name == "caffe.LayerParameter"
    assert caffe_pb2.DESCRIPTOR.package == "caffe"
    assert caffe_pb2.LayerParameter.CONVOLUTION_PARAM_FIELD_NUMBER == 106
    with pytest.raises(AttributeError, match="did you mean 'SolverParameter'"):
        caffe_pb2.SolverParam  # noqa: B018


def test_defaults_are_caffes():
    net, solver = caffe_pb2.NetParameter(), caffe_pb2.SolverParameter()
    assert (net.force_backward, net.state.phase) == (False, caffe_pb2.TEST)
    assert (solver.type, solver.average_loss, solver.random_seed) == ("SGD", 1, -1)
    assert solver.snapshot_format == caffe_pb2.SolverParameter.BINARYPROTO
    assert solver.delta == np.float32(1e-8)
    layer = caffe_pb2.LayerParameter()
    assert (layer.lrn_param.local_size, layer.lrn_param.beta) == (5, 0.75)
    assert layer.eltwise_param.operation == caffe_pb2.EltwiseParameter.SUM
    assert layer.batch_norm_param.moving_average_fraction == np.float32(0.999)
    assert not layer.HasField("phase")


def test_every_message_and_enumeration_is_there():
    for name, fields in schema().messages.items():
        built = getattr(caffe_pb2, name).DESCRIPTOR
        declared = {field.name for field in fields.values() if field.type != "Any"}
        assert {field.name for field in built.fields} == declared
        for enum, words in schema().enums[name].items():
            assert dict(getattr(getattr(caffe_pb2, name), enum).items()) == words


@pytest.mark.parametrize("kind", sorted(schema().messages))
def test_messages_survive_bytes_text_and_json(kind):
    cls = getattr(caffe_pb2, kind)
    for i in range(6):
        values = drawn(random.Random(i), kind)
        message = filled(cls(), values)
        for again in (
            cls.FromString(message.SerializeToString()),
            text_format.Parse(str(message), cls()),
            json_format.Parse(json_format.MessageToJson(message), cls()),
        ):
            assert str(again) == str(message)  # two messages with a NaN are not equal
        if kind not in ("Datum", "SolverState"):  # binary only
            assert same(plain(typed(parse(str(message))[0], kind)), values), message


def test_caffes_own_weights_are_read_and_written_to_the_byte(tmp_path):
    count = 0
    for data in solver_files("caffemodel"):
        net = caffe_pb2.NetParameter.FromString(data)
        assert net.SerializeToString() == data
        (tmp_path / "w.caffemodel").write_bytes(data)
        for name, arrays in weights.read(tmp_path / "w.caffemodel").items():
            (layer,) = [layer for layer in net.layer if layer.name == name]
            assert [tuple(blob.shape.dim) for blob in layer.blobs] == [a.shape for a in arrays]
            for blob, array in zip(layer.blobs, arrays, strict=True):
                assert np.array_equal(np.float32(blob.data), array.ravel())
                count += 1
    assert count > 80


def test_caffes_own_states_are_read_and_written_to_the_byte():
    states = list(solver_files("solverstate"))
    assert states
    for data in states:
        state = caffe_pb2.SolverState.FromString(data)
        assert state.SerializeToString() == data
        assert state.iter > 0
        assert len(state.history) > 0


@pytest.mark.skipif(not LENET.exists(), reason="the real Caffe's LeNet is not here")
def test_the_real_lenet_survives():
    data = LENET.read_bytes()
    net = caffe_pb2.NetParameter()
    net.ParseFromString(data)
    assert [layer.type for layer in net.layer if layer.blobs] == [
        "Convolution", "Convolution", "InnerProduct", "InnerProduct",
    ]  # fmt: skip
    assert net.SerializeToString() == data


def test_what_we_write_protobuf_reads(tmp_path):
    arrays = {0: np.arange(6, dtype=np.float32).reshape(2, 3), 1: np.array([0.1, 0.2])}
    layer = weights.Layer("ip", "InnerProduct", arrays, ["x"], ["ip"])
    weights.write(tmp_path / "w.caffemodel", [layer], "small")
    data = (tmp_path / "w.caffemodel").read_bytes()
    net = caffe_pb2.NetParameter.FromString(data)
    (found,) = net.layer
    assert (net.name, found.name, found.type) == ("small", "ip", "InnerProduct")
    assert (found.bottom, found.top) == (["x"], ["ip"])
    assert list(found.blobs[0].data) == [0, 1, 2, 3, 4, 5]
    assert list(found.blobs[1].double_data) == [0.1, 0.2]
    assert net.SerializeToString() == data


def test_what_protobuf_writes_we_read():
    blob = caffe_pb2.BlobProto(num=1, channels=2, height=1, width=2, data=[1, 2, 3, 4.5])
    found = wire.parse_blob(memoryview(blob.SerializeToString())).array()
    assert found.tolist() == [[[[1, 2]], [[3, 4.5]]]]
    one = caffe_pb2.Datum(channels=1, height=1, width=2, data=b"\x07\xff", label=3)
    read = datum.read(memoryview(one.SerializeToString()))
    assert (read.label, read.pixels.tolist()) == (3, [[[7, 255]]])
    one = caffe_pb2.Datum(channels=1, height=2, width=1, float_data=[0.5, -1], label=3)
    assert datum.write(np.float32([[[0.5], [-1]]]), 3) == one.SerializeToString()


def test_floats_of_blobs_are_packed():
    """One length and eight bytes, not a tag before each number."""
    assert caffe_pb2.BlobProto(data=[1, 2]).SerializeToString()[:2] == b"\x2a\x08"
    assert caffe_pb2.BlobShape(dim=[1, 300]).SerializeToString() == b"\x0a\x03\x01\xac\x02"
    assert len(caffe_pb2.Datum(float_data=[1, 2]).SerializeToString()) == 10


def test_a_label_map_of_ssd_is_read():
    text = "item { name: 'none' label: 0 display_name: 'background' } item { name: 'a' label: 1 }"
    items = text_format.Merge(text, caffe_pb2.LabelMap()).item
    assert [(one.label, one.display_name or one.name) for one in items] == [
        (0, "background"), (1, "a"),
    ]  # fmt: skip


def test_keys_of_forks_without_a_number_are_carried():
    text = "layer { type: 'Interp' interp_param { height: 3 } }"
    net = text_format.Merge(text, caffe_pb2.NetParameter())
    again = caffe_pb2.NetParameter.FromString(net.SerializeToString())
    assert again.layer[0].interp_param.height == 3


def test_without_protobuf_one_line_tells_what_to_install(monkeypatch):
    name = "minicaffe.interop.pycaffe.proto.caffe_pb2"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("minicaffe.interop.pycaffe.proto.caffe_pb2")
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    told = "^caffe.proto as messages needs the package protobuf: .*pip install"
    with pytest.raises(MinicaffeError, match=told):
        importlib.import_module(name)
    net = layers.ReLU(layers.Input())  # all but the messages works
    assert params.Pooling.AVE == 1
    with pytest.raises(ImportError, match="protobuf: .*pip install"):
        to_proto(net)
