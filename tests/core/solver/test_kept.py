"""The run that a Solver keeps by itself: the folder that `minicaffe train` leaves."""

import gc
import json
import os

import numpy as np
import pytest
from kit import logged

from minicaffe.cli import main
from minicaffe.core.solver import Solver
from minicaffe.errors import CheckpointError, DivergedError
from minicaffe.tools.training import folder as run_folder

MODEL = """
name: line
layers:
  - {name: x, type: DummyData, top: [x, y], shape: [{dim: [4, 3]}, {dim: [4, 1]}],
     data_filler: [{type: gaussian, std: 1}, {type: constant, value: 1}]}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 1, weight_filler: {type: xavier}}
  - {name: loss, type: EuclideanLoss, bottom: [ip, y]}
solver: {base_lr: 0.01, max_iter: 6, display: 2, test_iter: 1, test_interval: 3, snapshot: 3}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, here):
    (tmp_path / "line.yaml").write_text(MODEL)


def solver(run="api", **settings) -> Solver:
    return Solver("line.yaml", device="cpu", run=run, **settings)


def state(run="api") -> str:
    return run_folder.read(run).state


def test_the_folder_is_that_of_the_command():
    assert main(["train", "line.yaml", "--device", "cpu", "--run", "cli", "--quiet"]) == 0
    scores = solver().solve()
    assert sorted(os.listdir("api")) == sorted(os.listdir("cli"))
    assert "line_iter_3.npz" in os.listdir("api") and set(scores) == {"loss"}
    assert logged("api") == logged("cli")
    by_api, by_command = (run_folder.about(run) for run in ("api", "cli"))
    assert list(by_api) == list(by_command)
    same = by_api.keys() - {"command", "started", "pid"}
    assert {key: by_api[key] for key in same} == {key: by_command[key] for key in same}
    with open("api/model.yaml") as mine, open("cli/model.yaml") as theirs:
        assert mine.read() == theirs.read()
    assert main(["report", "api", "--device", "cpu"]) == 0
    assert main(["train", "--resume", "api", "--max-iter", "8", "--device", "cpu", "--quiet"]) == 0


def test_without_a_run_there_is_no_folder():
    made = solver(run=None, snapshot=0, snapshot_after_train=False)
    made.solve()
    assert made.run is None and os.listdir() == ["line.yaml"]


def test_steps_are_recorded_and_who_goes_leaves_it_stopped():
    made = solver()
    assert not os.path.exists("api")  # nothing has been done
    made.step(2)
    made.step(2)
    assert state() == "running" and made.run.name == "api"
    with pytest.raises(CheckpointError, match="trains in this folder"):
        solver().step(1)
    del made
    gc.collect()
    assert state() == "stopped" and run_folder.about("api")["iteration"] == 4
    assert [line["iteration"] for line in logged("api", "train")] == [0, 2]


def test_training_beyond_the_end_goes_on_in_it():
    made = solver()
    made.solve()
    assert state() == "finished"
    made.step(1)
    assert state() == "running"
    with pytest.raises(CheckpointError, match="nothing to train"):
        made.solve()


def test_another_run_is_not_written_over_but_gone_on_with():
    solver(max_iter=3).solve()
    before = {name: os.stat(f"api/{name}").st_mtime_ns for name in os.listdir("api")}
    other = solver()
    with pytest.raises(CheckpointError, match="api: holds another run, with snapshots"):
        other.solve()
    before["lock"] = os.stat("api/lock").st_mtime_ns
    assert {name: os.stat(f"api/{name}").st_mtime_ns for name in os.listdir("api")} == before
    other.restore("api")  # its newest snapshot
    assert other.iteration == 3
    other.solve()
    assert state() == "finished" and run_folder.about("api")["resumed"]
    solver("whole").solve()
    kinds = ("train", "test", "snapshot")
    assert logged("api", *kinds) == logged("whole", *kinds)


def test_what_ends_it_is_recorded():
    made = solver(base_lr=1e30)
    with pytest.raises(DivergedError, match="minicaffe replay api shows"):
        made.solve()
    assert state() == "diverged" and os.path.exists("api/diverged.npz")
    assert "iteration" in logged("api")[-1]["text"]


def test_the_log_is_arrays():
    made = solver(run=None, snapshot_after_train=False, snapshot=0)
    assert {name: column.size for name, column in made.log.items()} == dict.fromkeys(
        ("iteration", "loss", "lr", "test_iteration"), 0
    )
    made.solve()
    log = made.log
    assert log["iteration"].tolist() == [0, 2, 4] and log["test_iteration"].tolist() == [0, 3, 6]
    assert log["lr"].tolist() == [0.01] * 3
    assert log["loss"].dtype == np.float64 and np.isfinite(log["loss"]).all()
    assert log["test_loss"][-1] == made.scores["loss"]


def test_the_log_is_that_of_the_folder():
    made = solver()
    made.solve()
    with open("api/log.jsonl") as file:
        train = [line for line in map(json.loads, file) if line["kind"] == "train"]
    for name in ("iteration", "loss", "lr"):
        assert made.log[name].tolist() == [line[name] for line in train]


def test_what_of_a_solver_is_public():
    """What a user of Caffe, Keras or Chainer looks for; all else is inner, and may change."""
    assert {name for name in dir(solver(run=None)) if not name.startswith("_")} == {
        *("net", "test_net", "test_nets", "spec", "rule", "device", "communicator"),
        *("report", "run"),
        *("iteration", "rate", "loss", "norms", "scores", "log", "ended", "stopped", "unsaved"),
        *("fit", "solve", "step", "test", "gradient", "update", "averaged"),
        *("snapshot", "latest_snapshot", "restore"),
        *("iterations", "watch", "judge", "saving", "average", "ranks"),  # its parts
        *("record_folder", "test_due"),
    }


def test_a_solver_that_goes_later_leaves_the_folder_it_had(tmp_path, monkeypatch):
    """Not one of the same name in the folder that the process is in by then."""
    earlier = solver()
    earlier.step(2)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "line.yaml").write_text(MODEL)
    later = solver()
    later.step(4)
    del earlier
    gc.collect()
    assert state() == "running" and state(tmp_path / "api") == "stopped"
