"""A .caffemodel of any generation as one of V2, named and typed as its net."""

from __future__ import annotations

import random
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from minicaffe.caffe import chip_weights, weights
from minicaffe.caffe.convert_weights import convert_weights
from minicaffe.cli import main
from minicaffe.data import wire
from minicaffe.net import Net, parse

TEXT = """
input: "x" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 3
layers { name: "ip" type: INNER_PRODUCT bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
layers { name: "relu" type: RELU bottom: "ip" top: "ip" }
"""
WEIGHT, BIAS = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones(4, np.float32)


def field(number, *parts):
    return b"".join(bytes(part) for part in wire.put(number, list(parts)))


def blob(array):
    shape = (1,) * (4 - array.ndim) + array.shape
    sizes = b"".join(wire.put_integer(1 + i, n) for i, n in enumerate(shape))
    return sizes + field(5, array.tobytes())


def v1(weight=WEIGHT, name=b"ip", more=b"", kind=14):
    blobs = b"".join(field(6, blob(one)) for one in (weight, BIAS))
    layer = field(2, b"x") + field(3, b"ip") + field(4, name) + wire.put_integer(5, kind)
    return field(2, layer + blobs + more)


def test_a_pair_of_v1_becomes_one_of_v2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.prototxt").write_text(TEXT)
    (tmp_path / "old.caffemodel").write_bytes(v1())
    assert main(["convert", "old.prototxt", "new.prototxt"]) == 0
    assert "layers" not in (tmp_path / "new.prototxt").read_text()
    for model in ("old.prototxt", "new.prototxt"):
        words = ["convert", "old.caffemodel", "new.caffemodel", "--force", "--model", model]
        assert main(words) == 0
        _, layers = chip_weights.read_layers("new.caffemodel")
        assert [(one.name, one.type) for one in layers] == [
            ("input", "Input"),
            ("ip", "InnerProduct"),
            ("relu", "ReLU"),
        ]
        assert layers[1].blobs[0].tobytes() == WEIGHT.tobytes()
        assert (layers[1].blobs[0].shape, layers[1].blobs[1].shape) == ((4, 3), (4,))


