"""Kernels compiled side by side before the first run of a net: the same bits as one after the other."""

import contextlib
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from core.layers.rows import ROWS
from core.solver.every_layer import DIGITS, Every
from core.solver.test_every_layer import TYPES, WITHOUT_MOMENTUM
from core.solver.twins import SMALL, Quiet

from minicaffe import Net, Solver, parse
from minicaffe.backends import launch_listener as listener
from minicaffe.backends.cuda import ahead
from minicaffe.cli.train import only_asks
from minicaffe.core.layers import REGISTRY, fillers, inputs
from minicaffe.errors import DataError


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path, fifty_digits):
    """What is remembered of kernels goes into a folder of its own."""
    monkeypatch.setenv("MINICAFFE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def compiled(monkeypatch):
    """What is compiled ahead, which the stand-in does when it is launched."""
    instances = []
    monkeypatch.setattr(ahead, "compile_all", lambda device, wanted: instances.append([*wanted]))
    return instances


def numbers(solver):
    to_host = solver.device.to_host
    blobs = [to_host(blob.data).tobytes() for blob in solver.net.blobs.values()]
    weights = [to_host(param.data).tobytes() for param in solver.net.learnable]
    return blobs, weights, [to_host(array).tobytes() for array in solver.rule.history]


def both(cuda, make, steps=5):
    """The numbers of a solver whose first launches wait, and of one whose do not."""
    with ahead.allowed(cuda):
        waits = make()
        waits.step(steps)
    plain = make()
    plain.step(steps)
    return numbers(waits), numbers(plain)


@pytest.mark.parametrize("kind", TYPES)
def test_an_iteration_that_waits_for_its_kernels(cuda, compiled, kind):
    """All of it waits until the end, clipping, the average and tests included."""
    more = f", type: {kind}, clip_gradients: 0.5, ema_decay: 0.9, test_iter: 2, test_interval: 2"
    text = SMALL.replace("momentum: 0.9, ", "") if kind in WITHOUT_MOMENTUM else SMALL
    model = parse(text.format(more=more))
    given = {"device": cuda, "engine": "implicit"}
    mine, theirs = both(cuda, lambda: Solver(model, report=Quiet(), **given))
    assert mine == theirs
    assert max(map(len, compiled)) > 20 and only_asks(Net(model, "TRAIN", **given))


CORE = [
    name
    for name in ROWS
    if name != "DummyData" and REGISTRY[name].__module__.startswith("minicaffe.core.layers.")
]


@pytest.mark.parametrize(
    "engine",
    ["implicit", *(pytest.param(one, marks=pytest.mark.long) for one in ("batched", "caffe"))],
)
def test_a_net_of_every_layer_waits(cuda, compiled, monkeypatch, engine):
    """The stand-in refuses what CuPy does unasked behind a launch that waits; who reads a result ends the wait.

    The layers' bottoms are random DummyData, whose fillers compute unasked: nothing waits for them here.
    """

    def refill(*args):
        listener.tell("numbers by CuPy")
        with listener.heard(None):
            return fillers.refill(*args)

    monkeypatch.setattr(inputs, "refill", refill)
    given = {"type": "SGD", "iter_size": 2, "clip_gradients": 1, "base_lr": 0.001}
    every = Every(False, cuda, names=CORE, rest=DIGITS.replace("Stretched", "AbsVal"), **given)
    every.settings["engine"] = engine
    mine, theirs = both(cuda, every, 3)
    assert mine == theirs
    assert sum(map(len, compiled)) > 200


def test_which_nets_compute_nothing_unasked(cuda):
    def net(line, **settings):
        text = "layers: [{name: x, type: Input, shape: {dim: [2, 3, 4, 4]}}, LINE]"
        return Net(parse(text.replace("LINE", line)), "TEST", device=cuda, **settings)

    assert only_asks(net("{name: y, type: ReLU, bottom: x}"))
    assert not only_asks(net("{name: y, type: ReLU, bottom: x}", dtype="float16"))
    assert not only_asks(net("{name: y, type: DummyData, shape: {dim: 2}}"))
    assert not only_asks(net("{name: y, type: L2Norm, bottom: x}"))


TEXT = """
layers:
  - {name: x, type: Input, shape: {dim: [4, 8]}}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: {type: constant, value: 0.1}}
"""


@pytest.mark.parametrize("waits", [False, True])
def test_a_pass_that_fails_leaves_no_launch_waiting(cuda, compiled, waits):
    net = Net(parse(TEXT), "TEST", device=cuda)
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    real, net.layers["ip"].forward = net.layers["ip"].forward, raises
    with ahead.allowed(cuda) if waits else contextlib.nullcontext():
        with pytest.raises(DataError, match="in the midst"):
            net.forward(x=x)
        net.layers["ip"].forward = real
        for turn in range(4):
            y = net.device.to_host(net.forward(x=x * turn)["ip"])
            np.testing.assert_allclose(
                y, np.tile(0.1 * turn * x.sum(axis=1)[:, None], 3), rtol=1e-5
            )
    assert bool(compiled) is waits and net.passes.nodes


def raises(*_):
    raise DataError("in the midst")


def test_kernels_are_compiled_once_by_processes(cuda, monkeypatch):
    """Each notes what it compiled; kernels that do not compile are left to their launch."""
    if hasattr(cuda.xp, "is_stand_in"):
        path = [str(Path(__file__).parents[2] / "tools" / "standin"), *sys.path]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(ahead, "FEW", 4)
    instances = [("average.cu", kind, 0) for kind in ("float", "double")]
    instances += [("average.cu", "nothing", 0), ("rnn.cu", "float", 0)]
    assert ahead.compile_all(cuda, instances) == 2
    assert [ahead._mark(one).exists() for one in instances] == [True, True, False, True]
    assert ahead.compile_all(cuda, instances) == 0  # of one that is left no process is worth it
