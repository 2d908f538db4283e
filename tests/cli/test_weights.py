"""Caffe's files of weights and states at the command line: convert, test, predict, train, resume."""

from __future__ import annotations

import numpy as np
import pytest

CPU = ("--device", "cpu")


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
    with np.load("w.npz") as one, np.load("again.npz") as other:
        for name in other.files:
            assert one[name].tobytes() == other[name].tobytes()
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
    from minicaffe.caffe import state

    with np.load("w.npz") as given:
        names = [name for name in given.files if name.startswith("@history")]
        history = [given[name] for name in names]
    state.write("tiny.solverstate", state.SolverState(2, f"gone/{caffes}", 0, history))
    ran = cli("train", "tiny.yaml", *CPU, "--resume", "tiny.solverstate", "--max-iter", "4")
    assert ran.code == 0 and "resumed: tiny.solverstate at iteration 2" in ran.err
    straight = cli("train", "tiny.yaml", *CPU, "--resume", "w.npz", "--max-iter", "4")
    assert straight.code == 0 and straight.out == ran.out


def test_training_begins_with_them(cli, caffes):
    ran = cli("train", "tiny.yaml", *CPU, "--weights", caffes, "--max-iter", "1")
    assert ran.code == 0 and "weights: w.caffemodel: 4 loaded" in ran.err
