"""A run on a disk on which one call after the other fails, and one whose power is cut after each of them.

Whatever fails: what stands under a final name is whole, one line tells of it, and who goes on comes to the same
bits, with nothing temporary left. The default suite tries calls spread over the run; `--long` every call with
every error, and every power cut in all states.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from faults.disk import STATES, Disk, Fault, cut, faults_of, signals

from minicaffe.cli import main
from minicaffe.data import idx
from minicaffe.runs import folder as run_folder

MODEL = """
name: small
layers:
  - {name: data, type: Data, top: [x, label], source: tiny, batch_size: 8, transform: {scale: 0.004, crop_size: 10}}
  - {name: drop, type: Dropout, top: x}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.001, momentum: 0.9, weight_decay: 0.001, max_iter: 30, snapshot: 10, snapshot_keep: 2,
         display: 10, test_iter: 2, test_interval: 10, best: {output: loss}, ema_decay: 0.99, random_seed: 3}
"""
WORDS = ["train", "small.yaml", "--device", "cpu", "--run", "runs/a", "--quiet", "--report"]
RUN, LAST = Path("runs", "a"), "small_iter_30.npz"
TEMPORARY = re.compile(r"\..*\.[a-z0-9_]{8}")
CLOCK = ("seconds", "images_per_s", "memory_mib")


def prepare(folder: Path) -> Path:
    chance = np.random.default_rng(0)
    (folder / "tiny").mkdir(parents=True)
    for split, count in (("train", 50), ("t10k", 20)):
        images = chance.integers(0, 256, (count, 12, 12), np.uint8)
        idx.write(folder / "tiny" / f"{split}-images-idx3-ubyte", images)
        labels = chance.integers(0, 10, count).astype(np.uint8)
        idx.write(folder / "tiny" / f"{split}-labels-idx1-ubyte", labels)
    (folder / "small.yaml").write_text(MODEL)
    return folder


def train(folder: Path, faults: dict[int, Fault] | None = None) -> tuple[int, str, Disk]:
    """Begin the run or go on with it: its exit code, what it told, and the calls it made."""
    told, disk = io.StringIO(), Disk(folder, faults or {})
    before = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told), disk:
            code = main([*WORDS, "--resume"])
    finally:
        os.chdir(before)
    return code, told.getvalue(), disk


def whole(folder: Path) -> None:
    """Whatever stands under a final name is whole."""
    for path in (folder / RUN).glob("*.npz"):
        with np.load(path, allow_pickle=False) as archive:
            assert all(np.isfinite(archive[name]).all() for name in archive.files)
    if (folder / RUN / "run.json").exists():
        run_folder.read(folder / RUN)
        assert "layers:" in (folder / RUN / "model.yaml").read_text()
    page = folder / RUN / "report.html"
    assert not page.exists() or page.read_text().rstrip().endswith("</html>")


def numbers(folder: Path) -> list[dict]:
    """The log's lines of training and tests, but for what time and memory it took."""
    lines = run_folder.read(folder / RUN).lines
    rest = [{key: line[key] for key in line if key not in CLOCK} for line in lines]
    return [line for line in rest if line["kind"] in ("train", "test")]


def same(straight: Path, broken: Path, best: bool = True) -> None:
    """That a run came to what the undisturbed one did; the best snapshot, too, unless that was not written."""
    for name in (LAST, "small_best.npz") if best else (LAST,):
        with np.load(straight / RUN / name) as wanted, np.load(broken / RUN / name) as got:
            assert set(wanted.files) == set(got.files)
            for entry in wanted.files:
                if entry.startswith("@best/") and not best:
                    continue  # which tells of the best that was kept
                np.testing.assert_array_equal(got[entry], wanted[entry], err_msg=entry)
    assert numbers(broken) == numbers(straight)
    assert run_folder.read(broken / RUN).state == "finished"
    left = [path.name for path in broken.rglob(".*") if TEMPORARY.fullmatch(path.name)]
    assert not left


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The run where nothing fails, and the calls that it made."""
    folder = prepare(tmp_path_factory.mktemp("straight"))
    code, told, disk = train(folder)
    assert code == 0, told
    return folder, disk


def failed(tmp_path, straight, faults):
    """Have a run's calls fail, then go on without: what must hold whatever failed."""
    folder = prepare(tmp_path / "broken")
    try:
        code, told, disk = train(folder, faults)
        assert code in (0, 2), told
        assert "Traceback" not in told
        lines = [line for line in told.splitlines() if line.startswith("minicaffe: ")]
        assert len(lines) == (code == 2), told
        whole(folder)
        assert train(folder)[0] == 0
        same(straight, folder, best="no best snapshot" not in told)
    finally:
        shutil.rmtree(folder)
    return code, told, disk


