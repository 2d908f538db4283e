"""What helps before and after a training: --find-lr, --batch-size, --smoke, runs, completion, patterns, digits."""

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from kit import CPU, refusal

from minicaffe.cli import COMMANDS, find_lr, ranks, runs
from minicaffe.cli.train import Train
from minicaffe.errors import SpecError, pip_install
from minicaffe.tools.training.folder import RunRecord
from minicaffe.tools.visualize.chart import line_chart

TRAIN = ("train", "tiny.yaml", *CPU)
HAS_SHTAB = importlib.util.find_spec("shtab") is not None


def test_the_range_test_suggests_a_rate_and_draws_it(cli, folder):
    before = sorted(path.name for path in folder.iterdir())
    ran = cli(*TRAIN, "--find-lr", "rates.svg")
    assert ran.code == 0, ran.err
    rate = float(re.search(r"suggestion: base_lr (\S+): --set solver.base_lr=\1\n", ran.out)[1])
    assert 1e-5 < rate < 1
    picture = ElementTree.parse(folder / "rates.svg").getroot()
    lines = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2 and len(lines[0].get("points").split()) > 20
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "rates.svg"])


def test_the_range_test_is_the_training_at_those_rates(folder):
    """Each loss is what a solver has that is stepped at the same rates by hand."""
    from minicaffe import Solver, read
    from minicaffe.backends import device as backend

    spec = read("tiny.yaml")
    args = Train()
    args.deterministic = True
    rates, losses = find_lr.losses_of(args, spec, backend.device("cpu"))
    assert np.allclose(rates[1:] / rates[:-1], rates[1] / rates[0])
    rule = f"solver.gamma={float(rates[1] / rates[0])!r}", f"solver.base_lr={float(rates[0])!r}"
    spec = read("tiny.yaml", "solver.lr_policy=exp", *rule)
    solver = Solver(spec, device="cpu", deterministic=True, snapshot_after_train=False)
    for loss in losses[:15]:
        solver.step(1)
        assert float(solver.loss()) == pytest.approx(loss, rel=1e-4)


def test_a_loss_that_never_falls_has_no_suggestion():
    rates = np.array([1e-4, 1e-3, 1e-2])
    assert find_lr.suggestion(rates, np.array([1.0, 1.0, 1.2])) is None
    assert find_lr.suggestion(rates, np.array([1.0, 0.5, 1.2])) == pytest.approx(1e-4)


def test_a_chart_of_one_point_or_a_level_line_is_whole():
    for values in ([1.0], [2.0, 2.0, 2.0]):
        x = [10.0**k for k in range(len(values))]
        text = line_chart(x, {"<a>": values}, "t", "x", mark=1.0)
        assert "nan" not in text and ElementTree.fromstring(text) is not None


@pytest.mark.parametrize("words", [["--smoke"], ["--smoke", "--max-iter", "50", "--run", "runs/x"]])
def test_smoke_tries_everything_and_keeps_nothing(cli, folder, words):
    before = sorted(str(path) for path in folder.rglob("*"))
    ran = cli(*TRAIN, *words)
    assert ran.code == 0, ran.err
    told = [line.removeprefix("smoke: ") for line in ran.err.splitlines() if "smoke: " in line]
    steps = ["train, test, snapshot", "resume", "test", "report"]
    assert told == [*steps, "all of it works; nothing was kept"]
    assert sorted(str(path) for path in folder.rglob("*")) == before


def test_smoke_ends_with_what_failed(cli, folder):
    text = (folder / "tiny.yaml").read_text()
    (folder / "bad.yaml").write_text(text.replace("conv1,", "conv1, bottom: x,"))
    ran = cli("train", "bad.yaml", *CPU, "--smoke")
    assert ran.code == 2 and "bad.yaml:" in ran.err and "Traceback" not in ran.err
    assert ran.last == "minicaffe: --smoke: train, test, snapshot did not succeed"


def test_batch_size_of_any_model(cli, folder):
    for asked, got in (("5", 5), ("auto", 256)):
        ran = cli(*TRAIN, "--batch-size", asked, "--max-iter", "1", "--run", f"runs/{asked}")
        assert ran.code == 0 and f"batch_size: {got}\n" in ran.err
        assert f"batch_size: {got}" in (folder / f"runs/{asked}/model.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--batch-size", "0"), "expected a number or auto, got '0'"),
        (("--batch-size", "many"), "expected a number or auto, got 'many'"),
        (("--size", "5x"), "expected WxH such as 224x224, got '5x'"),
        (("--find-lr", "--smoke"), "not allowed with argument"),
        (("--size", "99"), "--size: goes with --data"),
        (("--resume", "runs/x", "--smoke"), "--smoke: begins a run and resumes it by itself"),
    ],
)
def test_wrong_words_are_one_line(cli, folder, words, told):
    ran = cli("train", "tiny.yaml", *words)
    assert ran.code == 2 and told in ran.err and len(ran.err.splitlines()) == 1


