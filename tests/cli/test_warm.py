"""`minicaffe warm`: afterwards nothing is compiled and nothing measured."""

import os
import subprocess
import sys

import numpy as np
import pytest

import minicaffe
from minicaffe.backends import cpu
from minicaffe.backends.cpu import threads
from minicaffe.core.ops.conv import autotune_cache
from minicaffe.errors import pip_install

NET = """
name: One
layers:
  - {name: x, type: Input, shape: {dim: [1, 1, 30, 30]}}
  - {name: conv, type: Convolution, num_output: 64, kernel_size: 5, weight_filler: msra}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 3, weight_filler: xavier}
  - {name: prob, type: Softmax}
"""
AFTER = """
import minicaffe
net = minicaffe.Net("one.yaml", "TEST", device="cpu", keep=())
for _ in range(5):
    net.forward()
print(net.layers["conv"].plan.reasons["forward"])
"""


@pytest.mark.long
@pytest.mark.skipif(not cpu.available(), reason="needs Numba: loops are compiled")
def test_nothing_is_compiled_or_measured_afterwards(tmp_path):
    (tmp_path / "one.yaml").write_text(NET)
    minicaffe.Net(tmp_path / "one.yaml", "TEST", device="cpu").save(tmp_path / "one.npz")
    np.save(tmp_path / "picture.npy", np.random.default_rng(0).integers(0, 256, (30, 30), np.uint8))
    env = {**os.environ, "MINICAFFE_CACHE": str(tmp_path / "cache")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    predict = ["-m", "minicaffe", "predict", "one.yaml", "picture.npy", "--weights", "one.npz"]
    before = run(*predict)  # NumPy answers sooner than loops are compiled
    why = "takes less than compiling loops first; `minicaffe warm` compiles them for later commands"
    assert f"computed by NumPy, which {why}" in before.stderr
    assert "compiling loops for" not in before.stderr
    warm = run("-m", "minicaffe", "warm", "one.yaml")
    assert "one.yaml: compiled in" in warm.stdout and "compiling loops" in warm.stderr
    after = run("-c", AFTER)
    assert "measured now" not in after.stdout and "compiling" not in after.stderr
    assert "fastest of" in after.stdout
    compiled = run(*predict)
    assert "computed by NumPy" not in compiled.stderr and "compiling" not in compiled.stderr
    assert compiled.stdout == before.stdout and "%" in before.stdout


@pytest.mark.skipif(not cpu.available(), reason="needs Numba: loops are compiled")
def test_threads_that_were_taken_for_numpy_do_not_serve_loops(monkeypatch):
    """Nor the other way round."""
    monkeypatch.setenv(threads.VARIABLE, "2")
    model = minicaffe.parse(NET.replace("[1, 1, 30, 30]", "[4, 1, 64, 64]"))

    def answer() -> np.ndarray:
        net = minicaffe.Net(model, "TEST", device="cpu")
        for name, param in net.named_params.items():
            param.data = np.cos(np.arange(param.data.size)).reshape(param.shape) * len(name) / 99
        return net.forward(x=np.random.default_rng(0).normal(size=(4, 1, 64, 64)))["prob"].copy()

    threads._crew.cache_clear()
    with cpu.by_numpy():
        by_numpy = answer()
    compiled = answer()
    with cpu.by_numpy():
        assert np.array_equal(answer(), by_numpy)
    assert np.allclose(compiled, by_numpy, atol=1e-5)


def test_without_numba_there_is_nothing_to_compile(mistake, monkeypatch):
    monkeypatch.setattr(cpu, "available", lambda: False)
    assert pip_install("cpu") in mistake("warm", "lenet")


def test_a_mistake_is_told_before_all_work(mistake, monkeypatch):
    if not cpu.available():
        pytest.skip("needs Numba")
    monkeypatch.setattr(autotune_cache, "forget", None)
    assert "lenett" in mistake("warm", "lenet", "lenett")
