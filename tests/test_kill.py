"""A run killed (kill -9) at a random instant goes on to the same bits, with a log that tells each iteration once.

Snapshots are written every 20 iterations, and with --long the run's page at each test, so that many kills fall
into them. The default suite kills a few times; `pytest tests/test_kill.py --long` kills 200 times, and 50
times on a disk that is full now and then (a small tmpfs, which needs root).
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kit import arrays, logged, same_numbers

from minicaffe.tools.data import idx
from minicaffe.tools.training import folder as run_folder

MODEL = """
name: small
layers:
  - {name: data, type: Data, top: [x, label], source: tiny, batch_size: 8, transform: {scale: 0.004, crop_size: 10}}
  - {name: conv, type: Convolution, bottom: x, num_output: 4, kernel_size: 5}
  - {name: drop, type: Dropout, top: conv}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, momentum: 0.9, weight_decay: 0.001, max_iter: 600, snapshot: 20, snapshot_keep: 3,
         display: 50, test_iter: 2, test_interval: 100,
         lr_policy: plateau, gamma: 0.9, patience: 2, plateau: loss, best: {output: loss}, ema_decay: 0.99, warmup_iter: 30}
"""
COMMAND = [sys.executable, "-m", "minicaffe", "train"]
RUN, LAST = Path("runs", "a"), "small_iter_600.npz"
TRAIN = ["small.yaml", "--device", "cpu", "--run", str(RUN), "--quiet"]
TEMPORARY = re.compile(r"\..*\.[a-z0-9_]{8}\.tmp")


def environment() -> dict[str, str]:
    return {**os.environ, "MINICAFFE_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1"}


def prepare(folder: Path, model: str = MODEL) -> Path:
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
    (folder / "small.yaml").write_text(model)
    return folder


def finish(folder: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, env=environment(), capture_output=True, text=True
    )


def final(folder: Path, name: str = LAST) -> dict[str, np.ndarray]:
    return arrays(folder / RUN / name)


def numbers(folder: Path) -> list[dict]:
    """The log's lines of training and tests, but for what time and memory it took."""
    return logged(folder / RUN, "train", "test")


def whole(folder: Path) -> None:
    """Whatever stands under a final name is whole."""
    for path in (folder / RUN).glob("*.npz"):
        with np.load(path, allow_pickle=False) as archive:
            assert all(np.isfinite(archive[name]).all() for name in archive.files)
    if (folder / RUN / "run.json").exists():
        run_folder.read(folder / RUN)
        assert "layers:" in (folder / RUN / "model.yaml").read_text()


def same(straight: Path, broken: Path) -> None:
    for file in (LAST, "small_best.npz"):
        same_numbers(final(broken, file), final(straight, file))
    assert numbers(broken) == numbers(straight)
    assert run_folder.read(broken / RUN).state == "finished"
    kept = [path.name for path in (broken / RUN).iterdir()]
    assert sorted(name for name in kept if "_iter_" in name) == [
        f"small_iter_{n}.npz" for n in (560, 580, 600)
    ]
    assert not [name for name in kept if TEMPORARY.fullmatch(name)]


def killed(folder: Path, words: list[str], seconds: float) -> bool:
    """Train, and kill that after so many seconds; whether it was still at it. A mistake fails the test."""
    run = subprocess.Popen(
        [*COMMAND, *words], cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        _, told = run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        return True
    assert run.returncode in (0, 2) and "Traceback" not in told, told
    return False


def begin_again_where_done(straight: Path, broken: Path, words: list[str]) -> None:
    """If the run is done, see that it is as it should be, and empty its folder."""
    if (broken / RUN / LAST).exists():
        done = finish(broken, *words)  # its last test, at least
        assert done.returncode == 0, done.stderr
        same(straight, broken)
        for path in (broken / RUN).iterdir():
            path.unlink()


@pytest.fixture(scope="module")
def words(request):
    """How the run is begun, and gone on with."""
    return [*TRAIN, "--resume", *["--report"] * request.config.getoption("--long")]


@pytest.fixture(scope="module")
def straight(tmp_path_factory, words):
    """The run as it is where nothing disturbs it."""
    folder = prepare(tmp_path_factory.mktemp("straight"))
    begun = time.monotonic()
    assert finish(folder, *words).returncode == 0
    took = time.monotonic() - begun
    trained = run_folder.read(folder / RUN).lines[-1]["seconds"]
    return folder, took - trained, trained


def test_killed_at_any_instant_it_goes_on_with_the_same_bits(tmp_path, request, straight, words):
    kills = 200 if request.config.getoption("--long") else 3
    broken, (whole_run, begin, trained) = prepare(tmp_path / "broken"), straight
    chance, done, sooner = random.Random(7), 0, 1.0
    while done < kills:
        if killed(broken, words, (begin + trained * chance.random()) * sooner):
            done, sooner = done + 1, 1.0
        else:  # the machine is less busy than when the first one ran
            sooner *= 0.8
        whole(broken)
        begin_again_where_done(whole_run, broken, words)
    assert finish(broken, *words).returncode == 0
    same(whole_run, broken)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 160 KiB, which a few snapshots fill."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(disk)]
    if not hasattr(os, "geteuid") or os.geteuid() or subprocess.run(mount).returncode:
        pytest.skip("a small disk needs root, to mount a tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def room(disk):
    """Bytes that are free on a disk."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def test_a_disk_that_fills_up_costs_nothing_good(tmp_path, small_disk, request, straight):
    broken, (whole_run, begin, trained) = prepare(tmp_path / "broken"), straight
    words = [*TRAIN, "--resume"]
    (broken / "runs").symlink_to(small_disk)
    chance, filler = random.Random(5), small_disk / "filler"  # what else there is on the disk
    for _ in range(50 * request.config.getoption("--long")):
        filler.write_bytes(bytes(min(chance.randrange(60, 130) << 10, room(small_disk))))
        killed(broken, words, begin * 0.9 + trained * chance.random())
        filler.unlink()
        whole(broken)
        begin_again_where_done(whole_run, broken, words)
    filler.write_bytes(bytes(min(112 << 10, room(small_disk))))
    done = finish(broken, *words)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "No space left on device" in done.stderr.splitlines()[-1]
    whole(broken)
    filler.unlink()
    assert list((broken / RUN).glob("*.npz"))
    assert finish(broken, *words).returncode == 0
    same(whole_run, broken)
