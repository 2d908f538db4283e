"""Schedules and stops on the command line: what is told, what the run's log holds, what a resume changes."""

import json

import numpy as np
import pytest

from minicaffe.cli import main

MODEL = """
name: small
layers:
  - {name: data, type: DummyData, top: [x, label], shape: [{dim: [4, 3]}, {dim: [4]}],
     data_filler: [{type: gaussian}, {type: constant, value: 1}]}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 2, weight_filler: xavier}
  - {name: each, type: Accuracy, bottom: [ip, label], include: TEST}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver:
  {base_lr: 0.1, max_iter: 8, test_iter: 1, test_interval: 2, lr_policy: cosine, warmup_iter: 2,
   best: {output: loss, min_delta: 100}, early_stopping: 3, ema_decay: 0.9, random_seed: 5}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, here):
    (tmp_path / "small.yaml").write_text(MODEL)


def train(*words):
    return main(["train", "small.yaml", "--device", "cpu", "--run", "run", *words])


def logged():
    with open("run/log.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_a_run_stops_early_and_goes_on_otherwise(capsys):
    assert train() == 0
    stop = "stopped early at iteration 6: no better loss than"
    assert stop in capsys.readouterr().err
    assert stop in next(one["text"] for one in logged() if one["kind"] == "event")
    bests = [one for one in logged() if one["kind"] == "snapshot" and one["best"]]
    assert [(one["iteration"], one["path"]) for one in bests] == [(0, "small_best.npz")]
    more = ("--set", "solver.early_stopping=9", "--set", "solver.lr_policy=fixed")
    assert main(["train", "--resume", "run", "--device", "cpu", "--max-iter", "12", *more]) == 0
    events = [one["text"] for one in logged() if one["kind"] == "event"]
    told = [text.removeprefix("changed on resume: solver.") for text in events if "->" in text]
    assert told == ["lr_policy: cosine -> fixed", "max_iter: 8 -> 12", "early_stopping: 3 -> 9"]
    assert "lr is 0.1 at iteration 6" in events
    assert logged()[-1]["iteration"] == 12
    with np.load("run/small_iter_12.npz") as archive:
        assert "@training/ip__0" in archive


def test_what_may_not_change_is_one_line(capsys):
    assert train("--max-iter", "2") == 0
    capsys.readouterr()
    wrong = ("--set", "layers.ip.num_output=3", "--set", "solver.type=Adam")
    words = ("--set", "solver.momentum=0.9", "--set", "solver.random_seed=6")
    assert main(["train", "--resume", "run", "--device", "cpu", *wrong, *words]) == 2
    (line,) = [text for text in capsys.readouterr().err.split("\n") if "another run" in text]
    assert line.endswith(
        "small_iter_2.npz: cannot be gone on from, for it is of another run: solver.type: SGD -> Adam; "
        "layers.ip.num_output: 2 -> 3; solver.random_seed: 5 -> 6; to begin anew with its weights: --weights"
    )
    assert main(["test", "small.yaml", "--weights", "run/small_best.npz", "--device", "cpu"]) == 0


def test_an_unknown_output_is_told_at_the_start(capsys):
    assert train("--set", "solver.best.output=los") == 2
    assert capsys.readouterr().err.split("\n")[-2] == (
        "minicaffe: --set solver.best.output: solver: best: no test has an output 'los' (each, loss); "
        "did you mean 'loss'?"
    )
