"""TF32: products of float32 on tensor cores, where that is asked for, and nowhere else."""

import copy

import numpy as np
import pytest
from half_nets import BATCH, LENET, solver
from kit import Heard

from minicaffe import Net, Solver, SpecError, parse
from minicaffe.backends.device import PRECISIONS
from minicaffe.cli import main
from minicaffe.core.ops.conv import autotune_cache

SINGLE = LENET.replace("dtype: float16", "precision: tf32")
EXACT, PLAIN = (SINGLE.replace("tf32", name) for name in ("highest", "high"))


@pytest.fixture(autouse=True)
def tensor_cores(cuda):
    if not cuda.has_tf32:
        pytest.skip("a GPU without tensor cores for TF32")


def after(model, cuda, steps, **given):
    made = solver(model, cuda, BATCH, **given)
    made.step(steps)
    return made, made.net.weights()


@pytest.mark.parametrize("engine", ["implicit", "batched"])
def test_training_follows_float32(cuda, engine):
    """Not to the bit, and no further than rounding to 10 bits takes it; as a graph the same bits."""
    given = {"engine": engine, "deterministic": True}
    made, mine = after(SINGLE, cuda, 9, **given)
    _, exact = after(EXACT, cuda, 9, **given)
    _, plain = after(SINGLE, cuda, 9, graph=False, **given)
    assert made.device.tf32 and "; float32 by TF32)" in repr(made.device)
    for name, wanted in exact.items():
        assert 0 < abs(mine[name] - wanted).max() < 5e-3 * np.ptp(wanted)
        assert mine[name].tobytes() == plain[name].tobytes()


def test_who_asks_for_it(cuda):
    """A call, else the model, else a device that somebody made; on the CPU it is said that there is none."""
    assert Net(parse(SINGLE), device="cuda").device.tf32
    assert not Net(parse(SINGLE), device="cuda", precision="highest").device.tf32
    assert not Net(parse(EXACT), device="cuda").device.tf32
    assert Net(parse(SINGLE), device=cuda).device.tf32
    assert not Solver(parse(SINGLE), device=cuda, precision="highest", report=Heard()).device.tf32
    assert Net(parse(PLAIN), device=cuda.of_precision("tf32")).device.tf32
    assert Net(parse(EXACT), device=cuda.of_precision("tf32")).device.precision == "highest"
    made = Solver(parse(EXACT), device="cuda", precision="tf32", report=Heard())
    assert made.device.tf32 and made.net.device.tf32
    assert not Solver(parse(EXACT), device=cuda, report=Heard()).device.tf32
    assert copy.deepcopy(Net(parse(SINGLE), device="cuda")).device.tf32
    told = "cpu (asked for; float32 is exact: precision tf32 needs CUDA and an A100 or later)"
    for _ in range(2):  # and once
        cpu = Net(parse(SINGLE), device="cpu").device
        assert repr(Net(parse(SINGLE), device=cpu).device) == told


def test_an_older_gpu_is_exact_and_says_so(cuda, monkeypatch):
    monkeypatch.setattr("minicaffe.backends.cuda.device.capability", lambda number: 75)
    made = Net(parse(SINGLE), device="cuda").device
    assert not made.tf32 and "precision tf32 needs CUDA and an A100 or later" in repr(made)


def test_what_a_run_leaves_behind_is_of_the_precision_that_it_had(cuda, tmp_path, here):
    for model, precision in ((EXACT, "tf32"), (SINGLE, "highest")):
        run = tmp_path / precision
        made = Solver(parse(model), device="cuda", precision=precision, run=run, report=Heard())
        for name, array in BATCH.items():
            cuda.copy_from_host(made.net.blobs[name].data, np.asarray(array, np.float32))
        made.step(1)
        assert Net(run / "model.yaml", device="cuda").device.tf32 == (precision == "tf32")


def test_float64_and_16_bits_are_as_they_were(cuda):
    for dtype in ("float64", "float16"):
        _, mine = after(SINGLE, cuda, 5, dtype=dtype, deterministic=True)
        _, exact = after(EXACT, cuda, 5, dtype=dtype, deterministic=True)
        assert all(mine[name].tobytes() == exact[name].tobytes() for name in mine)


def test_measurements_are_kept_apart(cuda):
    assert len({autotune_cache.path(cuda.of_precision(name)) for name in PRECISIONS}) == 2


def test_the_command_says_it(cuda, tmp_path, capsys, here):
    (tmp_path / "net.yaml").write_text(EXACT)
    assert (
        main(["time", "net.yaml", "--device", "cuda", "--precision", "tf32", "--iterations", "1"])
        == 0
    )
    assert "float32 by TF32" in capsys.readouterr().err
    (tmp_path / "net.yaml").write_text(SINGLE.replace("tf32", "tf23"))
    assert main(["summary", "net.yaml"]) == 2
    said = capsys.readouterr().err
    assert "net.yaml:2:12: precision: expected one of" in said and "tf32" in said


def test_an_unknown_precision_is_an_error(cuda):
    with pytest.raises(
        SpecError, match="precision: expected one of high, highest, tf32, got 'fast'"
    ):
        Net(parse(EXACT), device=cuda, precision="fast")
