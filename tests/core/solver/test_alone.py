"""The core computes alone: without loops, kernels and replays, which are found by tables, or not at all."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import minicaffe
from minicaffe import DeviceError
from minicaffe.backends.device import device

CORE = Path(minicaffe.__file__).parent / "core"
TRAIN = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(tuple(f"minicaffe.backends.{room}" for room in ("cpu", "cuda", "replay"))):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
from minicaffe import Solver

settings = {"max_iter": 80, "test_interval": 1000, "test_iter": [4], "snapshot": 0, "best": None, "display": 0}
solver = Solver("lenet", device="cpu", **settings)
solver.step(80)
print(solver.test()["accuracy"])
print(*(name for name in sys.modules if name.startswith("minicaffe.backends.")))
"""


def test_lenet_trains_without_its_backends():
    """On drawn digits; the lines are its accuracy and what was imported of backends."""
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    *_, accuracy, modules = done.stdout.splitlines()
    assert float(accuracy) > 0.7
    assert "minicaffe.backends.dispatch" in modules.split()
    assert not re.search(r"backends\.(cpu|cuda|replay)", modules)


def test_no_file_of_the_core_asks_for_a_device_or_a_loop():
    asked = re.compile(r"on_cuda|\bloops\(")
    assert [path for path in CORE.rglob("*.py") if asked.search(path.read_text("utf-8"))] == []


def test_without_the_backend_for_cuda_the_cpu_computes(monkeypatch):
    monkeypatch.setitem(sys.modules, "minicaffe.backends.cuda.device", None)
    told = "^device cuda: the backend for CUDA cannot be imported: "
    with pytest.raises(DeviceError, match=told):
        device("cuda")
    assert device().name == "cpu"
