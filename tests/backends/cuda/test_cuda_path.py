"""The whole CUDA path: nets train on `--device cuda` (a GPU, or the stand-in) and match the CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gpu import HAS_GPU, STAND_IN
from kit import digits_for_mnist, few_digits

from minicaffe import DeviceError, Solver, parse
from minicaffe.backends import device as backend
from minicaffe.core.solver import mean_outputs
from minicaffe.core.solver.report import Mute

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def few(monkeypatch, here):
    few_digits(monkeypatch, 600, 200)
    digits_for_mnist(monkeypatch)


def small(model):
    """A model of models/ in batches of a few, with fewer weights: the stand-in is slow."""
    text = (ROOT / "models" / f"{model}.yaml").read_text().replace("output: 500", "output: 40")
    return parse(text.replace("batch_size: 64", "batch_size: 6").replace("size: 100", "size: 20"))


@pytest.mark.parametrize("model", ["lenet", "lenet_paper"])
def test_a_net_trains_on_cuda_as_on_the_cpu(model, cuda):
    options = {"report": Mute(), "test_interval": 100, "test_iter": 2, "deterministic": True}
    devices = (backend.device("cpu"), cuda)
    solvers = [Solver(small(model), device=one, **options) for one in devices]
    for solver in solvers:
        solver.step(4)
    for name, wanted in solvers[0].net.weights().items():
        np.testing.assert_allclose(
            solvers[1].net.weights()[name], wanted, atol=2e-4 * np.abs(wanted).max()
        )
    assert solvers[0].loss() == pytest.approx(solvers[1].loss(), rel=1e-4)
    scores = [mean_outputs(solver.test_net, 2) for solver in solvers]
    assert scores[0]["loss"] == pytest.approx(scores[1]["loss"], rel=1e-3)


def test_a_snapshot_taken_on_cuda_goes_on_on_the_cpu(cuda):
    options = {"report": Mute(), "test_interval": 0, "test_iter": 0, "deterministic": True}
    there = Solver(small("lenet"), device=cuda, **options)
    there.step(2)
    path = there.snapshot()
    here = Solver(small("lenet"), device="cpu", **options)
    here.restore(path)
    there.step(1)
    here.step(1)
    for name, wanted in here.net.weights().items():
        np.testing.assert_allclose(
            there.net.weights()[name], wanted, atol=2e-4 * np.abs(wanted).max()
        )


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with the GPU or the stand-in."""
    path = os.pathsep.join(
        filter(None, ["" if HAS_GPU else str(STAND_IN), os.environ.get("PYTHONPATH", "")])
    )
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "minicaffe", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


MODEL = """
name: small
layers:
  - {name: data, type: Data, top: [x, label], source: tiny, batch_size: 5}
  - {name: conv, type: Convolution, bottom: x, num_output: 3, kernel_size: 3}
  - {name: pool, type: Pooling, kernel_size: 2, stride: 2}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, max_iter: 3, display: 1}
"""


def test_the_command_line_trains_on_cuda(cuda, tmp_path):
    from test_kill import prepare

    prepare(tmp_path)
    Path("small.yaml").write_text(MODEL)
    result = run("train", "small.yaml", "--device", "cuda")
    assert result.returncode == 0, result.stderr
    assert "device: cuda:0 (asked for: " in result.stderr
    assert "iteration 2: loss = " in result.stderr
    half = run("train", "small.yaml", "--device", "cuda", "--dtype", "float16")
    assert half.returncode == 0, half.stderr
    assert "iteration 2: loss = " in half.stderr
    assert "device: cuda:0 (CUDA works: " in run("train", "small.yaml").stderr
    timed = run("time", "small.yaml", "--iterations", "2")
    assert timed.returncode == 0, timed.stderr
    assert re.search(r"would use +cuda:0 ", run("doctor").stdout)


def test_devices_that_are_not_there_are_told(cuda):
    with pytest.raises(DeviceError, match=r"there is no cuda:63; \d+ CUDA device\(s\) were found"):
        backend.device("cuda:63")
    for name in ("gpu", "cuda:x", "cuda:-1", "cpu:0", ""):
        with pytest.raises(DeviceError, match="unknown device"):
            backend.device(name)


def test_without_cuda_the_cpu_is_chosen_and_the_reason_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr("minicaffe.backends.cuda.device.has_driver", lambda: False)
    assert repr(backend.device()) == "cpu (there is no NVIDIA driver)"
    with pytest.raises(DeviceError, match="there is no NVIDIA driver"):
        backend.device("cuda")


def test_a_driver_that_fails_is_told(cuda, monkeypatch):
    import cupy

    def fails():
        raise cupy.cuda.runtime.CUDARuntimeError(35)

    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", fails)
    assert "CUDA does not work: " in repr(backend.device())
    with pytest.raises(DeviceError, match="CUDA does not work: "):
        backend.device("cuda")
