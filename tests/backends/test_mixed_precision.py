"""Training in 16 bits on CUDA, and what is said where it cannot be had."""

import sys

import numpy as np
import pytest
from half_nets import BATCH, BFLOAT16, LENET, TYPES, solver
from kit import Heard
from test_step_memory import EVERY_LAYER, ROOT

from minicaffe import DeviceError, Net, Solver, SpecError, parse
from minicaffe.cli import main
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv.autotune import measure
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.core.solver.update_rules import Update


@TYPES
def test_training_follows_float32(cuda, dtype):
    half, full = (solver(LENET, cuda, BATCH, dtype=kind) for kind in (dtype, "float32"))
    losses = []
    for _ in range(20):
        for one in (half, full):
            one.step(1)
        losses.append((half.loss(), full.loss()))
    types = {blob.data.dtype.name for blob in half.net.blobs.values()}
    assert types == {dtype, "float32"} and half.net.blobs["conv1"].data.dtype.name == dtype
    np.testing.assert_allclose(*np.transpose(losses), rtol=0.005 if dtype == "float16" else 0.02)
    assert losses[-1][0] < losses[0][0] - 0.2
    for name, wanted in full.net.weights().items():
        got = half.net.weights()[name]
        assert got.dtype == np.float32
        apart = np.sqrt(np.mean((got - wanted) ** 2))
        assert apart < (0.03 if dtype == "float16" else 0.1) * np.ptp(wanted)


@TYPES
def test_every_layer_trains_and_a_step_allocates_nothing(few_digits, cuda, dtype):
    few = EVERY_LAYER.replace("batch_size: 100", "batch_size: 10")
    made = Solver(
        parse(few), device=cuda, dtype=dtype, report=Heard(), test_iter=1, test_interval=9
    )
    made.step(2)
    if getattr(cuda.xp, "is_stand_in", False):
        before = cuda.xp.allocations, cuda.xp.synchronizations
        made.step(2)
        assert (cuda.xp.allocations, cuda.xp.synchronizations) == before
    assert int(made.rule.skipped) == 0
    assert np.isfinite(made.loss()) and np.isfinite(made.test()["loss"])
    assert made.test_net.blobs["prob"].data.dtype.name == dtype
    param, shared = made.net.params["ip"][0], made.test_net.params["ip"][0]
    np.testing.assert_array_equal(cuda.to_host(param.data), cuda.to_host(shared.data))


@TYPES
def test_no_engine_is_chosen_that_is_not_exact_enough(cuda, dtype):
    g = ConvGeometry(1, 8, (10, 10), 16, Window((3, 3), pad=(1, 1)))
    kind = Net(parse(LENET), device="cpu", dtype=dtype, shapes_only=True).context.dtype
    case = Case(g, kind, cuda, conv.CAP)
    assert case.tolerance("forward") == 1e-2
    for found in measure(case).values():
        assert found.error[case.fastest(found.ms)] <= 1e-2


def test_on_the_cpu_16_bits_are_an_error(tmp_path, capsys, here):
    with pytest.raises(DeviceError, match=r"^dtype float16 needs CUDA; on cpu \(asked for\)"):
        Net(parse(LENET), device="cpu")
    with pytest.raises(DeviceError, match="dtype float16 needs CUDA"):
        Solver(parse(LENET), device="cpu")
    model = tmp_path / "net.yaml"
    model.write_text(LENET)
    trained = ["train", str(ROOT / "models" / "lenet.yaml"), "--dtype", "float16"]
    for words in (trained, ["time", str(model)], ["explain", str(model)]):
        assert main([*words, "--device", "cpu"]) == 2
        said = capsys.readouterr().err.splitlines()
        assert said[-1].endswith("dtype float16 needs CUDA; on cpu (asked for) choose float32")
    assert not (tmp_path / "runs").exists()
    assert main(["summary", str(model)]) == 0
    assert "phase TRAIN, float16" in capsys.readouterr().out


def test_bfloat16_needs_a_package(cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DeviceError, match="bfloat16 needs the package ml_dtypes: .*pip install"):
        Net(parse(LENET), device=cuda, dtype="bfloat16")


@pytest.mark.parametrize("dtype", [BFLOAT16])
def test_a_cupy_without_bfloat16_is_told(cuda, dtype, monkeypatch):
    def add(one, other):
        raise TypeError(f"add cannot take\n{one.dtype}")

    monkeypatch.setattr(cuda.xp, "add", add)
    said = "dtype bfloat16: CuPy .* cannot compute on cuda:0: add cannot take bfloat16"
    with pytest.raises(DeviceError, match=said):
        Net(parse(LENET), device=cuda, dtype=dtype)


def test_the_key_is_checked():
    for key in ("float8", "float", "16"):
        with pytest.raises(SpecError, match="<text>:2:8: dtype: expected one of"):
            parse(LENET.replace("float16", key))
    with pytest.raises(SpecError, match="loss_scale: expected at least 1"):
        parse(LENET.replace("max_iter: 9", "max_iter: 9, loss_scale: 0.5"))
    assert Net(parse(LENET), device="cpu", dtype="float64").context.dtype == np.float64


def test_float32_knows_nothing_of_it():
    made = solver(LENET, "cpu", BATCH, dtype="float32", loss_scale=512)
    assert isinstance(made.rule, Update) and made.net.loss_scale == 1
    assert all(param.master is None for param in made.net.learnable)
