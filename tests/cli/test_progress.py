"""How training is shown: lines where nobody watches, a bar on a terminal."""

import importlib.util
import os
import re
import sys
from contextlib import redirect_stderr

import numpy as np
import pytest

from minicaffe import errors
from minicaffe.core.net import read
from minicaffe.core.solver import Solver
from minicaffe.tools.training import speed
from minicaffe.tools.training.progress import Bar, Lines, clock, score_table
from minicaffe.tools.training.speed import images_per_iteration

TRAIN = ("train", "tiny.yaml", "--device", "cpu")


@pytest.fixture
def solver(folder):
    return Solver(read("tiny.yaml"), device="cpu")


@pytest.fixture
def now(monkeypatch):
    """[The time in seconds], which tests set."""
    seconds = [0.0]
    monkeypatch.setattr(speed.time, "perf_counter", lambda: seconds[0])
    return seconds


@pytest.mark.parametrize("cloned", [True, False])
def test_numba_is_advised_as_minicaffe_was_installed(solver, capsys, monkeypatch, cloned, tmp_path):
    """By the pip beside this Python, which need not be the first on PATH."""
    own = os.path.join(os.path.dirname(sys.executable), "pip")
    monkeypatch.setattr("shutil.which", lambda name: own if cloned else f"/elsewhere/{name}")
    monkeypatch.setattr(importlib.util, "find_spec", {"numba": None}.get)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "minicaffe/errors.py"))
    (tmp_path / "setup.cfg").touch() if cloned else None
    Lines().begin(solver)
    what = f"pip install -e '{tmp_path}" if cloned else f"{own} install 'minicaffe"
    told = f"by NumPy; Numba trains 1.5 to 3.7 times as fast: {what}[cpu]'\n"
    assert capsys.readouterr().err == told