def test_rates_are_a_solvers(mistake, folder):
    (folder / "net.yaml").write_text((folder / "tiny.yaml").read_text().partition("solver:")[0])
    told = mistake("train", "net.yaml", *CPU, "--find-lr")
    assert told == "minicaffe: net.yaml: has no solver to find a rate for"
    infinite = "layers.ip1.weight_filler={type: constant, value: 1e38}"
    told = mistake("train", "tiny.yaml", *CPU, "--find-lr", "--set", infinite)
    assert told == "minicaffe: --find-lr: the first loss is no finite number"


def test_runs_are_listed_with_their_best_scores(cli, folder):
    assert cli("runs").code == 2
    for name, count in (("b", "12"), ("a", "10")):
        assert cli(*TRAIN, "--max-iter", count, "--run", f"runs/{name}").code == 0
    lines = cli("runs").out.splitlines()
    assert lines[0].split()[:2] == ["run", "state"] and len(lines) == 3
    first, second = sorted(lines[1:])  # both may have started in one second
    assert re.match(r"runs/a +finished +10 ", first)
    assert re.match(r"runs/b +finished +12 +accuracy 0\.\d{4} +\d+ +accuracy 0\.\d{4} ", second)
    tests = [{"kind": "test", "iteration": i, "outputs": {"accuracy": 1.0}} for i in (2, 4, 6)]
    saved = {"kind": "snapshot", "iteration": 4, "path": "a_best.npz", "best": True}
    about = {"state": "finished", "started": "2026-01-01", "iteration": 6}
    row = runs.row(RunRecord(folder, about, [*tests, saved]))  # of equal scores, what was kept
    assert row[3:5] == ("accuracy 1.0000", "4")


@pytest.mark.skipif(not HAS_SHTAB, reason="shtab is not installed")
def test_completion_needs_its_extra(mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    told = f"completion needs shtab, which the extra brings: {pip_install('completion')}"
    assert mistake("completion", "bash") == f"minicaffe: {told}"


def test_several_ranks_neither_try_rates_nor_everything(mistake, monkeypatch):
    two = argparse.Namespace(size=2, rank=0)
    monkeypatch.setattr("minicaffe.cli.train.world", lambda: two)
    told = mistake("train", "tiny.yaml", "--smoke")
    assert told == "minicaffe: --smoke: is for one process, not for several ranks"
    told = refusal(find_lr.run, argparse.Namespace(), None, None, two, error=SpecError)
    assert "--find-lr: is for one process, not for several ranks" in told


def test_a_rate_that_ranks_do_not_scale(folder):
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text("{}")
    for each, told in (
        (False, "--scale-lr: goes with --batch-per-rank; without it the batch is the model's"),
        (True, "--scale-lr: the rate that run was begun with is scaled already"),
    ):
        asked = argparse.Namespace(scale_lr=True, batch_per_rank=each, model="run")
        assert told in refusal(ranks.check, asked, argparse.Namespace(size=2), error=SpecError)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_knows_every_command(cli, shell):
    pytest.importorskip("shtab")
    script = cli("completion", shell)
    assert script.code == 0
    for command in COMMANDS:
        assert command in script.out


@pytest.mark.skipif(not HAS_SHTAB, reason="shtab is not installed")
def test_bash_reads_the_script(cli, folder):
    (folder / "complete.sh").write_text(cli("completion", "bash").out)
    script = "source complete.sh; COMP_WORDS=(minicaffe pre); COMP_CWORD=1; _shtab_minicaffe; echo ${COMPREPLY[@]}"
    result = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)
    assert result.stdout.split() == ["predict"], result.stderr


def test_digits_are_answered_without_training(cli, folder):
    """By the weights that come with minicaffe, on drawn digits that they were not trained with."""
    from minicaffe.tools.data import readers

    drawn = readers.open("digits", "test")
    (folder / "new").mkdir()
    for number in range(40):
        np.save(folder / f"new/{number:02d}.npy", drawn[number][0][0])
    ran = cli("predict", "digits", "new/*.npy", *CPU, "--top", "1", "--csv", "answers.csv")
    assert ran.code == 0, ran.err
    answers = [line.split(": ")[1].split()[0] for line in ran.out.splitlines()]
    right = sum(answer == str(drawn[i][1]) for i, answer in enumerate(answers))
    assert len(answers) == 40 and right >= 38
    rows = (folder / "answers.csv").read_text().splitlines()
    assert (len(rows), rows[0]) == (41, "image,class,name,probability")
    assert ran.err.partition("40 pictures: ")[2].splitlines()[0] == ", ".join(
        f"{answer} {answers.count(answer)}" for answer in sorted(set(answers))
    )
    assert "right: " not in ran.err
    ran = cli("predict", "digits", "nothing/*.png", *CPU)
    assert (ran.code, ran.last) == (2, "minicaffe: nothing/*.png: no file fits this pattern")
    shutil.copy("models/digits.yaml", "mine.yaml")
    ran = cli("test", "mine.yaml", "--weights", "digits", *CPU)
    assert ran.code == 0, ran.err
    assert float(re.search(r"accuracy +(\S+)", ran.out)[1]) > 0.95
