"""minicaffe on the arrays of the real CuPy, without a GPU: what dry_run finds, case by case.

It runs in a process of its own: in this one `cupy` is the stand-in.
"""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from backends.cuda.test_nvrtc import kept, kernels  # noqa: F401  a fixture
from dry_run.cases import ON_THE_HOST, cases

from minicaffe.core.layers import REGISTRY

TESTS = Path(__file__).parent
WITHOUT_THE_STAND_IN = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS), str(TESTS / "tools")]),
}


@pytest.fixture(scope="session", autouse=True)
def real_cupy():
    if "cupy" not in importlib.metadata.packages_distributions():
        pytest.skip("CuPy is not installed; pip install cupy-cuda12x, which needs no GPU")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C preprocessor to read the kernels' declarations with")


def python(*words: str) -> str:
    """What Python prints, warnings being errors."""
    command = [sys.executable, "-W", "error", *words]
    run = subprocess.run(command, env=WITHOUT_THE_STAND_IN, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


@pytest.fixture(scope="session")
def found(real_cupy):
    """What was found, by case."""
    lines = map(json.loads, python("-m", "dry_run").splitlines())
    return {line.pop("case"): line for line in lines}


@pytest.mark.parametrize("name", cases())
def test_a_step_is_what_it_should_be(found, name):
    """CuPy takes each call; nothing is taken, waited for or copied in secret; two steps are alike."""
    assert found[name]["wrong"] == []


def test_what_scripts_do_is_taken(found):
    assert found["a script"]["wrong"] == []


def test_every_layer_is_walked(found):
    """A layer added to the table of every layer is held to all this, and none may lack there."""
    waits = {name for name, cls in REGISTRY.items() if cls.traits.sizes_vary} | ON_THE_HOST
    assert set(found["all"]["layers"]) >= set(REGISTRY) - waits


@pytest.mark.parametrize("sm", [75, 80, 90])
def test_the_result_file_has_every_kernel(found, kernels, sm):  # noqa: F811
    """Else it is of older sources: examples/benchmarks/kernels.py makes it anew."""
    asked = kernels.with_tiles(map(tuple, found["kernels"]["asked"]), sm)
    every = {name for instance in asked for name in kernels.named(instance)}
    wanted = {name for name in every if "rule_" not in name}  # which other tests have registered
    assert {row["kernel"] for row in kernels.rows_of(kept()) if row["sm"] == sm} == wanted


def test_the_dry_run_sees_what_is_wrong(found):
    """Layers with a fault each: all phases of each are found out, by that fault."""
    faulty = {name: case for name, case in found.items() if case.get("expected")}
    assert len(faulty) == 15
    for name, case in faulty.items():
        for phase in ("TRAIN", "TEST"):
            said = [wrong for wrong in case["wrong"] if wrong.startswith(f"float32, {phase}: ")]
            assert any(case["expected"] in wrong for wrong in said), (name, phase, said)


@pytest.mark.parametrize(("engine", "most"), [("implicit", 36), ("batched", 60), ("caffe", 850)])
def test_a_step_of_lenet_takes_few_operations(found, engine, most):
    """At batch 64, where each costs some 5 us to launch: 131, 268 and 901 before they were counted."""
    counts = found[f"LeNet, {engine}"]["counts"]
    assert counts["in all"] <= most
    # Which images the batch holds, with the rule's numbers; Dropout's key
    assert counts["upload"] == 2


def test_a_replayed_step_of_lenet_is_a_graph_and_what_changes(found):
    """Before it all that changes goes there in one copy, behind it the loss into its window.

    In it gradients are cleared, which takes no kernel.
    """
    told = found["LeNet, implicit"]
    assert told["replayed"] == {"upload": 1, "graph": 1, "copy": 1, "in all": 2}
    assert told["graph"] == {"fill": 1, "kernel": 22}


@pytest.mark.parametrize("engine", ["batched", "caffe"])
def test_a_replayed_step_by_cublas_is_a_graph_too(found, engine):
    told = found[f"LeNet, {engine}"]
    assert told["replayed"] == {"upload": 1, "graph": 1, "copy": 1, "in all": 2}
    assert told["graph"]["product"] > 4


def test_a_replayed_step_of_resnet_takes_five_kernels_a_convolution(found):
    """Forward, normalised with all that follows it, and three back; beside them the 14 that are no convolution's.

    These are of two poolings and the product, forward and back, the loss, what is kept, and the update.
    """
    told = found["ResNet-50, implicit"]
    assert told["replayed"] == {"graph": 1, "copy": 1, "in all": 2}  # its rate stays as it is
    assert told["graph"] == {"fill": 1, "copy": 32, "kernel": 5 * 53 - 1 + 14}


def test_without_a_gpu_the_real_cupy_is_passed_over(real_cupy):
    """Where CuPy finds no driver, no GPU or neither, the CPU is used and the reason said."""
    said = python("-c", "from minicaffe.backends import device; print(repr(device.device()))")
    assert said.startswith(("cpu (CUDA does not work: cuda", "cpu (CuPy cannot", "cuda:0"))
