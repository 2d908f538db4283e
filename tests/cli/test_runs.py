"""A run's folder as `train` makes it: where, what is in it, how it goes on, who may train in it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kit import CPU, logged, same_arrays

import minicaffe
from minicaffe.cli import main
from minicaffe.errors import DataError, pip_install
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training import progress
from minicaffe.tools.training.folder import Lock

NET = "net.yaml"


@pytest.fixture
def net(model):
    """tiny.yaml without a place for snapshots, on digits."""
    text = (", snapshot_prefix: tiny", ", snapshot: 5"), ("source: mnist", "source: digits")
    return model(*text, name=NET)


@pytest.fixture
def train(cli, net):
    """Run `train net.yaml` with more words, which must succeed."""

    def run(*words, code=0):
        ran = cli("train", net, *CPU, *words)
        assert ran.code == code, ran
        return ran

    return run


def kinds(path):
    """What happened in a run, and when, but for events."""
    lines = run_folder.read(path).lines
    return [f"{line['kind']} {line['iteration']}" for line in lines if line["kind"] != "event"]


def settings(*keys):
    """Words of the command that set keys of the solver."""
    return [word for key in keys for word in ("--set", f"solver.{key}")]


def numbers(folder):
    """The log without what time and memory it took."""
    return logged(folder, "train", "test")


def test_a_run_gets_a_folder_that_tells_all(train, folder):
    ran = train("--max-iter", "7")
    (path,) = Path("runs").iterdir()
    assert re.fullmatch(r"net-\d{8}-\d{6}", path.name)
    assert f"run: {path}\n" in ran.err
    names = ["lock", "log.jsonl", "model.yaml", "net_iter_5.npz", "net_iter_7.npz", "run.json"]
    assert sorted(file.name for file in path.iterdir()) == names
    record = run_folder.read(path)
    about = record.about
    assert about["command"][1:] == ["train", NET, *CPU, "--max-iter", "7"]
    assert about["versions"]["minicaffe"] == minicaffe.__version__
    assert about["versions"]["numpy"] == np.__version__
    told = {"name": "net", "model": NET, "seed": 1, "state": "finished", "iteration": 7}
    told |= {"dtype": "float32", "pid": os.getpid(), "snapshot_prefix": "net"}
    assert told.items() <= about.items()
    assert minicaffe.read(path).solver.max_iter == 7
    assert kinds(path) == ["test 0", "train 0", "snapshot 5", "train 5", "snapshot 7", "test 7"]
    line = record.of("train")[1]
    assert line["epoch"] == pytest.approx(5 * 20 / 300)
    assert line["loss"] == pytest.approx(line["outputs"]["loss"])
    assert line["lr"] == 0.05 and line["images_per_s"] > 0 and line["memory_mib"] > 10
    seconds = [line["seconds"] for line in record.lines]
    assert seconds == sorted(seconds)
    shown = float(re.search(r"accuracy +(\S+)", ran.out)[1])
    assert record.of("test")[1]["outputs"]["accuracy"] == pytest.approx(shown, abs=1e-4)
    assert [line["path"] for line in record.of("snapshot")] == ["net_iter_5.npz", "net_iter_7.npz"]


def test_two_runs_of_one_second_are_two_folders(folder, monkeypatch):
    from datetime import datetime

    class Noon(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 1, 2, 12, 0, 0)

    monkeypatch.setattr(run_folder, "datetime", Noon)
    names = [run_folder.fresh("net").name for _ in range(3)]
    assert names == [f"net-20260102-120000{more}" for more in ("", "-2", "-3")]


def test_json_is_the_log_and_nothing_else(train):
    ran = train("--json", "--run", "a")
    assert [json.loads(line) for line in ran.out.splitlines()] == run_folder.read("a").lines
    assert ran.err == "device: cpu (asked for)\n"


def test_a_reader_of_json_that_goes_away_ends_no_training(folder, net):
    words = f"train {net} --device cpu --set layers.mnist.source=digits --run a --json"
    script = f'"{sys.executable}" -c "import conf; conf.main()" {words} 2>err | head -n 1; cat err'
    (folder / "conf.py").write_text(
        "import sys\nfrom minicaffe.cli import main as cli\nfrom minicaffe.tools.data import datasets\n"
        "def main():\n    datasets._COUNTS.update(train=300, test=100)\n"
        "    code = cli(sys.argv[1:])\n    print('code', code, file=sys.stderr)\n"
    )
    ran = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=600)
    for told in (
        "stdout: Broken pipe: training goes on without",
        "minicaffe: not all lines could be put on stdout: Broken pipe; the run's log holds them",
        "code 2",
    ):
        assert told in ran.stdout
    assert "Traceback" not in ran.stdout
    assert run_folder.read("a").about["state"] == "finished"


def test_a_folder_that_holds_a_run_is_not_written_over(train, mistake):
    train("--run", "a", "--max-iter", "3")
    before = Path("a/log.jsonl").read_bytes()
    assert mistake("train", NET, *CPU, "--run", "a") == (
        "minicaffe: a: holds another run, with snapshots; go on with that by --resume a, "
        "or choose another folder with --run"
    )
    assert Path("a/log.jsonl").read_bytes() == before
    train("--run", "b", "--max-iter", "0", *settings("snapshot_after_train=false"))
    train("--run", "b", "--max-iter", "3")  # what held no snapshot may begin anew
    assert len(run_folder.read("b").of("test")) == 2
    assert "a: holds another run" in mistake("train", NET, *CPU, "--run", "a", "--resume", "b")


def test_a_run_stopped_goes_on_by_the_command_it_tells(train, cli, interrupt):
    train("--run", "straight")
    interrupt(7)
    ran = train("--run", "a", code=130)
    assert run_folder.read("a").about["state"] == "stopped"
    words = shlex.split(ran.last.partition("to go on: ")[2])
    assert words[1:5] == ["train", NET, "--resume", "a"]
    again = cli(*words[1:])
    assert again.code == 0 and "resumed: a/net_iter_7.npz at iteration 7" in again.err
    same_arrays("straight/net_iter_12.npz", "a/net_iter_12.npz")
    assert numbers("a") == numbers("straight")
    assert run_folder.read("a").about["state"] == "finished"


@pytest.mark.parametrize(
    "how",
    [
        f"{NET} --resume",
        "--resume RUN",
        "RUN --resume",
        f"{NET} --resume RUN/net_iter_5.npz",
        f"{NET} --run RUN --resume",
    ],
)
def test_all_ways_to_go_on_are_one(cli, train, how):
    run = "runs/net-20260101-120000"
    train("--run", run, "--max-iter", "6")
    os.remove(f"{run}/net_iter_6.npz")  # as if it had been killed before
    ran = cli("train", *how.replace("RUN", run).split(), *CPU, "--max-iter", "12")
    assert ran.code == 0 and f"resumed: {run}/net_iter_5.npz at iteration 5" in ran.err, ran
    assert os.listdir("runs") == [os.path.basename(run)]
    names = ["net_iter_10.npz", "net_iter_12.npz", "net_iter_5.npz"]
    assert sorted(file for file in os.listdir(run) if file.endswith("npz")) == names
    first, second = "test 0, train 0, snapshot 5, train 5", "snapshot 10, test 10, train 10"
    assert ", ".join(kinds(run)) == f"{first}, {second}, snapshot 12, test 12"
    record = run_folder.read(run)
    told = [line["text"] for line in record.lines if line["kind"] == "event"]
    assert told[0] == "changed on resume: solver.max_iter: 6 -> 12"
    assert told[-1] == f"resumed: {run}/net_iter_5.npz at iteration 5"
    assert record.about["started"] <= record.about["resumed"]


def test_run_and_resume_begin_where_nothing_is_yet_and_go_on_elsewhere(train, cli):
    ran = train("--run", "a", "--resume", "--max-iter", "3")
    assert "resumed" not in ran.err
    train("--run", "b", "--resume", "a", "--max-iter", "5")
    assert run_folder.read("a").about["iteration"] == 3
    assert {line["iteration"] for line in run_folder.read("b").lines} == {3, 5}
    os.mkdir("else")
    shutil.move("b", "else/b")
    ran = cli("train", "--resume", "else/b", "--max-iter", "14", *CPU)
    assert ran.code == 0 and os.path.exists("else/b/net_iter_14.npz")
    assert run_folder.read("else/b").about["iteration"] == 14
    assert "resumed: a/net_iter_3.npz" in train("--run", "a", "--resume").err


def test_snapshots_elsewhere_are_found_again(train):
    os.mkdir("out")
    train("--run", "a", "--snapshot-prefix", "out/x", "--max-iter", "5")
    assert sorted(os.listdir("out")) == ["x_iter_5.npz"]
    assert run_folder.read("a").about["snapshot_prefix"] == os.path.abspath("out/x")
    assert run_folder.read("a").of("snapshot")[0]["path"] == os.path.abspath("out/x_iter_5.npz")
    assert "snapshot: out/x_iter_12.npz" in train("--resume", "a").err
    train("--resume", "out/x_iter_5.npz", "--run", "a")
    assert len(run_folder.read("a").of("test")) == 3


def test_what_resume_cannot_mean_is_told(mistake, train):
    os.mkdir("empty")
    np.savez("bare.npz", ip__0=np.ones(2))
    for words, told in (
        (["--resume"], "no MODEL: give its file, or --resume RUN, whose folder holds the model"),
        ([NET, "--resume"], "there is no run of net.yaml with a snapshot in runs/, and there is no snapshot net_iter_*.npz"
         " to resume from"),
        ([NET, "--run", "/proc/x"], "/proc/x: the run's folder cannot be made: No such file or directory; choose another with --run"),
        ([NET, "--run", NET], "net.yaml: the run's folder cannot be made: File exists; choose another with --run"),
        (["--resume", "empty"], "empty: is no run's folder: there is no run.json in it"),
        (["--resume", "none.npz"], "none.npz: no such file"),
        (["--resume", "w.caffemodel"], "w.caffemodel: holds weights and no solver's state; try --weights"),
        (["--resume", "w.solverstate"], "w.solverstate: no such file"),
        (["--resume", "bare.npz"], "bare.npz: does not hold its net's text: train MODEL --resume bare.npz"),
        ([NET, "--resume", "empty"], "empty: is no run's folder: there is no run.json in it"),
        ([NET, "--resume", "w.caffemodel"], "w.caffemodel: holds weights and no solver's state; try --weights"),
    ):  # fmt: skip
        assert mistake("train", *words, *CPU) == f"minicaffe: {told}"
    train("--run", "a", "--max-iter", "0", *settings("snapshot_after_train=false"))
    assert mistake("train", NET, *CPU, "--resume", "a") == (
        "minicaffe: a: this run has no snapshot to go on from; begin it anew with --run a"
    )
    assert not os.path.exists("runs")  # nothing that failed has left a folder


def test_a_second_process_is_refused_by_name(train, folder, net):
    train("--run", "a", "--max-iter", "3")
    lock = Lock(Path("a"))
    try:
        words = ["-m", "minicaffe", "train", net, *CPU, "--resume", "a"]
        ran = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    finally:
        lock.release()
    told = rf"minicaffe: a: process {os.getpid()} on \S+, since 20\S+, trains in this folder; choose.*\n"
    assert ran.returncode == 2 and re.fullmatch(told, ran.stderr), ran
    train("--resume", "a")  # it has let go


def test_a_run_of_several_ranks_goes_on_with_another_batch(train):
    train("--run", "a", "--max-iter", "3")
    about = json.loads(Path("a/run.json").read_text())
    Path("a/run.json").write_text(json.dumps({**about, "ranks": 2, "batch": 64}))
    assert "a batch of 20 samples; before it was 64" in train("--resume", "a").err


def test_a_snapshot_brings_its_model_and_its_run(train, cli, folder):
    def resumed(*words):
        ran = cli("train", *CPU, "--resume", *words)
        assert ran.code == 0, ran
        return ran

    train("--run", "a")
    shutil.copy("a/net_iter_5.npz", "kept_iter_5.npz")
    resumed("a/net_iter_5.npz", *settings("snapshot=0", "snapshot_after_train=false"))
    assert run_folder.read("a").newest == Path("a/net_iter_5.npz")  # it has gone on from that
    assert "resumed: a/net_iter_5.npz" in resumed("a").err
    os.remove(NET)
    assert "resumed: kept_iter_5.npz at iteration 5" in resumed("kept_iter_5.npz").err
    (new,) = Path("runs").iterdir()
    assert (new / "kept_iter_12.npz").is_file()
    same_arrays(new / "kept_iter_12.npz", "a/net_iter_12.npz")


def test_a_run_whose_best_alone_is_kept_goes_on_from_that(train, mistake):
    train("--run", "a", *settings("snapshot=0", "snapshot_after_train=false", "best=accuracy"))
    assert mistake("train", NET, *CPU, "--run", "a").startswith("minicaffe: a: holds another run")
    assert "resumed: a/net_best.npz" in train("--resume", "a").err


def test_python_files_of_a_run_must_be_given_again(train, cli, mistake, folder):
    (folder / "own.py").write_text("import os\nos.mkdir('executed')\n")
    train("--run", "a", "--max-iter", "3", "--import", "own.py")
    told = "minicaffe: a: was begun with Python files; give them again: --import own.py"
    os.rmdir("executed")
    assert mistake("train", *CPU, "--resume", "a") == told
    assert not os.path.exists("executed")
    assert cli("train", *CPU, "--resume", "a", "--import", "own.py").code == 0


def test_what_diverged_is_forgotten_by_who_goes_on(train, mistake):
    told = mistake("train", NET, *CPU, "--run", "a", *settings("base_lr=1.0e+30"))
    assert "; minicaffe replay a shows all of it" in told
    assert os.path.exists("a/diverged.npz")
    train("--run", "a")
    assert not os.path.exists("a/diverged.npz")


def test_where_a_run_goes_on_before_it_has_a_snapshot_of_its_own(train, mistake):
    train("--run", "a", "--max-iter", "5")
    told = mistake("train", *CPU, "--resume", "a", "--snapshot-prefix", "a/log.jsonl/x")
    assert told.startswith(
        "minicaffe: snapshot_prefix 'a/log.jsonl/x': 'a/log.jsonl' cannot be made"
    )
    told = "the snapshot is at iteration 5, max_iter is 3; raise it (--max-iter)"
    line = mistake("train", *CPU, "--resume", "a", "--max-iter", "3")
    assert line == f"minicaffe: nothing to train: {told}"
    about = run_folder.read("a").about  # what failed has changed nothing
    assert (about["snapshot_prefix"], about["state"]) == ("net", "finished")
    for _ in range(2):  # as of a process that is killed early, and of a script that tries again
        train("--run", "b", "--resume", "a", *settings("snapshot=0", "snapshot_after_train=false"))
    assert "resumed: a/net_iter_5.npz" in train("--resume", "b").err


def test_a_run_is_converted(train, cli):
    train("--run", "a", "--max-iter", "5", "--set", "solver.best=accuracy")
    assert cli("convert", "a", "w.caffemodel").err.startswith("a/net_best.npz -> w.caffemodel: ")
    assert cli("convert", "a", "again.yaml").code == 0
    assert minicaffe.read("again.yaml").solver.max_iter == 5


def test_strays_of_a_killed_process_are_removed(train, folder):
    os.mkdir("out")
    train("--run", "a", "--snapshot-prefix", "out/x", "--max-iter", "3")
    stray = [
        *("a/.log.jsonl.abcd1234", "a/.run.json.abcd1234", "a/.report.html.x_______"),
        *("out/.x_iter_5.npz.abcd1234", "out/.x_best.npz.abcd1234", "out/.x_iter_5.caffemodel.a1b2c3d4"),
    ]  # fmt: skip
    others = ["out/.y_iter_5.npz.abcd1234", "a/.mine.npz.abcd1234", "a/.bashrc"]
    for name in stray + others:
        Path(name).touch()
    train("--resume", "a")
    assert [name for name in stray + others if os.path.exists(name)] == others


def test_a_folder_of_a_run_is_taken_for_weights(train, cli, mistake):
    train("--run", "a", "--max-iter", "6", "--set", "solver.best=accuracy")
    best = run_folder.read("a").best
    assert best is not None and best.name == "net_best.npz"
    for words in (("test", NET, "--weights", "a"), ("test", "a")):
        ran = cli(*words, *CPU)
        assert ran.code == 0 and "weights: a/net_best.npz: 4 loaded" in ran.err
    os.remove(best)
    assert "weights: a/net_iter_6.npz: 4 loaded" in cli("test", "a", *CPU).err
    os.remove("a/net_iter_6.npz"), os.remove("a/net_iter_5.npz")
    assert mistake("test", "a", *CPU) == "minicaffe: a: this run has no snapshot"


def test_sighup_takes_a_snapshot_and_goes_on(train, monkeypatch):
    def iterated(self, solver):
        if solver.iteration in (3, 8):
            signal.raise_signal(signal.SIGHUP)

    monkeypatch.setattr(progress.Quiet, "iterated", iterated)
    train("--run", "a", "--quiet")
    assert [line["iteration"] for line in run_folder.read("a").of("snapshot")] == [3, 5, 8, 10, 12]


def test_a_second_interrupt_leaves_a_record_and_the_last_snapshot(cli, net, monkeypatch):
    def iterated(self, solver):
        if solver.iteration == 7:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(progress.Lines, "iterated", iterated)
    ran = cli("train", net, *CPU, "--run", "a")
    assert (ran.code, ran.last) == (130, "minicaffe: interrupted")
    assert signal.getsignal(signal.SIGINT) is before
    record = run_folder.read("a")
    assert record.about["state"] == "stopped"
    assert record.lines[-1]["text"] == "stopped at once, without a snapshot"
    assert record.newest == Path("a/net_iter_5.npz")


def test_data_that_goes_leaves_a_snapshot_and_a_clear_line(cli, net, train, monkeypatch):
    from minicaffe.tools.data.layers.data import Data

    train("--run", "straight")
    before = Data.forward

    def forward(self):
        if self.phase == "TRAIN" and self.context.passes == 7:
            raise DataError("digits: cannot be read: Stale file handle")
        return before(self)

    with monkeypatch.context() as for_now:
        for_now.setattr(Data, "forward", forward)
        ran = cli("train", net, *CPU, "--run", "a")
    assert (ran.code, ran.out) == (2, "")
    told = "digits: cannot be read: Stale file handle; stopped at iteration 7, with a snapshot"
    assert ran.last.endswith(told)
    assert run_folder.read("a").about["state"] == "failed"
    train("--resume", "a")
    same_arrays("straight/net_iter_12.npz", "a/net_iter_12.npz")
    assert numbers("a") == numbers("straight")


def test_tensorboard_reads_the_logs_numbers(train):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    train("--run", "a", "--tensorboard", "--max-iter", "5")
    train("--resume", "a", "--tensorboard")
    found, starts = {}, []
    files = Path("a").glob("events.out.tfevents.*")
    for file in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        data = file.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            starts += [event.step] if event.HasField("session_log") else []
            found |= {(one.tag, event.step): one.simple_value for one in event.summary.value}
    record = run_folder.read("a")
    assert starts == [0, 5]
    for line in record.of("train"):
        assert found["train/loss", line["iteration"]] == pytest.approx(line["loss"])
        assert found["train/lr", line["iteration"]] == pytest.approx(0.05)
    for line in record.of("test"):
        accuracy = pytest.approx(line["outputs"]["accuracy"])
        assert found["test/accuracy", line["iteration"]] == accuracy


def test_tensorboard_says_what_it_needs(mistake, net, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    line = mistake("train", net, *CPU, "--tensorboard")
    assert "--tensorboard needs the package tensorboardX (" in line
    assert line.endswith(pip_install("tensorboard"))


def test_a_seed_from_the_command_stays_when_the_run_goes_on(cli, model):
    net = model(("{base_lr", "{random_seed: 3, base_lr"), name=NET)
    assert cli("train", net, *CPU, "--run", "a", "--seed", "5", "--max-iter", "3").code == 0
    assert cli("train", net, *CPU, "--resume", "a", "--max-iter", "5").code == 0
    assert cli("train", "--resume", "a", *CPU).code == 0
    assert run_folder.read("a").about["seed"] == 5


def test_a_folder_of_snapshots_that_goes_is_told_and_nothing_else_is_lost(cli, net, monkeypatch):
    def iterated(self, solver):
        if solver.iteration == 3:
            shutil.rmtree("out")

    os.mkdir("out")
    with monkeypatch.context() as for_now:
        for_now.setattr(progress.Lines, "iterated", iterated)
        ran = cli("train", net, *CPU, "--run", "a", "--snapshot-prefix", "out/x")
    why = "cannot be written: No such file or directory"
    failed = [line for line in ran.err.splitlines() if line.startswith("no snapshot of iteration")]
    assert [line.split()[4] for line in failed] == ["5:", "10:", "12:"]
    told = f"out/x_iter_5.npz: {why}; training goes on, and the next one is tried"
    assert failed[0].endswith(told)
    assert ran.code == 2 and ran.last == f"minicaffe: out/x_iter_12.npz: {why}"
    assert ran.out.startswith("test output")
    record = run_folder.read("a")
    assert [line["iteration"] for line in record.of("train")] == [0, 5, 10]
    assert record.about["state"] == "failed"


def test_ctrl_c_while_a_snapshot_is_written_leaves_nothing_half_done(cli, net, monkeypatch):
    save = np.savez

    def savez(file, **content):
        save(file, **content)
        if content["@iteration"] == 10:
            raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", savez)
    assert cli("train", net, *CPU, "--run", "a").code == 130
    names = ["lock", "log.jsonl", "model.yaml", "net_iter_5.npz", "run.json"]
    assert sorted(os.listdir("a")) == names


def test_a_run_that_ends_its_folder_meanwhile_is_not_written_over(mistake, net, monkeypatch):
    """Between the look whether a folder holds a run and the lock, another process may do all its work."""
    from minicaffe.tools.training import run

    make = run_folder.make

    def made(path):
        make(path)
        if not os.path.exists("a/run.json"):
            shutil.copytree("b", "a", dirs_exist_ok=True)

    assert main(["train", net, *CPU, "--run", "b", "--max-iter", "3", "--quiet"]) == 0
    monkeypatch.setattr(run.run_folder, "make", made)
    assert "a: holds another run, with snapshots" in mistake("train", net, *CPU, "--run", "a")
