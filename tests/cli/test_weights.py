"""Caffe's files of weights and states at the command line: convert, test, predict, train, resume."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from kit import CPU, arrays
from mirrors import served

from minicaffe import Net
from minicaffe.tools.data.weights import WEIGHTS


@pytest.fixture
def caffes(cli, folder):
    """The weights of a trained model as Caffe's file, beside those it is of."""
    assert cli("train", "tiny.yaml", *CPU, "--max-iter", "2", "--quiet").code == 0
    (folder / "tiny_iter_2.npz").rename(folder / "w.npz")
    assert cli("convert", "w.npz", "w.caffemodel").code == 0
    return "w.caffemodel"


def test_weights_are_converted_and_not_written_over(cli, mistake, caffes):
    ran = cli("convert", caffes, "again.npz")
    assert ran.code == 0 and "w.caffemodel -> again.npz: 4 arrays" in ran.err
    given = arrays("w.npz")
    for name, array in arrays("again.npz").items():
        assert given[name].tobytes() == array.tobytes()
    assert "is there already" in mistake("convert", caffes, "again.npz")
    assert cli("convert", caffes, "again.npz", "--force").code == 0
    assert "cannot become" in mistake("convert", caffes, "mean.npy")
    assert "no.caffemodel: no such file" in mistake("convert", "no.caffemodel", "x.npz")


def test_a_test_takes_them_alone_or_several(cli, mistake, caffes):
    wanted = cli("test", "tiny.yaml", *CPU, "--weights", "w.npz")
    found = cli("test", "tiny.yaml", *CPU, "--weights", caffes)
    both = cli("test", "tiny.yaml", *CPU, "--weights", f"w.npz,{caffes}")
    assert wanted.out == found.out == both.out and wanted.code == 0
    assert both.err.count("4 loaded") == 2
    told = mistake("test", "tiny.yaml", *CPU, "--weights", f"{caffes},no.caffemodel")
    assert told == "minicaffe: no.caffemodel: no such file"


def test_a_run_of_caffes_is_gone_on_from(cli, caffes, folder):
    from minicaffe.interop.caffe import state

    history = [array for name, array in arrays("w.npz").items() if name.startswith("@history")]
    state.write("tiny.solverstate", state.SolverState(2, f"gone/{caffes}", 0, history))
    ran = cli("train", "tiny.yaml", *CPU, "--resume", "tiny.solverstate", "--max-iter", "4")
    assert ran.code == 0 and "resumed: tiny.solverstate at iteration 2" in ran.err
    straight = cli("train", "tiny.yaml", *CPU, "--resume", "w.npz", "--max-iter", "4")
    assert straight.code == 0 and straight.out == ran.out


def test_training_begins_with_them(cli, caffes):
    ran = cli("train", "tiny.yaml", *CPU, "--weights", caffes, "--max-iter", "1")
    assert ran.code == 0 and "weights: w.caffemodel: 4 loaded" in ran.err


@pytest.fixture
def named(folder, monkeypatch):
    """The weights of tiny.yaml, published as AlexNet's by a server on this machine."""
    Net(folder / "tiny.yaml", "TEST", device="cpu").save("w.caffemodel")
    content = (folder / "w.caffemodel").read_bytes()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("MINICAFFE_OFFLINE")
    with served({"bvlc_alexnet.caffemodel": content}) as server:
        digest = hashlib.sha1(content).hexdigest()
        row = replace(WEIGHTS["bvlc_alexnet"], folder=server.url, digest=digest)
        monkeypatch.setitem(WEIGHTS, "bvlc_alexnet", row)
        yield server


FETCHED = "data/weights/bvlc_alexnet.caffemodel"


@pytest.mark.parametrize(
    "words",
    [
        ("test", "tiny.yaml", *CPU, "--weights", "alexnet"),
        ("train", "tiny.yaml", *CPU, "--max-iter", "1", "--weights", "bvlc_alexnet"),
        ("export", "tiny.yaml", "--torch", "tiny.safetensors", "--weights", "alexnet"),
        ("test", "tiny.yaml", *CPU, "--weights", "w.caffemodel,alexnet"),
    ],
    ids=lambda words: words[0],
)
def test_weights_by_name_are_fetched_where_they_are_asked_for(cli, named, monkeypatch, words):
    monkeypatch.setenv("MINICAFFE_CACHE", "cache")
    monkeypatch.setattr("minicaffe.tools.data.datasets.load", _digits)
    ran = cli(*words)
    assert ran.code == 0, ran.err
    assert f"weights: {FETCHED} (unrestricted use)" in ran.err.splitlines()
    assert f"weights: {FETCHED}: 4 loaded" in ran.err.splitlines()
    assert len(named.asked) == 1


def _digits(source, split, beside=None):
    """A few digits, so that no data are asked of the network."""
    from minicaffe.tools.data.datasets import Dataset

    images = np.zeros({"train": (300, 1, 28, 28), "test": (100, 1, 28, 28)}[split], np.uint8)
    return Dataset(source, images, np.zeros(len(images), np.uint8), "zeros")


def test_a_file_of_that_name_comes_first(cli, named, folder):
    Net(folder / "tiny.yaml", "TEST", device="cpu").save("w.npz")
    (folder / "w.npz").rename(folder / "alexnet")
    ran = cli("export", "tiny.yaml", "--torch", "tiny.safetensors", "--weights", "alexnet")
    assert ran.code == 0 and "weights: alexnet: 4 loaded" in ran.err
    assert named.asked == []


def test_offline_it_is_told_how_to_fetch_them(mistake, named, monkeypatch):
    monkeypatch.setenv("MINICAFFE_OFFLINE", "1")
    told = mistake("test", "tiny.yaml", *CPU, "--weights", "alexnet")
    assert told.endswith("MINICAFFE_OFFLINE is set; with a network: minicaffe fetch bvlc_alexnet")


def test_fetch_brings_them_and_lists_them(cli, named):
    assert cli("fetch", "alexnet").out == f"bvlc_alexnet: {FETCHED} (unrestricted use)\n"
    listed = cli("fetch")
    assert listed.out == cli("fetch", "--list").out
    for words in ("mnist ", "fashion-mnist ", "cifar10 ", "squeezenet_v1.1 ", "non-commercial"):
        assert words in listed.out
