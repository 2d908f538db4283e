"""Ranges for int8 against brute force, the simulation against integers, and other people's tables read back."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from minicaffe.calibration import CalibrationNet, calibrate, tables
from minicaffe.calibration.images import chosen
from minicaffe.calibration.ranges import BINS, Histogram
from minicaffe.calibration.simulate import Quantised, outputs, quantised
from minicaffe.cli import main
from minicaffe.errors import DataError, SpecError
from minicaffe.net import parse

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
    from minicaffe.calibration import ranges

    histogram = seen(np.random.default_rng(0).laplace(size=20000))
    t = round(ranges.by_divergence(histogram) / histogram.width - 0.5)
    parts = (histogram.counts / histogram.counts.sum()).tolist()
    least = divergence(parts, t)
    for other in (128, 200, t - 1, t + 1, 1500, BINS - 1):
        assert divergence(parts, min(max(other, 128), BINS - 1)) >= least - 1e-12


def test_the_squared_error_is_nearly_that_of_the_best_clip():
    values = np.random.default_rng(0).standard_normal(20000)

    def error(clip: float) -> float:
        s = clip / 127
        return float(((values - s * np.clip(np.rint(values / s), -127, 127)) ** 2).mean())

    best = min(map(error, np.linspace(1, np.abs(values).max(), 500)))
    assert error(seen(values).thresholds()["mse"]) < 1.03 * best


def test_zeros_have_no_range():
    assert set(seen(np.zeros(5)).thresholds().values()) == {0.0}


def integers(net: CalibrationNet, scales: dict, x: np.ndarray) -> np.ndarray:
    """The scores of NET in int8: int8 times int8 in int32, nothing rounded in between."""

    def ints(values, step):
        return np.clip(np.rint(values.astype(np.float64) / step), -127, 127).astype(np.int32)

    def layer(name, columns):  # (n, k) -> (n, num_output)
        weight, bias = (net.net.params[name][i].to_host() for i in (0, 1))
        weight = weight.reshape(len(weight), -1)
        sw, sx = np.abs(weight).max(axis=1).astype(np.float64) / 127, scales[name]
        total = ints(columns, sx) @ ints(weight, sw[:, None]).T
        total += np.rint(bias / (sx * sw)).astype(np.int32)
        return total * (sx * sw)

    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))  # n c 4 4 3 3
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, 18)
    y = layer("conv", columns).reshape(len(x), 4, 4, 4).transpose(0, 3, 1, 2)
    return layer("ip", np.maximum(y, 0).astype(np.float32).reshape(len(x), -1))


def test_the_simulation_is_what_integers_compute_and_leaves_the_weights():
    net = CalibrationNet(parse(NET), device="cpu")
    before = net.net.weights()
    found = calibrate(net, images=PICTURES, method="max")
    scales = {"conv": found.scale("data"), "ip": found.scale("conv")}
    steps = quantised(net.net.steps)
    simulated = Quantised(net.net, {step: [scales[step.spec.name]] for step in steps})
    x = PICTURES.astype(np.float32)
    with simulated.layers(steps):
        net.run(x)
        y8 = outputs(net)[0]
    wanted = integers(net, scales, x)
    net.run(x)
    y = outputs(net)[0]
    assert np.abs(y8 - wanted).max() < 1e-5 * np.abs(wanted).max() < np.abs(y8 - y).max()
    assert all(np.array_equal(before[k], v) for k, v in net.net.weights().items())
    assert not any(step.watchers for step in net.net.steps)
    with pytest.raises(ZeroDivisionError), simulated.layers(steps):
        raise ZeroDivisionError
    assert all(np.array_equal(before[k], v) for k, v in net.net.weights().items())


FILTERS = """
layers:
  - {name: x, type: Input, top: data, shape: {dim: [1, 4, 6, 6]}}
  - {name: conv, type: Convolution, num_output: 6, group: 2, kernel_size: 3, weight_filler: xavier,
     bias_filler: {type: uniform, min: -1, max: 1}}
  - {name: up, type: Deconvolution, num_output: 4, group: 2, kernel_size: 3, stride: 2,
     weight_filler: xavier, bias_filler: {type: uniform, min: -1, max: 1}}
