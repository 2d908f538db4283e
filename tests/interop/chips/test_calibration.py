"""Ranges for int8 against brute force, and other people's tables read back."""

import json
import math
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from kit import refusal

from minicaffe.cli import main
from minicaffe.core.net import parse
from minicaffe.errors import DataError, SpecError
from minicaffe.interop.chips.calibration import (
    BINS,
    CalibrationNet,
    Histogram,
    as_ncnn,
    as_nvdla,
    as_tensorrt,
    by_divergence,
    calibrate,
)
from minicaffe.tools.data import readers

NET = """
name: small
layers:
  - {name: x, type: Input, top: data, shape: {dim: [1, 2, 6, 6]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3, weight_filler: xavier,
     bias_filler: {type: uniform, min: -1, max: 1}}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: xavier}
  - {name: prob, type: Softmax}
"""
PICTURES = np.random.default_rng(1).integers(0, 256, (9, 2, 6, 6), np.uint8)


def seen(values: np.ndarray) -> Histogram:
    histogram = Histogram()
    histogram.see(values)
    histogram.add(values)
    return histogram


def divergence(parts: list[float], t: int) -> float:
    """KL(P, Q) of ncnn's definition, bin by bin."""
    p = [one + 1e-4 for one in parts[:t]]
    p[-1] += sum(parts[t:])
    q, width = [1e-4] * t, t / 128
    for level in range(128):
        begin, end = level * width, (level + 1) * width
        shares = [max(0.0, min(end, k + 1) - max(begin, k)) for k in range(t)]
        mean = sum(share * parts[k] for k, share in enumerate(shares)) / width
        q = [one + share * mean for one, share in zip(q, shares, strict=True)]
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def test_the_divergence_is_least_there():
    histogram = seen(np.random.default_rng(0).laplace(size=20000))
    t = round(by_divergence(histogram) / histogram.width - 0.5)
    parts = (histogram.counts / histogram.counts.sum()).tolist()
    least = divergence(parts, t)
    for other in (128, 200, t - 1, t + 1, 1500, BINS - 1):
        assert divergence(parts, min(max(other, 128), BINS - 1)) >= least - 1e-12


def test_a_blob_is_what_its_last_writer_left():
    measured = calibrate(parse(NET), images=PICTURES, device="cpu")
    assert list(measured.blobs) == ["data", "conv", "ip", "prob"]
    assert measured.blobs["conv"].low == 0
    data = measured.blobs["data"]
    assert (data.low, data.high) == (PICTURES.min(), PICTURES.max())


def test_an_earlier_value_that_a_weighted_layer_reads():
    """Is listed as the blob and who wrote it; the copies of a Split are not."""
    early = "  - {name: early, type: InnerProduct, bottom: conv, num_output: 2}\n"
    text = NET.replace("  - {name: relu", f"{early}  - {{name: relu, bottom: conv")
    text = text.replace("{name: ip, type", "{name: ip, bottom: conv, type")
    measured = calibrate(parse(text), images=PICTURES, device="cpu")
    assert measured.layers["early"].bottom == "conv/conv" and measured.layers["ip"].bottom == "conv"
    assert measured.blobs["conv/conv"].low < 0 == measured.blobs["conv"].low
    assert not any("split" in name for name in measured.blobs)


FILTERS = """
layers:
  - {name: x, type: Input, top: data, shape: {dim: [1, 4, 6, 6]}}
  - {name: conv, type: Convolution, num_output: 6, group: 2, kernel_size: 3, weight_filler: xavier}
  - {name: up, type: Deconvolution, num_output: 4, group: 2, kernel_size: 3, stride: 2,
     weight_filler: xavier}
  - {name: ip, type: InnerProduct, num_output: 3, transpose: true, weight_filler: xavier}
"""