def test_each_call_fails_in_turn(tmp_path, straight, request):
    folder, disk = straight
    wrong = []
    for k, error in faults_of(disk.calls, None if request.config.getoption("--long") else 30):
        try:
            failed(tmp_path, folder, {k: Fault(error)})
        except BaseException as problem:
            call = disk.calls[k - 1]
            wrong.append(
                f"{k} {call.kind} {call.path} {error}: {type(problem).__name__} {problem}"[:600]
            )
    assert not wrong, "\n".join(wrong)


def test_all_calls_of_a_kind_fail_from_one_on(tmp_path, straight, request):
    """A disk that is full, or can only be read from then on: training ends with what could be kept."""
    folder, disk = straight
    kinds = [(k, error) for k, error in faults_of(disk.calls) if error in ("ENOSPC", "EROFS")]
    wrong = []
    for k, error in kinds if request.config.getoption("--long") else kinds[:: len(kinds) // 6]:
        try:
            failed(tmp_path, folder, {k: Fault(error, lasting=True)})
        except BaseException as problem:
            call = disk.calls[k - 1]
            wrong.append(
                f"{k} {call.kind} {call.path} {error}: {type(problem).__name__} {problem}"[:600]
            )
    assert not wrong, "\n".join(wrong)


def kept_at(calls, k):
    """The iteration of the newest snapshot that must survive a power cut after the first k calls; 0 for none.

    It is one whose name was flushed.
    """
    newest, named = 0, 0
    for call in calls[:k]:
        if call.kind == "rename" and (found := re.search(r"_iter_([0-9]+)\.npz$", call.path)):
            named = int(found[1])
        elif call.kind == "fsync" and call.args[0] and call.path == str(RUN):
            newest = named
    return newest


def test_the_power_is_cut_after_each_call(tmp_path, straight, request):
    folder, disk = straight
    wrong, long = [], request.config.getoption("--long")
    every = [(k, state) for k in range(len(disk.calls) + 1) for state in STATES]
    for k, state in every if long else every[:: max(1, len(every) // 25)]:
        left = tmp_path / "left"
        left.mkdir()
        try:
            cut(disk, k, state, left)
            whole(left)
            found = [
                int(path.stem.rpartition("_")[2]) for path in (left / RUN).glob("*_iter_*.npz")
            ]
            assert max(found, default=0) >= kept_at(disk.calls, k), f"lost: {found}"
            code, told, _ = train(left)
            assert code == 0, told
            same(folder, left)
        except BaseException as problem:
            call = disk.calls[k - 1]
            wrong.append(
                f"{k} {call.kind} {call.path} {state}: {type(problem).__name__} {problem}"[:600]
            )
        finally:
            shutil.rmtree(left)
    assert not wrong, "\n".join(wrong)


def test_the_model_of_a_power_cut_is_the_disk_where_nothing_is_lost(tmp_path, straight):
    folder, disk = straight
    cut(disk, len(disk.calls), "all", tmp_path)
    for path in folder.rglob("*"):
        if path.is_file():
            assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes(), path
    assert {path.relative_to(folder) for path in folder.rglob("*")} == {
        path.relative_to(tmp_path) for path in tmp_path.rglob("*")
    }


def test_signals_interrupt_every_call(tmp_path, straight):
    folder = prepare(tmp_path / "interrupted")
    with signals(0.0005) as count:
        assert train(folder)[0] == 0
    assert count[0] > 100
    same(straight[0], folder)
