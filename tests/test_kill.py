"""A run killed (kill -9) at a random instant goes on from its last snapshot with the same bits.

The default suite kills a few times; `pytest tests/test_kill.py --long` kills 20 times.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

MODEL = """
name: small
layers:
  - {name: data, type: Data, top: [x, label], source: tiny, batch_size: 8, transform: {scale: 0.004, crop_size: 10}}
  - {name: conv, type: Convolution, bottom: x, num_output: 4, kernel_size: 5}
  - {name: drop, type: Dropout, top: conv}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, momentum: 0.9, weight_decay: 0.001, max_iter: 1500, snapshot: 100, display: 50}
"""
TRAIN = [sys.executable, "-m", "minicaffe", "train", "small.yaml", "--device", "cpu"]


def environment() -> dict[str, str]:
    return {**os.environ, "MINICAFFE_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1"}


def prepare(folder: Path) -> Path:
    from minicaffe.data import idx

    chance = np.random.default_rng(0)
    (folder / "tiny").mkdir(parents=True)
    for split, count in (("train", 50), ("t10k", 10)):
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


def final(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "small_iter_1500.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def test_killed_at_any_instant_it_goes_on_with_the_same_bits(tmp_path, request):
    kills = 20 if request.config.getoption("--long") else 4
    straight, broken = prepare(tmp_path / "straight"), prepare(tmp_path / "broken")
    begun = time.monotonic()
    subprocess.run(TRAIN, cwd=straight, env=environment(), check=True, capture_output=True)
    whole = time.monotonic() - begun
    chance, done = random.Random(7), 0
    for _ in range(10 * kills):
        if done == kills:
            break
        resume = ["--resume"] if list(broken.glob("small_iter_*.npz")) else []
        run = subprocess.Popen(
            [*TRAIN, *resume], cwd=broken, env=environment(), stderr=subprocess.PIPE
        )
        try:
            run.communicate(timeout=chance.uniform(0.2, 0.9) * whole)
        except subprocess.TimeoutExpired:
            os.kill(run.pid, signal.SIGKILL)
            run.communicate()
            done += 1
        else:
            assert run.returncode == 0
        for path in broken.glob("small_iter_*.npz"):  # whatever there is, is whole
            with np.load(path, allow_pickle=False) as archive:
                assert all(np.isfinite(archive[name]).all() for name in archive.files)
        if (broken / "small_iter_1500.npz").exists():
            compare(straight, broken)
            for path in broken.glob("small_iter_*.npz"):
                path.unlink()
    assert done == kills
    resume = ["--resume"] if list(broken.glob("small_iter_*.npz")) else []
    subprocess.run(
        [*TRAIN, *resume], cwd=broken, env=environment(), check=True, capture_output=True
    )
    compare(straight, broken)


def compare(straight: Path, broken: Path) -> None:
    wanted, got = final(straight), final(broken)
    assert set(wanted) == set(got)
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