def test_weights_are_measured_in_each_output_channel():
    net = CalibrationNet(parse(FILTERS), device="cpu")
    pictures = np.random.default_rng(2).integers(0, 256, (5, 4, 6, 6), np.uint8)
    measured = calibrate(net, images=pictures, method="max")
    conv, up, ip = (net.net.params[name][0].to_host() for name in ("conv", "up", "ip"))
    assert np.allclose(measured.layers["conv"].maxima, np.abs(conv).reshape(6, -1).max(axis=1))
    by_output = up.reshape(2, 3, 2, 9).transpose(0, 2, 1, 3).reshape(4, -1)
    assert np.allclose(measured.layers["up"].maxima, np.abs(by_output).max(axis=1))
    assert np.allclose(measured.layers["ip"].maxima, np.abs(ip).max(axis=0))
    rows = {row.split()[0]: row.split()[1:] for row in as_ncnn(measured).splitlines()}
    assert list(rows) == ["conv_param_0", "ip_param_0", "conv", "ip"]
    groups = np.abs(conv).reshape(2, -1).max(axis=1).astype(np.float64)
    assert rows["conv_param_0"] == [f"{127 / most:f}" for most in groups]


def test_tables_read_back():
    measured = calibrate(parse(NET), images=PICTURES, device="cpu")
    head, *lines = as_tensorrt(measured).splitlines()
    assert head.startswith("TRT-") and len(lines) == len(measured.blobs)
    for line in lines:
        name, digits = line.split(": ")
        scale = struct.unpack(">f", bytes.fromhex(digits))[0]
        assert scale == np.float32(measured.blobs[name].threshold / 127)
        assert json.loads(as_nvdla(measured))[name]["scale"] == measured.blobs[name].scale
    rows = {row.split()[0]: row.split()[1:] for row in as_ncnn(measured).splitlines()}
    assert list(rows) == ["conv_param_0", "ip_param_0", "conv", "ip"]
    wanted = [f"{31 / most:f}" for most in measured.layers["conv"].maxima]  # 3 x 3: six bits
    assert rows["conv_param_0"] == wanted
    assert rows["ip"] == [f"{127 / measured.blobs['conv'].threshold:f}"]
    assert as_ncnn(calibrate(parse(NET), images=PICTURES, device="cpu")) == as_ncnn(measured)


LOG = "{name: relu, type: ReLU, top: conv}", "{name: log, type: Log}"
PLAIN = "layers: [{name: x, type: Input, shape: {dim: [1, 2, 6, 6]}}, {name: y, type: ReLU}]"


@pytest.mark.parametrize(
    ("text", "given", "error", "told"),
    [
        (NET.replace(*LOG), {"images": PICTURES}, DataError, r"blob 'log' holds .* not finite"),
        (NET, {"images": PICTURES, "method": "maxx"}, SpecError, "^method: expected .*, got 'maxx'; did you mean 'max'"),
        (NET, {}, DataError, "has no test data of its own; say which pictures"),
        (NET, {"images": PICTURES[:0]}, DataError, "there are no pictures to calibrate with"),
        (PLAIN, {"images": PICTURES}, SpecError, "has no Convolution, Deconvolution or InnerProduct to quan"),
    ],
)  # fmt: skip
def test_what_is_refused(text, given, error, told):
    with pytest.raises(error, match=told):
        calibrate(parse(text), device="cpu", **given)


def test_names_that_a_table_does_not_hold():
    model = parse(NET.replace("name: conv", "name: a conv, top: a conv"))
    measured = calibrate(model, images=PICTURES, device="cpu")
    for write, told in (
        (as_tensorrt, "blob 'a conv': TensorRT's cache cannot hold a name with ':' or blanks"),
        (as_ncnn, "layer 'a conv': ncnn's table cannot hold a name with blanks"),
    ):
        assert told in refusal(write, measured, error=SpecError)


