"""`convert --model`: weights of any generation as those of a net, of V2, named and typed as it."""

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from minicaffe.core.net import Net, parse
from minicaffe.errors import CheckpointError
from minicaffe.interop.caffe import weights
from minicaffe.interop.caffe.convert_weights import convert_weights
from minicaffe.storage import wire

TEXT = """
input: "x" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 3
layers { name: "ip" type: INNER_PRODUCT bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
layers { name: "relu" type: RELU bottom: "ip" top: "ip" }
"""
WEIGHT, BIAS = np.arange(12, dtype=np.float32).reshape(4, 3), np.ones(4, np.float32)


@pytest.fixture(autouse=True)
def here(here):
    """An empty folder with old.prototxt."""
    Path("old.prototxt").write_text(TEXT)


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


def test_a_pair_of_v1_becomes_one_of_v2(command):
    Path("old.caffemodel").write_bytes(v1())
    command("convert", "old.prototxt", "new.prototxt")
    assert "layers" not in Path("new.prototxt").read_text()
    for model in ("old.prototxt", "new.prototxt"):
        command("convert", "old.caffemodel", "new.caffemodel", "--force", "--model", model)
        data = Path("new.caffemodel").read_bytes()
        with wire.opened("new.caffemodel", ".caffemodel", CheckpointError) as message:
            layers = [value for number, _, value in wire.fields(message) if number == weights.V2]
        assert [b"Input" in bytes(one) for one in layers] == [True, False, False]
        assert field(2, b"InnerProduct") in data and field(2, b"ReLU") in data
        weight, bias = weights.read("new.caffemodel")["ip"]
        assert weight.tobytes() == WEIGHT.tobytes()
        assert (weight.shape, bias.shape) == ((4, 3), (4,))


@pytest.mark.parametrize(
    "data, message",
    [
        (v1(WEIGHT[:3]), r"does not fit net .*ip__0 .*\(1, 1, 3, 3\)"),
        (v1(name=b"fc8"), "does not fit net .*fc8__0"),
        (v1()[:-3], "is not a whole .caffemodel"),
        (field(1, b"net"), "old.caffemodel: is not a whole .caffemodel: it holds no layers"),
        (v1(more=field(6, blob(BIAS))), "does not fit net .*ip__2"),
        (v1(name=b"i\np"), r"is not .*: expected printable text, found 'i\\n"),
    ],
)
def test_what_does_not_fit_is_one_line(command, data, message):
    Path("old.caffemodel").write_bytes(data)
    words = ("convert", "old.caffemodel", "n.caffemodel")
    assert re.search(message, command(*words, "--model", "old.prototxt", code=2))
    assert not Path("n.caffemodel").exists()
    hint = "are of one format: nothing to convert; --model NET writes them as its"
    assert hint in command(*words, code=2)


V0_TEXT = """
input: "x" input_dim: 1 input_dim: 1 input_dim: 3 input_dim: 3
layers { layer { name: "p" type: "padding" pad: 1 } bottom: "x" top: "p" }
layers { layer { name: "c" type: "conv" num_output: 2 kernelsize: 3 } bottom: "p" top: "c" }
"""


def v0(name, kind, bottom, top, *blobs):
    inner = field(1, name) + field(2, kind) + b"".join(field(50, blob(one)) for one in blobs)
    return field(2, field(1, inner) + field(2, bottom) + field(3, top))


def test_a_padding_layer_of_v0_is_left_out(command):
    weight, bias = np.random.default_rng(0).random((2, 1, 3, 3), np.float32), BIAS[:2]
    data = v0(b"p", b"padding", b"x", b"p") + v0(b"c", b"conv", b"p", b"c", weight, bias)
    Path("old.caffemodel").write_bytes(field(1, b"old") + data)
    Path("old.prototxt").write_text(V0_TEXT)
    command("convert", "old.caffemodel", "new.caffemodel", "--model", "old.prototxt")
    stored = weights.read("new.caffemodel")
    assert list(stored) == ["c"]
    assert stored["c"][0].tobytes() == weight.tobytes() and stored["c"][1].shape == (2,)
    assert b"padding" not in Path("new.caffemodel").read_bytes()


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
def net(here):
    """A net whose weights stand in w.caffemodel, in the current folder."""
    net = Net(parse(NET), device="cpu", seed=1)
    net.save("w.caffemodel")
    return net


def test_a_net_of_float16_rounds_nothing(net, command):
    Path("net.yaml").write_text(f"dtype: float16\n{NET}")
    command("convert", "w.caffemodel", "new.caffemodel", "--model", "net.yaml")
    before, after = weights.read("w.caffemodel"), weights.read("new.caffemodel")
    assert before.keys() == after.keys()
    for name, blobs in before.items():
        assert [one.tobytes() for one in blobs] == [one.tobytes() for one in after[name]]


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
