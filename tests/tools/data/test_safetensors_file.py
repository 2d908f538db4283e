"""Weights in .safetensors files: what the package wrote is read, what is written the package reads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kit import refusal

from minicaffe import CheckpointError, Net, parse
from minicaffe.cli import main
from minicaffe.core.net import model
from minicaffe.errors import pip_install
from minicaffe.storage.safetensors_file import Reader

library = pytest.importorskip("safetensors.numpy")
NET = """
name: small
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
  - {name: a/ip, type: InnerProduct, num_output: 4}
"""
chance = np.random.default_rng(0)
ARRAYS = {
    "a/ip__0": chance.normal(size=(4, 3)),
    "half": chance.normal(size=5).astype(np.float16),
    "columns": np.asfortranarray(chance.normal(size=(3, 4)).astype(np.float32)),
    "big": np.arange(6, dtype=">f4"),
    "count": np.array(7, np.int64),
    "none": np.zeros((0, 3), np.float32),
    "flags": np.array([True, False]),
    "ä\\b": np.arange(3, dtype=np.uint8),
}
pytestmark = pytest.mark.usefixtures("here")


def test_what_is_written_the_package_reads_and_we_do():
    model.write("a.safetensors", ARRAYS, "small")
    found = library.load_file("a.safetensors")
    assert set(found) == set(ARRAYS)
    with Reader("a.safetensors") as reader:
        assert reader.shapes == {name: array.shape for name, array in ARRAYS.items()}
        for name, array in ARRAYS.items():
            for got in (found[name], reader[name]):
                assert got.dtype == array.dtype.newbyteorder("=")
                np.testing.assert_array_equal(got, array)
        with pytest.raises(CheckpointError, match="a.safetensors: has no entry 'b'"):
            reader["b"]
    assert os.listdir() == ["a.safetensors"]


def test_bfloat16_is_read_in_float32():
    narrow = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    values = chance.normal(size=(4, 3)).astype(narrow)
    library.save_file({"a/ip__0": values, "a/ip__1": np.zeros(4, narrow)}, "b.safetensors")
    net = Net(parse(NET), device="cpu")
    assert str(net.load("b.safetensors")) == "2 loaded"
    np.testing.assert_array_equal(net.params["a/ip"][0].data, values.astype(np.float32))
    assert main(["convert", "b.safetensors", "b.npz"]) == 0
    with np.load("b.npz") as found:
        assert found["a/ip__0"].dtype == np.float32
    model.write("c.safetensors", {"w": values})  # and written as what it is
    assert library.load_file("c.safetensors")["w"].dtype == narrow


def test_a_net_is_saved_with_its_text_and_loaded(capsys):
    net, other = Net(parse(NET), device="cpu", seed=3), Net(parse(NET), device="cpu", seed=4)
    net.save("a.safetensors")
    with library.safe_open("a.safetensors", framework="numpy") as file:
        told = file.metadata()
    assert told["name"] == "small" and told["model"].startswith("name: small\n\nlayers:\n")
    assert str(other.load("a.safetensors")) == "2 loaded"
    for mine, theirs in zip(net.learnable, other.learnable, strict=True):
        np.testing.assert_array_equal(mine.data, theirs.data)
    for words in ("a.safetensors b.npz", "b.npz c.safetensors", "c.safetensors d.caffemodel"):
        assert main(["convert", *words.split()]) == 0
    said = capsys.readouterr().err
    assert "b.npz -> c.safetensors: 2 arrays and the net's text\n" in said
    assert "d.caffemodel: 2 arrays of 1 layers\n" in said
    with Reader("a.safetensors") as first, Reader("c.safetensors") as last:
        assert first.shapes == last.shapes and "@model" in first.shapes
        for name in first.shapes:
            np.testing.assert_array_equal(first[name], last[name])
    with library.safe_open("c.safetensors", framework="numpy") as file:
        assert file.metadata() == told
    assert Net("c.safetensors", device="cpu").name == "small"


def head(text: str, data: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text.encode() + data


SPOILT = "is not a whole .safetensors file: "
ONE = '{"a":{"dtype":"%s","shape":[%d],"data_offsets":[0,4]}}'


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", f"{SPOILT}Error while deserializing header: header too small"),
        (head("{"), f"{SPOILT}Error while deserializing header: invalid JSON in header"),
        ((2**40).to_bytes(8, "little"), f"{SPOILT}Error while deserializing header: header too"),
        (
            head(ONE % ("F32", 2**40), b"0000"),
            f"{SPOILT}Error while deserializing header: invalid shape, data type, or offset",
        ),
        (
            head(ONE % ("F8_E4M3", 4), b"0000"),
            f"entry 'a' of F8_E4M3: {SPOILT}module 'numpy' has no attribute 'float8_e4m3fn'",
        ),
    ],
    ids=["empty", "cut", "a long head", "a large shape", "8 bits"],
)
def test_damage_is_one_line(data, told):
    Path("x.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError) as caught, Reader("x.safetensors") as reader:
        reader["a"]
    assert str(caught.value).startswith(f"x.safetensors: {told}")
    assert str(caught.value).isprintable()


def test_what_is_no_file(tmp_path):
    for path, told in (
        ("no.safetensors", "no such file"),
        (tmp_path, "cannot be read: Is no regular file"),
        ("/dev/zero", "cannot be read: Is no regular file"),
    ):
        assert refusal(Reader, path, error=CheckpointError) == f"{path}: {told}"
    line = refusal(model.write, "x.safetensors", {"x": np.array("x")}, error=CheckpointError)
    assert "has no place for 'x': <U1" in line and os.listdir() == []


def test_without_the_packages_it_is_told(monkeypatch):
    library.save_file({"a": np.ones(2, np.float32)}, "a.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    need = f"a .safetensors file needs the package safetensors: {pip_install('safetensors')}"
    net = Net(parse(NET), device="cpu")
    for work, path in ((Reader, "a.safetensors"), (net.save, "b.safetensors")):
        assert refusal(work, path, error=CheckpointError) == need
    assert os.listdir() == ["a.safetensors"]


def test_bfloat16_without_its_package_is_told():
    narrow = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    library.save_file({"a": np.ones(2, narrow)}, "a.safetensors")
    code = """
import sys
sys.modules["ml_dtypes"] = None
from minicaffe.storage.safetensors_file import Reader
try:
    Reader("a.safetensors")["a"]
except Exception as error:
    print(error)
"""
    words = [sys.executable, "-c", code]
    where = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent.parent)}
    ran = subprocess.run(words, capture_output=True, text=True, env=where)
    need = f"needs the package ml_dtypes: {pip_install('safetensors')}"
    assert ran.stdout == f"a.safetensors: entry 'a' of BF16: {need}\n", ran.stderr
