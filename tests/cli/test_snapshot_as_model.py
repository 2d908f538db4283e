"""A snapshot in the place of MODEL: its net's text and its weights, where no model file is."""

import os
import shutil

import numpy as np
import pytest
from kit import CPU, arrays


@pytest.fixture
def snapshot(cli, folder):
    """A snapshot after two iterations, taken with a setting, and no model file any more."""
    words = ("--max-iter", "2", "--set", "layers.conv1.stride=3", *CPU)
    assert cli("train", "tiny.yaml", *words).code == 0
    os.remove("tiny.yaml")
    shutil.rmtree("models")
    (folder / "black.pgm").write_bytes(b"P5 28 28 255\n" + bytes(784))
    return "tiny_iter_2.npz"


def test_each_command_takes_one(snapshot, cli):
    assert cli("predict", snapshot, "black.pgm", *CPU).out.startswith("black.pgm: ")
    tested = cli("test", snapshot, *CPU)
    assert f"weights: {snapshot}: 4 loaded" in tested.err and "accuracy" in tested.out
    for words in (
        ("summary",),
        ("explain", "--deterministic", *CPU),
        ("time", "--iterations", "1", *CPU),
        ("train", "--max-iter", "1", *CPU),
        ("train", "--max-iter", "3", "--resume", snapshot, *CPU),
    ):
        ran = cli(words[0], snapshot, *words[1:])
        assert ran.code == 0, ran


def test_the_folder_of_a_run_is_one_too(snapshot, cli, model, mistake):
    assert cli("train", model(), "--run", "a run", "--max-iter", "2", *CPU).code == 0
    os.remove("changed.yaml")
    assert cli("predict", "a run", "black.pgm", *CPU).out.startswith("black.pgm: ")
    assert "weights: changed_iter_2.npz: 4 loaded" in cli("test", "a run", *CPU).err
    assert cli("summary", "a run").code == 0
    os.remove("changed_iter_2.npz")
    assert mistake("predict", "a run", "black.pgm", *CPU).endswith("this run has no snapshot")


def test_settings_hold_and_can_be_made_anew(snapshot, cli):
    assert cli("convert", snapshot, "out.yaml").err == "out.yaml: 6 layers and a solver\n"
    with open("out.yaml") as file:
        text = file.read()
    assert "stride: 3" in text and "max_iter: 2\n" in text
    assert cli("convert", snapshot, "out.prototxt").code == 0
    assert "conv1 20x7x8x8" in cli("summary", snapshot, "--set", "layers.conv1.num_output=7").out


def test_weights_of_another_file(snapshot, cli):
    pytest.importorskip("safetensors")
    assert cli("convert", snapshot, "a.safetensors").code == 0
    first = cli("predict", snapshot, "black.pgm", *CPU).out
    assert cli("predict", "a.safetensors", "black.pgm", *CPU).out == first
    assert cli("predict", snapshot, "black.pgm", "--weights", "a.safetensors", *CPU).out == first
    given = arrays(snapshot)
    np.savez("b.npz", **given | {"conv1__1": given["conv1__1"] + 9})
    assert cli("predict", "a.safetensors", "black.pgm", "--weights", "b.npz", *CPU).out != first


def test_mistakes(snapshot, mistake):
    given = arrays(snapshot)
    text = bytes(given.pop("@model"))
    np.savez("bare.npz", **given)
    told = "does not hold its net's text (@model): give the model file, and this one by --weights"
    assert mistake("predict", "bare.npz", "black.pgm", *CPU) == f"minicaffe: bare.npz: {told}"
    spoilt = np.frombuffer(text.replace(b"Convolution", b"Convolutoin"), np.uint8)
    np.savez("spoilt.npz", **given, **{"@model": spoilt})
    line = mistake("test", "spoilt.npz", *CPU)
    assert line.startswith("minicaffe: spoilt.npz: @model:")
    assert line.endswith("layer 'conv1': unknown type 'Convolutoin'; did you mean 'Convolution'?")
    assert mistake("predict", "no.npz", "black.pgm", *CPU) == "minicaffe: no.npz: no such file"