@pytest.mark.parametrize(
    "data, message",
    [
        (v1(WEIGHT[:3]), r"layer 'ip' .*: blob 0: expected shape \(4, 3\), got \(1, 1, 3, 3\)"),
        (v1(name=b"fc8"), "layer 'fc8' .* has no such layer"),
        (b"".join(v1(name=b"fc%d" % i) for i in range(8)), "layer 'fc0' .* has no such layer"),
        (v1()[:-3], "is not a whole .caffemodel"),
        (field(1, b"net"), "old.caffemodel: is not a whole .caffemodel: it holds no layers"),
        (v1(more=field(6, blob(BIAS))), r"blob 2: expected 2 blobs, got shape \(1, 1, 1, 4\) too"),
        (v1(kind=999), "layer 'ip': 999 is no type of caffe.proto's V1LayerParameter"),
        (v1(name=b"i\np"), r"is not .*: expected printable text, found 'i\\n"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, monkeypatch, capsys, data, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.prototxt").write_text(TEXT)
    (tmp_path / "old.caffemodel").write_bytes(data)
    assert main(["convert", "old.caffemodel", "n.caffemodel", "--model", "old.prototxt"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "n.caffemodel").exists()


def test_half_and_its_overflow(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.caffemodel").write_bytes(v1())
    assert main(["convert", "a.caffemodel", "h.caffemodel", "--half"]) == 0
    assert np.array_equal(weights.read("h.caffemodel")["ip"][0].reshape(4, 3), WEIGHT)
    (tmp_path / "a.caffemodel").write_bytes(v1(WEIGHT * 1e4))
    assert main(["convert", "a.caffemodel", "b.caffemodel", "--half"]) == 2
    assert "layer 'ip' (InnerProduct): blob 0: --half: the largest number is 110000" in (
        capsys.readouterr().err
    )


V0_TEXT = """
input: "x" input_dim: 1 input_dim: 1 input_dim: 3 input_dim: 3
layers { layer { name: "p" type: "padding" pad: 1 } bottom: "x" top: "p" }
layers { layer { name: "c" type: "conv" num_output: 2 kernelsize: 3 } bottom: "p" top: "c" }
"""


def v0(name, kind, bottom, top, *blobs):
    inner = field(1, name) + field(2, kind) + b"".join(field(50, blob(one)) for one in blobs)
    return field(2, field(1, inner) + field(2, bottom) + field(3, top))


def test_a_padding_layer_of_v0_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weight, bias = np.random.default_rng(0).random((2, 1, 3, 3), np.float32), BIAS[:2]
    data = v0(b"p", b"padding", b"x", b"p") + v0(b"c", b"conv", b"p", b"c", weight, bias)
    Path("old.caffemodel").write_bytes(field(1, b"old") + data)
    Path("old.prototxt").write_text(V0_TEXT)
    assert main(["convert", "old.caffemodel", "alone.caffemodel"]) == 0
    assert main(["convert", "old.caffemodel", "new.caffemodel", "--model", "old.prototxt"]) == 0
    for file, sizes in (("alone", (1, 1, 1, 2)), ("new", (2,))):
        name, layers = chip_weights.read_layers(f"{file}.caffemodel")
        (conv,) = [one for one in layers if one.blobs]
        assert (conv.name, conv.type, conv.bottom, conv.top) == ("c", "Convolution", ["x"], ["c"])
        assert [one.type for one in layers if one is not conv] == ["Input"] * (file == "new")
        assert conv.blobs[0].tobytes() == weight.tobytes() and conv.blobs[1].shape == sizes
        assert name == ("old" if file == "alone" else "")


NET = """
name: pair
layers:
  - {name: x, type: Input, shape: {dim: [1, 2, 5, 5]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3, weight_filler: xavier}
  - {name: bn, type: BatchNorm}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: xavier,
     bias_filler: {type: uniform, min: -1, max: 1}}
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A net whose weights stand in w.caffemodel, in the current folder."""
    monkeypatch.chdir(tmp_path)
    net = Net(parse(NET), device="cpu", seed=1)
    net.save("w.caffemodel")
    return net


def test_a_file_of_v2_keeps_all_but_its_keys(net):
    convert_weights("w.caffemodel", "once.caffemodel")
    assert Path("once.caffemodel").read_bytes() == Path("w.caffemodel").read_bytes()
    keys = field(106, wire.put_integer(1, 4))  # convolution_param { num_output: 4 }
    layer = field(1, b"c") + field(2, b"Convolution") + field(3, b"x") + field(4, b"c")
    Path("keys.caffemodel").write_bytes(field(1, b"n") + field(100, layer + keys))
    convert_weights("keys.caffemodel", "bare.caffemodel")
    assert Path("bare.caffemodel").read_bytes() == field(1, b"n") + field(100, layer)


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.text("ab_/é 0", min_size=1, max_size=5),
        st.lists(
            arrays_of.arrays(
                st.sampled_from([np.float32, np.float64]),
                arrays_of.array_shapes(min_dims=0, max_dims=5, min_side=1, max_side=4),
            ),
            min_size=1,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_arrays_keep_their_bits(layers):
    arrays = {f"{name}__{i}": one for name, own in layers.items() for i, one in enumerate(own)}
    with tempfile.TemporaryDirectory() as folder:
        first, middle, last = (f"{folder}/{file}" for file in ("a.npz", "b.caffemodel", "c.npz"))
        np.savez(first, **arrays)
        convert_weights(first, middle)
        convert_weights(middle, last)
        with np.load(last) as read:
            assert set(read.files) == set(arrays)
            for name, one in arrays.items():
                assert (read[name].dtype, read[name].shape) == (one.dtype, one.shape)
                assert read[name].tobytes() == one.tobytes()


def mutated(data, rng):
    """A copy of some bytes with one to three faults: bytes changed, cut off, left out, doubled, put in."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                data[at : at + 1] = b"\xff"
            case 2:
                del data[end:]
            case 3:
                del data[at:end]
            case 4:
                data[at:at] = data[at:end]
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(data)


def test_a_damaged_file_is_refused_or_converted_whole(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("old.prototxt").write_text(TEXT)
    weight, bias = np.ones((2, 1, 3, 3), np.float32), BIAS[:2]
    old = v0(b"p", b"padding", b"x", b"p") + v0(b"c", b"conv", b"p", b"c", weight, bias)
    rng, codes = random.Random(0), []
    for i in range(200):
        Path("bad.caffemodel").write_bytes(mutated(rng.choice((v1(), old)), rng))
        Path("new.caffemodel").write_bytes(b"as before")
        words = ["convert", "bad.caffemodel", "new.caffemodel", "--force"]
        words += ["--model", "old.prototxt"] * (i % 3 == 0) + ["--half"] * (i % 2)
        codes.append(main(words))
        lines = capsys.readouterr().err.splitlines()
        if codes[-1]:
            assert codes[-1] == 2 and len(lines) == 1
            assert Path("new.caffemodel").read_bytes() == b"as before"
        else:
            assert chip_weights.read_layers("new.caffemodel") is not None
        assert len(list(tmp_path.iterdir())) == 3
    assert {0, 2} == set(codes)


def test_a_file_may_be_converted_onto_itself(net, capsys):
    before = Path("w.caffemodel").read_bytes()
    assert main(["convert", "w.caffemodel", "w.caffemodel"]) == 2
    assert "--force writes over it" in capsys.readouterr().err
    assert main(["convert", "w.caffemodel", "half.caffemodel", "--half"]) == 0
    assert main(["convert", "w.caffemodel", "w.caffemodel", "--half", "--force"]) == 0
    assert Path("w.caffemodel").read_bytes() == Path("half.caffemodel").read_bytes() != before
    Path("w.caffemodel").write_bytes(before[:-1])
    assert main(["convert", "w.caffemodel", "w.caffemodel", "--half", "--force"]) == 2
    assert Path("w.caffemodel").read_bytes() == before[:-1]


def opencv():
    """OpenCV 4, else the test is skipped."""
    cv2 = pytest.importorskip("cv2")
    if not hasattr(cv2.dnn, "shrinkCaffeModel"):
        pytest.skip("OpenCV 5 reads no Caffe models")
    return cv2.dnn


def test_half_is_what_opencv_writes(net):
    opencv().shrinkCaffeModel("w.caffemodel", "opencv.caffemodel")
    convert_weights("w.caffemodel", "ours.caffemodel", half=True)
    assert Path("ours.caffemodel").read_bytes() == Path("opencv.caffemodel").read_bytes()


@pytest.mark.parametrize("half", [[], ["--half"]])
def test_opencv_computes_with_the_pair(tmp_path, monkeypatch, half):
    dnn = opencv()
    monkeypatch.chdir(tmp_path)
    Path("old.prototxt").write_text(TEXT)
    weight = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    Path("old.caffemodel").write_bytes(v1(weight))
    assert main(["convert", "old.prototxt", "new.prototxt"]) == 0
    words = ["convert", "old.caffemodel", "new.caffemodel", "--model", "old.prototxt"]
    assert main(words + half) == 0
    network = dnn.readNetFromCaffe("new.prototxt", "new.caffemodel")
    x = np.random.default_rng(1).standard_normal((1, 1, 1, 3)).astype(np.float32)
    network.setInput(x)
    used = weight.astype(np.float16) if half else weight
    wanted = np.maximum(used.astype(np.float64) @ x.ravel() + BIAS, 0)
    np.testing.assert_allclose(network.forward().ravel(), wanted, rtol=1e-5, atol=1e-6)


def test_protobuf_reads_what_is_converted(net):
    pytest.importorskip("google.protobuf")
    from minicaffe.pycaffe.proto import caffe_pb2

    Path("net.yaml").write_text(NET)
    assert main(["convert", "w.caffemodel", "new.caffemodel", "--model", "net.yaml"]) == 0
    message = caffe_pb2.NetParameter.FromString(Path("new.caffemodel").read_bytes())
    assert message.name == "pair" and not message.layers
    assert [(one.name, one.type, list(one.bottom), list(one.top)) for one in message.layer] == [
        ("x", "Input", [], ["x"]),
        ("conv", "Convolution", ["x"], ["conv"]),
        ("bn", "BatchNorm", ["conv"], ["bn"]),
        ("ip", "InnerProduct", ["bn"], ["ip"]),
    ]
    for one in message.layer:
        params = net.params.get(one.name, [])
        assert [tuple(own.shape.dim) for own in one.blobs] == [param.shape for param in params]
        for own, param in zip(one.blobs, params, strict=True):
            assert np.array_equal(np.array(own.data, np.float32), param.data.ravel())