"""


def ints(values: np.ndarray, step: float | np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values.astype(np.float64) / step), -127, 127).astype(np.int64)


def grouped_convolution(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Integers (n, 4, 6, 6) and (6, 2, 3, 3) of two groups: (n, 6, 4, 4)."""
    y = np.zeros((len(x), 6, 4, 4), np.int64)
    for o, i, ky, kx in np.ndindex(weight.shape):
        y[:, o] += x[:, o // 3 * 2 + i, ky : ky + 4, kx : kx + 4] * weight[o, i, ky, kx]
    return y


def grouped_deconvolution(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Integers (n, 6, 4, 4) and (6, 2, 3, 3) of two groups, stride 2: (n, 4, 9, 9)."""
    y = np.zeros((len(x), 4, 9, 9), np.int64)
    for i, o, ky, kx in np.ndindex(weight.shape):
        y[:, i // 3 * 2 + o, ky : ky + 8 : 2, kx : kx + 8 : 2] += x[:, i] * weight[i, o, ky, kx]
    return y


def test_groups_and_deconvolutions_are_what_integers_compute():
    net = CalibrationNet(parse(FILTERS), device="cpu")
    pictures = np.random.default_rng(2).integers(0, 256, (5, 4, 6, 6), np.uint8)
    measured = calibrate(net, images=pictures, method="max")
    x = pictures.astype(np.float32)
    (conv, conv_bias), (up, up_bias) = (
        [param.to_host() for param in net.net.params[name]] for name in ("conv", "up")
    )
    scales = {"conv": measured.scale("data"), "up": measured.scale("conv")}
    # (output channels, one row each) and the step of each output channel
    steps_conv = np.abs(conv).reshape(6, -1).max(axis=1).astype(np.float64) / 127
    by_output = up.reshape(2, 3, 2, 9).transpose(0, 2, 1, 3).reshape(4, -1)
    steps_up = np.abs(by_output).max(axis=1).astype(np.float64) / 127
    assert np.allclose(measured.layers["conv"].scales, steps_conv)
    assert np.allclose(measured.layers["up"].scales, steps_up)

    y = grouped_convolution(ints(x, scales["conv"]), ints(conv, steps_conv[:, None, None, None]))
    worth = scales["conv"] * steps_conv
    y = (y + np.rint(conv_bias / worth).astype(np.int64)[:, None, None]) * worth[:, None, None]
    spread = np.repeat(steps_up.reshape(2, 2), 3, axis=0)[:, :, None, None]  # (6, 2, 1, 1)
    y = grouped_deconvolution(ints(y.astype(np.float32), scales["up"]), ints(up, spread))
    worth = scales["up"] * steps_up
    y = (y + np.rint(up_bias / worth).astype(np.int64)[:, None, None]) * worth[:, None, None]

    steps = quantised(net.net.steps)
    with Quantised(net.net, {step: [scales[step.spec.name]] for step in steps}).layers(steps):
        net.run(x)
        y8 = outputs(net)[0]
    net.run(x)
    assert np.abs(y8 - y).max() < 1e-5 * np.abs(y).max() < np.abs(y8 - outputs(net)[0]).max()
    assert measured.loss.whole.agreement is None and measured.loss.accuracy is None


def test_a_blob_is_what_its_last_writer_left():
    found = calibrate(parse(NET), images=PICTURES, device="cpu")
    assert found.blobs["conv"].writer == "relu" and found.blobs["conv"].low == 0
    assert (found.blobs["data"].low, found.blobs["data"].high) == (PICTURES.min(), PICTURES.max())
    assert found.blobs["data"].size == PICTURES.size
    sqnr = [one.sqnr for one in found.loss.layers]
    assert sqnr == sorted(sqnr) and len(sqnr) == 2


def test_tables_read_back():
    found = calibrate(parse(NET), images=PICTURES, device="cpu")
    head, *lines = tables.as_tensorrt(found).splitlines()
    assert head.startswith("TRT-")
    for line in lines:
        name, digits = line.split(": ")
        scale = struct.unpack(">f", bytes.fromhex(digits))[0]
        assert scale == np.float32(found.blobs[name].thresholds["kl"] / 127)
        assert json.loads(tables.as_nvdla(found))[name]["scale"] == found.scale(name)
    rows = {row.split()[0]: row.split()[1:] for row in tables.as_ncnn(found).splitlines()}
    assert list(rows) == ["conv_param_0", "ip_param_0", "conv", "ip"]
    wanted = [f"{31 / most:f}" for most in found.layers["conv"].maxima]  # 3 x 3: six bits
    assert rows["conv_param_0"] == wanted
    assert rows["ip"] == [f"{127 / found.blobs['conv'].thresholds['kl']:f}"]
    again = calibrate(parse(NET), images=PICTURES, device="cpu")
    assert tables.as_json(again) == tables.as_json(found)
    assert json.loads(tables.as_json(found))["version"] == 1


def test_what_is_refused():
    with pytest.raises(DataError, match=r"blob 'log' holds .* not finite"):
        calibrate(
            parse(NET.replace("{name: relu, type: ReLU, top: conv}", "{name: log, type: Log}")),
            images=PICTURES,
            device="cpu",
        )
    with pytest.raises(SpecError, match="^method: expected .*, got 'msee'; did you mean 'mse'"):
        calibrate(parse(NET), images=PICTURES, method="msee")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="has no test data of its own; say which pictures"):
        calibrate(parse(NET), device="cpu")
    with pytest.raises(DataError, match="there are no pictures to calibrate with"):
        calibrate(parse(NET), images=PICTURES[:0], device="cpu")
    plain = parse(
        "layers: [{name: x, type: Input, shape: {dim: [1, 2, 6, 6]}}, {name: y, type: ReLU}]"
    )
    with pytest.raises(
        SpecError, match="has no Convolution, Deconvolution or InnerProduct to quan"
    ):
        calibrate(plain, images=PICTURES, device="cpu")


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (
            tables.as_tensorrt,
            "blob 'a conv': TensorRT's cache cannot hold a name with ':' or blanks",
        ),
        (tables.as_ncnn, "layer 'a conv': ncnn's table cannot hold a name with blanks"),
    ],
)
def test_names_that_a_table_does_not_hold(write, told):
    model = parse(NET.replace("name: conv", "name: a conv, top: a conv"))
    with pytest.raises(SpecError, match=told):
        write(calibrate(model, images=PICTURES, device="cpu"))


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.yaml").write_text(NET.replace("1, 2, 6, 6", "1, 1, 6, 6"))
    CalibrationNet("net.yaml", device="cpu").net.save("w.npz")
    np.savez("set.npz", x=PICTURES[:, 0], y=np.arange(9) % 3)
    words = ["calibrate", "net.yaml", "--weights", "w.npz", "--device", "cpu", "--data", "set.npz"]
    words += ["--tensorrt", "a.cache", "--ncnn", "a.table", "--nvdla", "a.json"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "int8, conv alone" in said.out and "9 pictures, not 500" in said.err
    assert json.loads((tmp_path / "calibration.json").read_text())["loss"]["accuracy"] is not None
    assert main(words) == 2
    assert "is there already; --force writes over it" in capsys.readouterr().err


def test_folders_of_pictures(tmp_path):
    """Of classes, a folder each, evenly over them and with their labels; flat, without."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 256, (10, 6, 6), np.uint8)
    for folder, first, end in (("sets/cats", 0, 8), ("sets/dogs", 8, 10), ("flat", 0, 10)):
        (tmp_path / folder).mkdir(parents=True)
        for i in range(first, end):
            image.fromarray(pixels[i]).save(tmp_path / folder / f"{i}.png")
    net = CalibrationNet(parse(NET.replace("1, 2, 6, 6", "1, 3, 6, 6")), device="cpu")
    few = chosen(net, tmp_path / "sets", 4)
    assert few.labels.tolist() == [0, 0, 1, 1]
    assert np.array_equal(few.prepared[2:], np.stack([pixels[8:]] * 3, axis=1))
    for folder in ("sets", "flat"):
        measured = calibrate(net, images=tmp_path / folder)
        data = measured.blobs["data"]
        assert (data.low, data.high, data.size) == (pixels.min(), pixels.max(), 3 * pixels.size)
        assert data.zeros == 3 * (pixels == 0).sum() and measured.images == 10
        assert (measured.loss.accuracy is None) == (folder == "flat")
    assert measured.notes == ["10 pictures, not 500: there are no more"]


@pytest.fixture
def words(tmp_path, monkeypatch):
    """A command that calibrates net.yaml on set.npz in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(NET.replace("1, 2, 6, 6", "1, 1, 6, 6"))
    CalibrationNet("net.yaml", device="cpu").net.save("w.npz")
    np.savez("set.npz", x=PICTURES[:, 0], y=np.arange(9) % 3)
    return ["calibrate", "net.yaml", "--weights=w.npz", "--device=cpu", "--data=set.npz"]


@pytest.mark.parametrize("percentile", [50, 90, 100])
def test_a_percentile_of_ones_own(words, percentile):
    more = ["--method", "percentile", "--percentile", str(percentile), "--nvdla", "a.json"]
    assert main(words + more) == 0
    threshold = json.loads(Path("calibration.json").read_text())["blobs"]["data"]["threshold"]
    wanted = np.percentile(PICTURES[:, 0], percentile, method="inverted_cdf")
    assert wanted <= threshold["percentile"] <= wanted + threshold["max"] / BINS
    assert json.loads(Path("a.json").read_text())["data"]["scale"] == threshold["percentile"] / 127


@pytest.mark.parametrize("percentile", ["0", "100.1", "nan"])
def test_no_percentile(words, capsys, percentile):
    assert main([*words, "--percentile", percentile]) == 2
    assert "percentile: expected a number above 0, at most 100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--ncnn=a", "--nvdla=a"], "two tables in one file: calibration.json, a, a"),
        (["--tensorrt-header=a\nb"], "--tensorrt-header: expected one line of text"),
    ],
)
def test_words_that_do_not_go(words, capsys, more, told):
    assert main([*words, *more]) == 2
    assert told in capsys.readouterr().err


def test_numbers_that_are_not_finite_are_one_line(words, capsys):
    text = Path("net.yaml").read_text()
    Path("net.yaml").write_text(
        text.replace("{name: relu, type: ReLU, top: conv}", "{name: log, type: Log}")
    )
    assert main([*words, "--quiet", "--tensorrt", "a.cache"]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert (
        "net.yaml:7:5: layer 'log'" in line and "blob 'log' holds" in line and "not finite" in line
    )
    assert not said.out and sorted(os.listdir()) == ["net.yaml", "set.npz", "w.npz"]


def test_a_full_disk_changes_no_table(words, monkeypatch, capsys):
    words += ["--tensorrt", "a.cache", "--ncnn", "a.table", "--force"]
    for name in ("calibration.json", "a.cache", "a.table"):
        Path(name).write_text("as before")
    before, flush, calls = sorted(os.listdir()), os.fsync, []

    def full_at_the_third(handle):
        calls.append(handle)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        flush(handle)

    monkeypatch.setattr(os, "fsync", full_at_the_third)
    assert main(words) == 2
    assert "a.table: cannot be written: No space left on device" in capsys.readouterr().err
    assert sorted(os.listdir()) == before
    for name in ("calibration.json", "a.cache", "a.table"):
        assert Path(name).read_text() == "as before"
    monkeypatch.setattr(os, "fsync", flush)
    assert main(words) == 0 and "as before" not in Path("a.table").read_text()


def test_a_blob_that_is_always_zero_is_named():
    """Its scale is 1 in every table, which says nothing of it."""
    model = parse(
        """
layers:
  - {name: x, type: Input, top: data, shape: {dim: [1, 1, 4, 4]}}
  - {name: dead, type: Convolution, num_output: 2, kernel_size: 1, weight_filler: constant}
  - {name: relu, type: ReLU, top: dead}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: xavier}
"""
    )
    pictures = np.random.default_rng(0).integers(0, 256, (8, 1, 4, 4), np.uint8)
    notes = calibrate(model, images=pictures, device="cpu").notes
    assert "always 0 in these pictures, scale 1: dead, ip; are they dead, or black?" in notes
    notes = calibrate(model, images=np.zeros_like(pictures), device="cpu").notes
    assert "always 0 in these pictures, scale 1: data, dead, ip; are they dead, or black?" in notes
