"""The page that follows a run: cheap, harmless to the training, and never its end."""

import json

import numpy as np
import pytest

from minicaffe import Solver
from minicaffe.cli import main
from minicaffe.tools.report import make
from minicaffe.tools.report.make import Follower


def run_of(make_run, **about):
    """A folder whose run goes on, and its solver."""
    folder = make_run(state="running", **about)
    return folder, Solver(
        folder / "model.yaml",
        device="cpu",
        deterministic=True,
        snapshot_prefix=str(folder / "small"),
    )


def data_in(folder) -> dict:
    text = (folder / "report.html").read_text("utf-8")
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


def parts(folder) -> dict:
    return {one["id"]: one for one in data_in(folder)["sections"]}


def test_the_page_sees_the_weights_of_now(make_run, monkeypatch):
    monkeypatch.setattr(make, "SHARE", 0)
    folder, solver = run_of(make_run)
    solver.step(3)
    follower, told = Follower(pytest.fail), []
    follower.begin(solver, folder)
    for _ in range(2):
        follower.tested(solver.iteration, {})
        told.append(parts(folder)["filters"]["data"]["image"])
        assert f"iteration {solver.iteration}" in parts(folder)["confusion"]["data"]["text"]
        solver.step(3)
    assert told[0] != told[1]
    assert parts(folder)["layers"]["data"]["rows"][1]["ms"] is None  # not timed while it trains
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "state": "finished"}))
    follower.end()
    assert data_in(folder)["refresh"] is None and parts(folder)["layers"]["data"]["rows"][1]["ms"]


def test_training_is_the_same_with_the_page(make_run):
    folder, first = run_of(make_run)
    second = Solver(folder / "model.yaml", device="cpu", deterministic=True)
    follower = Follower(pytest.fail)
    follower.begin(first, folder)
    for _ in range(3):
        first.step(2)
        follower.tested(first.iteration, {})
    second.step(6)
    weights = first.net.weights(), second.net.weights()
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[1])


def test_what_was_seen_before_stays_where_looking_is_dear(make_run, monkeypatch):
    folder, solver = run_of(make_run)
    solver.step(1)
    follower = Follower(pytest.fail)
    follower.begin(solver, folder)
    monkeypatch.setattr(Follower, "look", lambda *_: pytest.fail("looked again"))
    follower.cost = 1e9
    solver.step(2)
    follower.tested(solver.iteration, {})
    assert "iteration 1" in parts(folder)["confusion"]["data"]["text"]


def test_a_page_that_fails_is_one_line(make_run, monkeypatch):
    folder, solver = run_of(make_run)
    solver.step(1)
    said: list[str] = []
    monkeypatch.setattr(Follower, "look", lambda *_: np.zeros(3).reshape(2))
    follower = Follower(said.append)
    follower.begin(solver, folder)
    (folder / "run.json").unlink()
    follower.end()
    assert len(said) == 2 and all(
        line.startswith("no report of iteration 1: ") and "\n" not in line for line in said
    )


def test_train_writes_the_page(make_run, monkeypatch, capsys):
    """From the command: the log's tests are in the page, which ends with the run; a stop is told."""
    folder = make_run()
    monkeypatch.chdir(folder.parent)
    words = [
        "train",
        str(folder / "model.yaml"),
        "--device",
        "cpu",
        "--report",
        "--set",
        "solver.test_interval=2",
    ]
    assert main([*words, "--run", "new", "--max-iter", "6"]) == 0
    data = data_in(folder.parent / "new")
    assert data["runs"][0]["state"] == "finished" and data["refresh"] is None
    assert data["runs"][0]["test"]["iteration"] == [0, 2, 4, 6] and data["totals"] == [6]
    assert "iteration 6" in parts(folder.parent / "new")["confusion"]["data"]["text"]
    assert main([*words, "--run", "bad", "--max-iter", "6", "--set", "solver.base_lr=1e30"]) == 2
    run = data_in(folder.parent / "bad")["runs"][0]
    assert run["state"] == "diverged" and "minicaffe replay bad" in run["told"]
    capsys.readouterr()
