"""A run on a disk on which one call after the other fails, and one whose power is cut after each of them.

Whatever fails: what stands under a final name is whole, one line tells of it, and who goes on comes to the same
bits, with nothing temporary left. The default suite tries calls spread over the run; `--long` every call with
every error, and every power cut in all states.
"""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from faults.disk import STATES, Disk, Fault, command, cut, faults_of, noted, signals
from test_kill import RUN, TEMPORARY, numbers, prepare, whole

from minicaffe.tools.training import folder as run_folder

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
LAST = "small_iter_30.npz"


def prepared(folder: Path) -> Path:
    return prepare(folder, MODEL)


def train(folder: Path, faults: dict[int, Fault] | None = None) -> tuple[int, str, Disk]:
    """Begin the run or go on with it."""
    return command(folder, [*WORDS, "--resume"], faults)


def whole_with_its_page(folder: Path) -> None:
    """Whatever stands under a final name is whole."""
    whole(folder)
    page = folder / RUN / "report.html"
    assert not page.exists() or page.read_text("utf-8").rstrip().endswith("</html>")


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
    assert not [path.name for path in broken.rglob(".*") if TEMPORARY.fullmatch(path.name)]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The run where nothing fails, and the calls that it made."""
    folder = prepared(tmp_path_factory.mktemp("straight"))
    code, told, disk = train(folder)
    assert code == 0, told
    return folder, disk


def failed(tmp_path, straight, faults):
    """Have a run's calls fail, then go on without: what must hold whatever failed."""
    folder = prepared(tmp_path / "broken")
    try:
        _, told, _ = train(folder, faults)
        whole_with_its_page(folder)
        assert train(folder)[0] == 0
        same(straight, folder, best="no best snapshot" not in told)
    finally:
        shutil.rmtree(folder)


def test_each_call_fails_in_turn(tmp_path, straight, request):
    folder, disk = straight
    wrong: list[str] = []
    for k, error in faults_of(disk.calls, None if request.config.getoption("--long") else 20):
        with noted(wrong, disk, k, error):
            failed(tmp_path, folder, {k: Fault(error)})
    assert not wrong, "\n".join(wrong)


def test_all_calls_of_a_kind_fail_from_one_on(tmp_path, straight, request):
    """A disk that is full, or can only be read from then on: training ends with what could be kept."""
    folder, disk = straight
    kinds = [(k, error) for k, error in faults_of(disk.calls) if error in ("ENOSPC", "EROFS")]
    wrong: list[str] = []
    for k, error in kinds if request.config.getoption("--long") else kinds[:: len(kinds) // 6]:
        with noted(wrong, disk, k, error):
            failed(tmp_path, folder, {k: Fault(error, lasting=True)})
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
    wrong, long = list[str](), request.config.getoption("--long")
    every = [(k, state) for k in range(len(disk.calls) + 1) for state in STATES]
    for k, state in every if long else every[:: max(1, len(every) // 16)]:
        left = tmp_path / "left"
        left.mkdir()
        with noted(wrong, disk, k, state):
            cut(disk, k, state, left)
            whole_with_its_page(left)
            names = [path.stem for path in (left / RUN).glob("*_iter_*.npz")]
            newest = max((int(name.rpartition("_")[2]) for name in names), default=0)
            assert newest >= kept_at(disk.calls, k), names
            code, told, _ = train(left)
            assert code == 0, told
            same(folder, left)
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
    folder = prepared(tmp_path / "interrupted")
    with signals(0.0005) as count:
        assert train(folder)[0] == 0
    assert count[0] > 100
    same(straight[0], folder)
