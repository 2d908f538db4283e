"""A .caffemodel of any generation as one of V2, named and typed as its net."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minicaffe.caffe import chip_weights, weights
from minicaffe.cli import main
from minicaffe.data import wire

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


def v1(weight=WEIGHT, name=b"ip"):
    blobs = b"".join(field(6, blob(one)) for one in (weight, BIAS))
    layer = field(2, b"x") + field(3, b"ip") + field(4, name) + wire.put_integer(5, 14)
    return field(2, layer + blobs)


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
    "data, told",
    [
        (v1(WEIGHT[:3]), r"layer 'ip' .*: blob 0: expected shape \(4, 3\), got \(1, 1, 3, 3\)"),
        (v1(name=b"fc8"), "layer 'fc8' .* has no such layer"),
        (v1()[:-3], "is not a whole .caffemodel"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, monkeypatch, capsys, data, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.prototxt").write_text(TEXT)
    (tmp_path / "old.caffemodel").write_bytes(data)
    assert main(["convert", "old.caffemodel", "n.caffemodel", "--model", "old.prototxt"]) == 2
    assert re.search(told, capsys.readouterr().err)
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
