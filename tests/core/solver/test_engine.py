"""Nets and solvers under the engines of their convolutions: whose word counts, the same bits, the memory."""

import numpy as np
import pytest
from kit import same_numbers

from minicaffe import Net, ShapeError, Solver, parse
from minicaffe.backends.device import Device
from minicaffe.core.ops.conv import autotune_cache
from minicaffe.core.solver import Report
from minicaffe.tools.data import datasets

MODEL = """
layers:
  - {name: data, type: Data, top: [x, label], source: digits, batch_size: 16, transform: {scale: 0.004, crop_size: 20}}
  - {name: conv, type: Convolution, bottom: x, num_output: 8, kernel_size: 5, engine: ENGINE}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.05, momentum: 0.9, max_iter: 6, test_iter: 1, test_interval: 6, display: 0, snapshot_after_train: false}
"""
NET = """
layers:
  - {name: x, type: Input, shape: {dim: [4, 6, 16, 14]}}
  - {name: conv, type: Convolution, num_output: 8, kernel_size: 3, weight_filler: {type: xavier}}
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch, here, tmp_path):
    """Few drawn digits, and no plans yet."""
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 50, "test": 20})
    folder(monkeypatch, tmp_path / "plans")


def folder(monkeypatch, path):
    """Use this folder of plans, as a new process would."""
    monkeypatch.setenv("MINICAFFE_CACHE", str(path))
    monkeypatch.setattr(autotune_cache, "_known", {})


def solver(own="auto", **options):
    return Solver(parse(MODEL.replace("ENGINE", own)), device="cpu", report=Report(), **options)


def trained(**options):
    s = solver(**options)
    s.solve()
    return s.net.layers["conv"].plan, s.net.weights()


def test_one_plan_is_one_result(monkeypatch, tmp_path):
    plan, weights = trained()
    assert "measured now" in plan.reasons["forward"]
    folder(monkeypatch, tmp_path / "plans")
    again, repeated = trained()
    assert "remembered" in again.reasons["forward"]
    assert again.names == plan.names
    same_numbers(weights, repeated)


def test_deterministic_is_one_result_wherever_plans_are(monkeypatch, tmp_path):
    plan, weights = trained(deterministic=True)
    assert not list((tmp_path / "plans").glob("plans-*"))
    trained()  # what is known here
    folder(monkeypatch, tmp_path / "elsewhere")
    again, repeated = trained(deterministic=True)
    assert (again.names, again.reasons) == (plan.names, plan.reasons)
    same_numbers(weights, repeated)


def test_the_test_net_measures_its_forward_pass_alone():
    s = solver()
    train, test = (net.layers["conv"].plan.reasons.values() for net in (s.net, s.test_net))
    assert ["measured now" in reason for reason in (*train, *test)] == [True] * 4 + [False] * 2


def test_a_layers_own_engine_comes_first():
    for own, expected in (("caffe", "caffe"), ("auto", "batched")):
        s = solver(own, engine="batched")
        for net in (s.net, s.test_net):
            assert set(net.layers["conv"].plan.names.values()) == {expected}


def test_an_engine_that_cannot_names_the_layer():
    wide = MODEL.replace("kernel_size: 5", "kernel_size: 6")
    with pytest.raises(ShapeError, match=r":4:5: layer 'conv' \(Convolution\): engine 'winograd' "
                       r"cannot take this convolution: .*; engines that can: direct, caffe, "):  # fmt: skip
        Solver(parse(wide.replace("ENGINE", "winograd")), device="cpu")
    with pytest.raises(ShapeError, match="layer 'conv'.*engine 'winograd' cannot take"):
        Net(parse(wide.replace("ENGINE", "auto")), device="cpu", engine="winograd")


def test_work_stays_under_the_cap():
    for cap in (2**16, 2**18, 2**28):
        net = Net(parse(NET), device="cpu", workspace_cap=cap)
        assert 0 < net.context.workspace_size * 4 <= cap
    with pytest.raises(ShapeError, match="layer 'conv'.* no engine gets by with 0.0 MiB"):
        Net(parse(NET), device="cpu", workspace_cap=10)


def test_the_work_counts_when_the_memory_is_checked(monkeypatch):
    net = Net(parse(NET), device="cpu", engine="caffe")
    blobs = sum(blob.size for blob in net.blobs.values()) + sum(2 * p.size for p in net.learnable)
    monkeypatch.setattr(Device, "memory", lambda self: 4 * blobs + 1000)
    with pytest.raises(ShapeError, match=r"<text>: the net needs .* MiB; cpu has"):
        Net(parse(NET), device="cpu", engine="caffe")


def test_a_reshape_beyond_the_cap_leaves_the_net_as_it_was():
    net = Net(parse(NET), device="cpu", engine="caffe", workspace_cap=2**18)
    x = np.random.default_rng(0).normal(size=(4, 6, 16, 14))
    (before,) = (y.copy() for y in net.forward(x=x).values())
    with pytest.raises(ShapeError, match="engine 'caffe' needs .*; --workspace raises it"):
        net.reshape(x=(4, 6, 200, 200))
    same_numbers({"conv": before}, net.forward(x=x))
    assert net.context.workspace_size == net.layers["conv"].plan.workspace
    net.reshape(x=(2, 6, 16, 14))
    np.testing.assert_array_equal(net.forward(x=x[:2])["conv"], before[:2])
