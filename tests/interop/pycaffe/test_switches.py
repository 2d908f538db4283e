"""Modes, seeds, lines on stderr, names: what scripts ask of caffe itself."""

import subprocess
import sys

import numpy as np
import pytest

import minicaffe
import minicaffe.interop.pycaffe as caffe
from minicaffe.errors import SpecError

NET = 'input: "x" input_shape { dim: 1 } layer { name: "y" type: "Power" bottom: "x" top: "y" }'


def test_names():
    assert (caffe.TRAIN, caffe.TEST, caffe.__version__) == (0, 1, minicaffe.__version__)
    for name in ("Net", "SGDSolver", "Layer", "Timer", "layer_type_list", "log", "init_log"):
        assert name in dir(caffe) and callable(getattr(caffe, name))
    from minicaffe.interop.pycaffe import mode, pycaffe

    assert pycaffe.Net is caffe.Net and caffe.log is mode.log
    with pytest.raises(AttributeError, match="has no attribute 'Nett'"):
        caffe.Nett  # noqa: B018


def test_importing_it_loads_next_to_nothing():
    code = "import sys, minicaffe.interop.pycaffe; print([m for m in sys.modules if m in ('numpy', 'yaml')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_layer_types():
    types = caffe.layer_type_list()
    assert types == sorted(types)
    assert {"Convolution", "Data", "Python", "SoftmaxWithLoss", "LSTM"} <= set(types)


def test_nets_are_built_where_the_mode_says(text_file, cuda):
    path = text_file(NET)
    assert caffe.Net(path, caffe.TEST).net.device.name == "cpu"
    caffe.set_mode_gpu()
    there = caffe.Net(path, caffe.TEST)
    assert there.net.device.name == "cuda:0"
    caffe.set_device(0)
    caffe.set_mode_cpu()
    assert caffe.Net(path, caffe.TEST).net.device.name == "cpu"
    assert there.forward(x=np.ones(1))["y"].tolist() == [1]  # stays there


def test_a_device_that_is_not_there(text_file, cuda):
    caffe.set_mode_gpu()
    caffe.set_device(99)
    with pytest.raises(minicaffe.DeviceError, match="cuda:99"):
        caffe.Net(text_file(NET), caffe.TEST)


def test_one_process_one_device():
    caffe.set_solver_count(1)
    caffe.set_solver_rank(0)
    caffe.set_multiprocess(False)
    assert (caffe.solver_count(), caffe.solver_rank(), caffe.has_nccl()) == (1, 0, False)
    for function, given in (
        (caffe.set_solver_count, 2),
        (caffe.set_solver_rank, 1),
        (caffe.set_multiprocess, True),
        (caffe.set_device, -1),
        (caffe.set_random_seed, "1"),
    ):
        with pytest.raises(SpecError, match=function.__name__) as caught:
            function(given)
        one = str(caught.value).endswith(f"got {given}: one process trains, one device")
        assert one or function in (caffe.set_device, caffe.set_random_seed)


def test_lines_by_level(capsys, monkeypatch):
    caffe.log("one")
    monkeypatch.setenv("GLOG_minloglevel", "1")
    caffe.log("two")
    caffe.init_log(0)
    caffe.log("three")
    caffe.init_log(2, True)
    caffe.log("four")
    assert capsys.readouterr().err == "one\nthree\n"


def test_what_is_not_said_of_training_by_level(capsys):
    from minicaffe.interop.pycaffe.solver import Glog

    def said(level):
        caffe.init_log(level)
        told = Glog()
        told.displayed(1, 2.0, 0.1)
        told.started(["NOT MNIST. Digits."])
        told.failed("no snapshot")
        return capsys.readouterr().err

    assert "loss = 2" in said(0)
    assert "loss" not in said(1) and "NOT MNIST" in said(1)
    assert said(2) == "no snapshot\n"
    assert said(3) == ""


def test_a_stopwatch(device):
    if device.is_cuda:
        caffe.set_mode_gpu()
    timer = caffe.Timer()
    timer.stop()
    assert timer.ms == 0
    timer.start()
    timer.stop()
    assert timer.ms >= 0