def test_folders_of_pictures(tmp_path):
    """Of classes, a folder each, and flat."""
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(3).integers(0, 256, (10, 6, 6), np.uint8)
    for folder, first, end in (("sets/cats", 0, 8), ("sets/dogs", 8, 10), ("flat", 0, 10)):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(first, end):
            image.fromarray(pixels[i]).save(tmp_path / folder / f"{i}.png")
    net = CalibrationNet(parse(NET.replace("1, 2, 6, 6", "1, 3, 6, 6")), device="cpu")
    for folder in ("sets", "flat"):
        measured = calibrate(net, images=tmp_path / folder)
        data = measured.blobs["data"]
        assert (data.low, data.high, measured.images) == (pixels.min(), pixels.max(), 10)
        assert measured.notes == ["10 pictures, not 500: there are no more"]
    assert calibrate(net, images=tmp_path / "flat", count=4).images == 4


def test_a_data_set_is_read_in_the_nets_order_of_channels(tmp_path):
    pixels = np.random.default_rng(4).integers(0, 256, (3, 3, 6, 6), np.uint8)
    pixels[:, 0] //= 8
    np.savez(tmp_path / "set.npz", x=pixels, y=np.zeros(3, np.int64))
    net = CalibrationNet(parse(NET.replace("1, 2, 6, 6", "1, 3, 6, 6")), device="cpu")
    prepared, _ = net.pictures(tmp_path / "set.npz", 3)
    same = net.data.blue_first == readers.open(str(tmp_path / "set.npz"), "test").blue_first
    np.testing.assert_array_equal(prepared, pixels if same else pixels[:, ::-1])


@pytest.fixture
def words(here):
    """A command that calibrates net.yaml on set.npz in the current folder."""
    Path("net.yaml").write_text(NET.replace("1, 2, 6, 6", "1, 1, 6, 6"))
    CalibrationNet("net.yaml", device="cpu").net.save("w.npz")
    np.savez("set.npz", x=PICTURES[:, 0], y=np.arange(9) % 3)
    return ["calibrate", "net.yaml", "--weights=w.npz", "--device=cpu", "--data=set.npz"]


def test_the_command(words, capsys):
    words += ["--tensorrt", "a.cache", "--ncnn", "a.table", "--nvdla", "a.json"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "T by kl" in said.out and "9 pictures, not 500" in said.err
    assert sorted(json.loads(Path("a.json").read_text())) == ["conv", "data", "ip", "prob"]
    assert main(words) == 2
    assert "a.cache: is there already; --force writes over it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--ncnn=a", "--nvdla=a"], "two tables in one file: a, a"),
        (["--ncnn="], "--ncnn: expected a file, got ''"),
        (["--tensorrt-header=a\nb"], "--tensorrt-header: expected one line of text"),
    ],
)
def test_words_that_do_not_go(words, capsys, more, told):
    assert main([*words, *more]) == 2
    assert told in capsys.readouterr().err


def test_numbers_that_are_not_finite_are_one_line(words, capsys):
    Path("net.yaml").write_text(Path("net.yaml").read_text().replace(*LOG))
    assert main([*words, "--quiet", "--tensorrt", "a.cache"]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert all(
        part in line for part in ("net.yaml:7:5: layer 'log'", "blob 'log' holds", "not finite")
    )
    assert not said.out and sorted(os.listdir()) == ["net.yaml", "set.npz", "w.npz"]


def test_a_blob_that_is_always_zero_is_named():
    """Its scale is 1 in every table, which says nothing of it."""
    text = """
layers:
  - {name: x, type: Input, top: data, shape: {dim: [1, 1, 4, 4]}}
  - {name: dead, type: Convolution, num_output: 2, kernel_size: 1, weight_filler: constant}
  - {name: relu, type: ReLU, top: dead}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: xavier}
"""
    pictures = np.random.default_rng(0).integers(0, 256, (8, 1, 4, 4), np.uint8)
    for images, blobs in ((pictures, "dead, ip"), (np.zeros_like(pictures), "data, dead, ip")):
        notes = calibrate(parse(text), images=images, device="cpu").notes
        assert f"always 0 in these pictures, scale 1: {blobs}; are they dead, or black?" in notes
