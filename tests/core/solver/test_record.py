"""The record of a run: strict JSON, whatever becomes of the disk it is written to."""

import errno
import json
import os
import shutil

import numpy as np
import pytest

from minicaffe import CheckpointError, Solver, parse
from minicaffe.core.solver.report import Mute
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.folder import Lock, LogFile, in_use, json_line
from minicaffe.tools.training.progress import Together
from minicaffe.tools.training.run import Record

NET = """
name: small
layers:
  - {name: data, type: DummyData, top: [x, label], shape: [{dim: [4, 3]}, {dim: [4]}], data_filler: [{type: constant, value: 1}, {type: constant}]}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 2}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
  - {name: large, type: DummyData, shape: {dim: [2000]}}
solver: {base_lr: 0.1, max_iter: 6, display: 1, snapshot: 2, snapshot_prefix: PREFIX}
"""


class Told(Mute):
    """Keeps what failed."""

    def __init__(self):
        self.lines, self.act = [], lambda solver: None

    def failed(self, text):
        self.lines.append(text)

    def iterated(self, solver):
        self.act(solver)


@pytest.fixture
def made(tmp_path):
    """A solver with a record in tmp_path/run."""
    folder, shown = tmp_path / "run", Told()
    folder.mkdir()
    record = Record(shown.failed, [])
    text = NET.replace("PREFIX", str(folder / "small"))
    solver = Solver(parse(text), device="cpu", report=Together(shown, record))
    about = {"name": "small", "snapshot_prefix": "small", "command": [], "imports": []}
    about |= dict.fromkeys(("cwd", "model", "started"), "")
    record.begin(solver, folder, about, "layers: []\n", 5.0, Lock(folder))
    return solver, record, shown, folder


def refuse(monkeypatch, number, on):
    """Have files of the run that are opened or replaced while `on` is not empty fail."""
    import builtins

    before, kept = builtins.open, os.replace

    def opening(path, mode="r", *args, **kwargs):
        if on and str(path).endswith("log.jsonl") and "r" not in mode:
            raise OSError(number, os.strerror(number), str(path))
        return before(path, mode, *args, **kwargs)

    def replacing(a, b):
        if on:
            raise OSError(number, os.strerror(number), str(b))
        kept(a, b)

    monkeypatch.setattr(builtins, "open", opening)
    monkeypatch.setattr(os, "replace", replacing)


def iterations(folder, kind="train"):
    return [line["iteration"] for line in run_folder.read(folder).of(kind)]


def test_what_a_line_tells(made):
    solver, _record, _shown, folder = made
    solver.step(2)
    line = run_folder.read(folder).of("train")[1]
    assert set(line) == {
        *("kind", "iteration", "epoch", "loss", "outputs", "lr", "images_per_s", "seconds"),
        *("memory_mib", "gradient_norm", "weight_norm"),
    }
    assert line["loss"] == line["outputs"]["loss"] and "large" not in line["outputs"]
    assert line["epoch"] is None  # of no data set
    assert line["seconds"] >= 5.0  # those before the resume are added
    weights = solver.net.weights().values()
    norm = np.sqrt(sum(float(np.square(array.astype(np.float64)).sum()) for array in weights))
    assert line["weight_norm"] == pytest.approx(norm, rel=1e-5)
    assert line["gradient_norm"] > 0


def test_strict_json_of_any_number():
    line = json_line(
        {"a": np.float32("nan"), "b": [np.inf, 1], "c": np.arange(2), "d": np.int64(3), 5: True}
    )
    assert json.loads(line, parse_constant=pytest.fail) == {
        "a": None, "b": [None, 1], "c": [0, 1], "d": 3, "5": True
    }  # fmt: skip


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_lines_that_cannot_be_written_are_written_later_and_told_once(made, monkeypatch, number):
    solver, record, shown, folder = made
    on = []
    refuse(monkeypatch, number, on)
    acts = {1: lambda: on.append(1), 5: on.clear}
    shown.act = lambda solver: acts.get(solver.iteration, int)()
    solver.solve()
    record.end("finished")
    assert iterations(folder) == [0, 1, 2, 3, 4, 5]
    why = os.strerror(number)
    log = folder / "log.jsonl"
    assert [line for line in shown.lines if str(log) in line] == [
        f"{log}: cannot be written: {why}; training goes on, and it is tried again with the next line",
        f"{log}: is written again, and lacks nothing",
    ]
    assert iterations(folder, "snapshot") == [6]  # those of 2 and 4 could not be written either
    failed = [line for line in shown.lines if line.startswith("no snapshot of iteration")]
    assert len(failed) == 2 and all(why in line for line in failed)
    texts = [line["text"] for line in run_folder.read(folder).of("event")]
    assert [text for text in texts if text.startswith("no snapshot")] == failed


def test_a_record_that_lacks_lines_at_the_end_says_so(made, monkeypatch):
    solver, record, shown, folder = made
    on = []
    refuse(monkeypatch, errno.ENOSPC, on)
    shown.act = lambda solver: on.append(1)
    with pytest.raises(CheckpointError, match="small_iter_6.npz: cannot be written"):
        solver.solve()
    told = r"the record is not whole: the last \d+ lines of the run's log are lost; .*No space left"
    with pytest.raises(CheckpointError, match=told):
        record.end("finished")
    assert iterations(folder) == [0]


def test_a_folder_that_goes_is_made_again_and_what_is_learnt_is_kept(made):
    solver, record, shown, folder = made
    shown.act = lambda solver: shutil.rmtree(folder) if solver.iteration in (3, 6) else None
    solver.solve()
    record.end("finished")
    assert sorted(path.name for path in folder.iterdir()) == [
        *("lock", "log.jsonl", "model.yaml", "run.json", "small_iter_6.npz")
    ]
    assert in_use(folder)  # the lock went with the folder, and is taken again
    gone = f"{folder}: had gone, and is made again; what was in it is lost"
    assert shown.lines == [gone, gone]
    assert [line["text"] for line in run_folder.read(folder).of("event")] == [gone]
    assert run_folder.read(folder).about["state"] == "finished"


def test_half_a_line_of_a_full_disk_is_taken_back(tmp_path, monkeypatch):
    log = LogFile(tmp_path / "log.jsonl")
    log.add({"a": 1})
    with open(tmp_path / "log.jsonl", "ab") as file:
        file.write(b'{"a": 2')  # what a killed or failed attempt left
    log.add({"a": 2})
    assert (tmp_path / "log.jsonl").read_text() == '{"a": 1}\n{"a": 2}\n'


def test_names_that_are_no_utf8_are_written():
    assert json.loads(json_line({"path": "k\udce4se.npz"})) == {"path": "k\udce4se.npz"}
