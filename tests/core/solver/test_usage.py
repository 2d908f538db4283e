"""Memory that a process uses, as the log tells it; and where the system lacks what Linux has."""

import json
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest

from minicaffe.backends import device as backend
from minicaffe.tools.training.speed import memory_used

SIZE = 32 << 20  # bytes
LACKS = {"macOS": "os.sched_getaffinity mmap.MADV_HUGEPAGE"}
LACKS["Windows"] = (
    f"{LACKS['macOS']} fcntl resource os.sysconf os.register_at_fork os.fork os.getuid"
)
LACKS["Windows"] += " signal.SIGHUP signal.SIGKILL mmap.MAP_PRIVATE mmap.MAP_ANONYMOUS"
NET = """
layers:
  - {name: data, type: DummyData, shape: {dim: [2, 3]}, data_filler: gaussian}
  - {name: ip, type: InnerProduct, num_output: 2}
  - {name: loss, type: EuclideanLoss, bottom: [ip, ip]}
solver: {base_lr: 0.1, max_iter: 2, display: 1}
"""
PROGRAM = """
import builtins, importlib, sys
opened = builtins.open
def open_elsewhere(file, *how, **keys):
    if str(file) in ("/proc/self/statm", "/proc/stat", "/proc/cpuinfo"):
        raise FileNotFoundError(2, "No such file or directory", file)
    return opened(file, *how, **keys)
builtins.open = open_elsewhere
for name in sys.argv[1].split():
    module, _, attribute = name.partition(".")
    if attribute:
        delattr(importlib.import_module(module), attribute)
    else:
        sys.modules[module] = None
from minicaffe.cli import main
sys.exit(main(["train", "net.yaml", "--device", "cpu", "--run", "run"]))
"""


def test_memory_grows_with_what_is_taken():
    """Of the system: NumPy may give an array memory that was let go and is still the process's."""
    cpu = backend.device("cpu")
    before = memory_used(cpu)
    with mmap.mmap(-1, SIZE) as taken:
        taken.write(b"1" * SIZE)
        assert memory_used(cpu) - before >= 0.9 * SIZE


def test_memory_of_a_device_grows_with_what_is_taken(cuda):
    with cuda.current():
        cuda.xp.get_default_memory_pool().free_all_blocks()
        before = memory_used(cuda)
        taken = cuda.xp.ones(SIZE, np.uint8)
        assert memory_used(cuda) - before >= taken.nbytes


@pytest.mark.parametrize("system", LACKS)
def test_training_without_what_only_linux_has(system, tmp_path):
    (tmp_path / "net.yaml").write_text(NET)
    program = [sys.executable, "-c", PROGRAM, LACKS[system]]
    subprocess.run(program, cwd=tmp_path, env={**os.environ, "MINICAFFE_NUMBA": "0"}, check=True)
    lines = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text("utf-8").splitlines())
    taken = [line["memory_mib"] for line in lines if line["kind"] == "train"]
    assert taken[0] is None if system == "Windows" else taken[0] > 10