def test_lines_show_speed_and_time_left(solver, capsys, now, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    lines = Lines()
    lines.begin(solver)
    lines.displayed(0, 2.5, 0.05)
    now[0] = 2.0
    lines.displayed(4, 0.25, 0.05)
    now[0] = 100.0  # a long test
    lines.tested(4, {"accuracy": 0.5, "per_class": np.array([0.25, 1.0])})
    now[0] = 104.0
    lines.displayed(8, 0.125, 0.025)
    lines.end()
    assert capsys.readouterr().err.splitlines() == [
        "iteration 0: loss = 2.5, lr = 0.05",
        "iteration 4: loss = 0.25, lr = 0.05, 2.0 iter/s, 40 images/s, 0:04 left",
        "iteration 4: test accuracy = 0.5000, per_class = 0.2500 1.0000",
        "iteration 8: loss = 0.125, lr = 0.025, 1.0 iter/s, 20 images/s, 0:04 left",
    ]


def test_lines_after_a_resume_count_only_what_was_done(solver, capsys, now):
    solver.iteration = 6
    lines = Lines()
    lines.begin(solver)
    now[0] = 1.0
    lines.displayed(8, 1.0, 0.05)
    assert "2.0 iter/s, 40 images/s, 0:02 left" in capsys.readouterr().err


def test_clock():
    times = [clock(seconds) for seconds in (0, 59.6, 75, 3675, 90000)]
    assert times == ["0:00", "1:00", "1:15", "1:01:15", "25:00:00"]


def test_images_per_iteration_counts_iter_size(model):
    net = model(("max_iter: 12", "max_iter: 12, iter_size: 3"))
    assert images_per_iteration(Solver(read(net), device="cpu")) == 60


def test_score_table_gives_an_array_a_row_an_entry():
    table = score_table({"accuracy": 0.9, "per_class": np.array([0.5, 1.0]), "loss": 12.25})
    assert table.splitlines() == [
        "test output      mean",
        "accuracy       0.9000",
        "per_class[0]   0.5000",
        "per_class[1]   1.0000",
        "loss          12.2500",
    ]


def test_bar_on_a_terminal(folder, terminal, capsys):
    assert terminal.run(*TRAIN) == 0
    text, states = terminal.getvalue(), terminal.states()
    assert re.search(r" 0/12 \[", states[0])
    assert re.search(r"100%.* 12/12 \[", states[-1])
    assert re.search(r"loss=[\d.]+, lr=0\.05, \d+ images/s\]", states[-1])
    assert all(len(state) <= 120 for state in states)
    for line in ("0: test accuracy = ", "snapshot: tiny_iter_12.npz", "12 iterations in "):
        assert line in text
    assert "iteration 5: loss" not in text  # it stands in the bar
    assert "BUILT-IN DRAWN DIGITS" in text
    assert capsys.readouterr().out.startswith("test output")


def test_bar_goes_on_where_a_snapshot_was_taken(folder, terminal):
    assert terminal.run(*TRAIN, "--max-iter", "6") == 0
    terminal.truncate(0)
    terminal.seek(0)
    assert terminal.run(*TRAIN, "--resume") == 0
    assert "resumed: tiny_iter_6.npz at iteration 6" in terminal.getvalue()
    assert re.search(r" 50%.* 6/12 \[", terminal.states()[0])


def test_interrupt_closes_the_bar_and_says_how_to_go_on(folder, terminal, interrupt):
    interrupt(7)
    assert terminal.run(*TRAIN) == 130
    lines = terminal.getvalue().splitlines()
    assert " 7/12 [" in terminal.states()[-1]
    assert lines[-1].startswith("stopped at iteration 7; to go on: ")
    assert "\r" not in lines[-1]


def test_a_mistake_during_training_closes_the_bar(folder, terminal, model):
    net = model(("base_lr: 0.05", "base_lr: 1.0e+30"))
    assert terminal.run("train", net, "--device", "cpu") == 2
    last = terminal.getvalue().split("\n")[-2]
    assert last.startswith("minicaffe: iteration 1: layer 'ip1' (InnerProduct) gives blob ")


@pytest.mark.parametrize("columns", [30, 50, 80])
def test_bar_on_a_narrow_terminal_stays_in_its_line(folder, terminal, columns):
    terminal.columns = columns
    assert terminal.run(*TRAIN) == 0
    assert max(map(len, terminal.states())) <= columns


def test_loss_lr_and_speed_are_whole_in_80_columns(solver, terminal, now):
    terminal.columns = 80
    object.__setattr__(solver.spec, "max_iter", 10000)
    with redirect_stderr(terminal):
        bar = Bar()
        bar.begin(solver)
        bar.bar.update(5000)
        now[0] = 56.0
        bar.displayed(5000, 0.0433631, 0.00964069)
        bar.end()
    assert re.search(r"loss=0\.04336, lr=0\.00964\d*, \d+ images/s\]", terminal.states()[-1])


def test_the_loss_in_the_bar_moves(solver, terminal, now):
    with redirect_stderr(terminal):
        bar = Bar()
        bar.begin(solver)
        for _ in range(3):
            solver.step(1)
            now[0] += 1
            bar.iterated(solver)
    losses = [re.search(r"loss=[\d.]+", state) for state in terminal.states()]
    assert len({loss[0] for loss in losses if loss}) == 3


def test_the_bars_speed_leaves_tests_out(solver, terminal, now):
    """And there is none before there is one."""
    with redirect_stderr(terminal):
        bar = Bar()
        bar.begin(solver)
        bar.displayed(0, 2.5, 0.05)
        assert " 0 images/s" not in terminal.getvalue()
        now[0] = 2.0
        bar.displayed(4, 0.25, 0.05)
        assert "40 images/s" in terminal.states()[-1]
        now[0] = 100.0  # a long test
        bar.tested(4, {"accuracy": 0.5})
        now[0] = 102.0
        bar.displayed(8, 0.25, 0.05)
        bar.end()
    assert "40 images/s" in terminal.states()[-1]


def test_without_a_bar_lines_go_straight_to_stderr(terminal):
    with redirect_stderr(terminal):
        bar = Bar()
        bar.line("before")
        bar.iterated(None)
        bar.displayed(0, 1.0, 0.1)
        bar.end()
        bar.line("after")
    assert terminal.getvalue() == "before\nafter\n"


@pytest.mark.parametrize(("loss", "remarked"), [(2.4, False), (35.6, True)])
def test_a_first_loss_far_from_that_of_a_guess_is_remarked_on(solver, capsys, loss, remarked):
    lines = Lines()
    lines.begin(solver)
    capsys.readouterr()
    for iteration in (0, 4):
        lines.displayed(iteration, loss, 0.1)
    told = f"the first loss is {loss}; a guess has 2.3, the logarithm of the number of classes: are the samples "
    assert (told in capsys.readouterr().err) == remarked
