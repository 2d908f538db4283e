"""A run killed (kill -9) at a random instant goes on to the same bits, with a log that tells each iteration once.

The default suite kills a few times; `pytest tests/test_kill.py --long` kills 200 times.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from minicaffe.data import idx
from minicaffe.solver import run_folder

MODEL = """
name: small
layers:
  - {name: data, type: Data, top: [x, label], source: tiny, batch_size: 8, transform: {scale: 0.004, crop_size: 10}}
  - {name: conv, type: Convolution, bottom: x, num_output: 4, kernel_size: 5}
  - {name: drop, type: Dropout, top: conv}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, momentum: 0.9, weight_decay: 0.001, max_iter: 1500, snapshot: 20, snapshot_keep: 3,
         display: 50, test_iter: 2, test_interval: 100,
         lr_policy: plateau, gamma: 0.9, patience: 2, plateau: loss, best: {output: loss}, ema_decay: 0.99, warmup_iter: 30}
"""
COMMAND = [sys.executable, "-m", "minicaffe", "train"]
RUN = Path("runs", "a")
TRAIN = ["small.yaml", "--device", "cpu", "--run", str(RUN), "--quiet"]
TEMPORARY = re.compile(r"\..*\.[a-z0-9_]{8}")


def environment() -> dict[str, str]:
    return {**os.environ, "MINICAFFE_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1"}


def prepare(folder: Path) -> Path:
    chance = np.random.default_rng(0)
    (folder / "tiny").mkdir(parents=True)
    for split, count in (("train", 50), ("t10k", 20)):
        idx.write(
            folder / "tiny" / f"{split}-images-idx3-ubyte",
            chance.integers(0, 256, (count, 12, 12), np.uint8),
        )
        idx.write(
            folder / "tiny" / f"{split}-labels-idx1-ubyte",
            chance.integers(0, 10, count).astype(np.uint8),
        )
    (folder / "small.yaml").write_text(MODEL)
    return folder


def finish(folder: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, env=environment(), capture_output=True, text=True
    )


def final(folder: Path, name: str = "iter_1500") -> dict[str, np.ndarray]:
    with np.load(folder / RUN / f"small_{name}.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def numbers(folder: Path) -> list[dict]:
    """The log's lines of training and tests, but for what time and memory it took."""
    lines = run_folder.read(folder / RUN).lines
    clock = ("seconds", "images_per_s", "memory_mib")
    return [
        {key: value for key, value in line.items() if key not in clock}
        for line in lines
        if line["kind"] in ("train", "test")
    ]


def whole(folder: Path) -> None:
    """Whatever stands under a final name is whole."""
    for path in (folder / RUN).glob("*.npz"):
        with np.load(path, allow_pickle=False) as archive:
            assert all(np.isfinite(archive[name]).all() for name in archive.files)
    if (folder / RUN / "run.json").exists():
        run_folder.read(folder / RUN)
        assert "layers:" in (folder / RUN / "model.yaml").read_text() or not list(
            (folder / RUN).glob("*.npz")
        )


def same(straight: Path, broken: Path) -> None:
    for file in ("iter_1500", "best"):
        wanted, got = final(straight, file), final(broken, file)
        assert set(wanted) == set(got)
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)
    assert numbers(broken) == numbers(straight)
    assert run_folder.read(broken / RUN).state == "finished"
    kept = [path.name for path in (broken / RUN).iterdir()]
    assert sorted(name for name in kept if "_iter_" in name) == [
        f"small_iter_{n}.npz" for n in (1460, 1480, 1500)
    ]
    assert not [name for name in kept if TEMPORARY.fullmatch(name)]


def test_killed_at_any_instant_it_goes_on_with_the_same_bits(tmp_path, request):
    kills = 200 if request.config.getoption("--long") else 4
    straight, broken = prepare(tmp_path / "straight"), prepare(tmp_path / "broken")
    begun = time.monotonic()
    assert finish(straight, *TRAIN).returncode == 0
    took = time.monotonic() - begun
    chance, done = random.Random(7), 0
    for _ in range(10 * kills):
        if done == kills:
            break
        run = subprocess.Popen(
            [*COMMAND, *TRAIN, "--resume"], cwd=broken, env=environment(), stderr=subprocess.PIPE
        )
        try:
            run.communicate(timeout=chance.uniform(0.2, 0.9) * took)
        except subprocess.TimeoutExpired:
            os.kill(run.pid, signal.SIGKILL)
            run.communicate()
            done += 1
        else:
            assert run.returncode == 0
        whole(broken)
        if (broken / RUN / "small_iter_1500.npz").exists():
            assert finish(broken, *TRAIN, "--resume").returncode == 0  # its last test, at least
            same(straight, broken)
            for path in (broken / RUN).iterdir():
                path.unlink()
    assert done == kills
    assert finish(broken, *TRAIN, "--resume").returncode == 0
    same(straight, broken)
