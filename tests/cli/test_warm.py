"""`minicaffe warm`: afterwards nothing is compiled and nothing measured."""

import os
import subprocess
import sys

import pytest

from minicaffe import cpu
from minicaffe.ops.conv import autotune_cache

NET = """
name: One
layers:
  - {name: x, type: Input, shape: {dim: [1, 8, 30, 30]}}
  - {name: conv, type: Convolution, num_output: 16, kernel_size: 3}
  - {name: relu, type: ReLU, top: conv}
"""
AFTER = """
import minicaffe
net = minicaffe.Net("one.yaml", "TEST", device="cpu", keep=())
for _ in range(5):
    net.forward()
print(net.layers["conv"].plan.reasons["forward"])
"""


@pytest.mark.skipif(not cpu.available(), reason="needs Numba: loops are compiled")
def test_nothing_is_compiled_or_measured_afterwards(tmp_path):
    (tmp_path / "one.yaml").write_text(NET)
    env = {**os.environ, "MINICAFFE_CACHE": str(tmp_path / "cache")}
    done = [
        subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        for words in (("-m", "minicaffe", "warm", "one.yaml"), ("-c", AFTER))
    ]
    assert [one.returncode for one in done] == [0, 0], done
    assert "one.yaml: compiled in" in done[0].stdout and "compiling loops" in done[0].stderr
    assert "measured now" not in done[1].stdout and "compiling" not in done[1].stderr
    assert "fastest of" in done[1].stdout


def test_without_numba_there_is_nothing_to_compile(mistake, monkeypatch):
    monkeypatch.setattr(cpu, "available", lambda: False)
    assert "pip install 'minicaffe[cpu]'" in mistake("warm", "lenet")


def test_a_mistake_is_told_before_all_work(mistake, monkeypatch):
    if not cpu.available():
        pytest.skip("needs Numba")
    monkeypatch.setattr(autotune_cache, "forget", None)
    assert "lenett" in mistake("warm", "lenet", "lenett")
