"""Every command: what it prints when all is well, and one line with exit code 2 for each mistake."""

import errno
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
from kit import CPU, arrays, rows, same_arrays

from minicaffe import __version__
from minicaffe.backends.cpu import threads
from minicaffe.backends.cuda import device as cuda_device
from minicaffe.cli import COMMANDS
from minicaffe.core.net import read as read_model
from minicaffe.core.solver.report import banner

TRAIN = ("train", "tiny.yaml", *CPU)
SWISH = """\
import minicaffe


@minicaffe.register
class SiLU(minicaffe.Layer):
    \"\"\"y = x sigmoid(x).\"\"\"

    steepness: float = 1.0

    def setup(self, x):
        return x

    def forward(self, x):
        self.x, self.s = x, 1 / (1 + self.xp.exp(-self.steepness * x))
        return x * self.s

    def backward(self, dy):
        return dy * (self.s + self.steepness * self.x * self.s * (1 - self.s))
"""
SLOW = """\
name: slow
layers:
  - {name: data, type: Data, top: [x, label], source: noise, batch_size: 64}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 1.0e-7, max_iter: 1000000, display: 10}
"""


@pytest.fixture
def trained(cli, folder):
    """tiny_iter_12.npz"""
    assert cli(*TRAIN).code == 0
    return "tiny_iter_12.npz"


# help


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_lists_every_command(cli, words):
    ran = cli(*words)
    assert (ran.code, ran.err) == (0, "")
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)
    assert max(map(len, ran.out.splitlines())) < 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(cli, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli(command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: minicaffe {command} ")
    assert f"\nexample:\n  minicaffe {command}" in ran.out


def test_version(cli):
    assert cli("--version").out == f"minicaffe {__version__}\n"


# train


def test_train_shows_lines_a_snapshot_and_a_table(cli):
    """Drawn digits are told at the start and beside the accuracy, and not called mnist."""
    ran = cli(*TRAIN)
    lines = ran.err.splitlines()
    assert ran.code == 0
    assert lines[0] == "device: cpu (asked for)"
    shown = [line for line in lines if re.match(r"iteration \d+: loss = ", line)]
    assert [line.split(":")[0] for line in shown] == ["iteration 0", "iteration 5", "iteration 10"]
    numbers = r"loss = [\d.]+, lr = 0.05, [\d.]+ iter/s, \d+ images/s, \d+:\d\d left"
    assert re.fullmatch(f"iteration 5: {numbers}", shown[1])
    tests = [line for line in lines if re.match(r"iteration \d+: test ", line)]
    assert [line.split(":")[0] for line in tests] == ["iteration 0", "iteration 10", "iteration 12"]
    assert "snapshot: tiny_iter_12.npz" in lines
    assert re.fullmatch(r"12 iterations in [\d.]+ s, tests included, on cpu", lines[-3])
    look, use = r"to look at it: (.*minicaffe) report (runs/tiny-\S+)", r"to use it: \1 predict \2"
    assert re.fullmatch(rf"{look}\n{use} PICTURE\.\.\.", "\n".join(lines[-2:]))
    table = ran.out.splitlines()
    assert re.fullmatch(r"test output +mean", table[0])
    assert re.fullmatch(r"accuracy +0\.\d{4}", table[1])
    assert re.fullmatch(r"loss +\d\.\d{4}", table[2])
    assert table[1].split()[1] == re.search(r"accuracy = (\S+),", tests[-1])[1]
    assert len({len(line) for line in table[:3]}) == 1
    assert "images of mnist" not in ran.err
    for told in (ran.err.partition("iteration 0:")[0].splitlines(), table[3:]):
        first, second, last = (line for line in told if line.startswith("!!!"))
        assert max(map(len, (first, second))) == 79 and last == "!" * 79
        assert "!!! BUILT-IN DRAWN DIGITS, NOT MNIST !!!" in first
        assert "Accuracies are not MNIST accuracies" in second
        assert "To get MNIST: minicaffe fetch mnist" in second
    tested = cli("test", "tiny.yaml", "--weights", "tiny_iter_12.npz", *CPU, "--batches", "5")
    assert tested.out == ran.out


def test_data_that_are_asked_for_need_no_warning(cli, folder, model):
    ran = cli("train", model(("source: mnist", "source: digits")), *CPU)
    assert "TRAIN data: 300 images of digits, drawn by minicaffe" in ran.err
    assert "!!!" not in ran.err + ran.out


def test_train_on_own_data_names_its_folder(cli, folder, noise):
    (folder / "noise.yaml").write_text(SLOW)
    ran = cli("train", "noise.yaml", *CPU, "--max-iter", "3")
    assert ran.code == 0
    assert "TRAIN data: 50 images of noise (0.0 MiB)" in ran.err
    assert ran.out == ""  # there is no test, so there is no table
    assert "!!!" not in ran.err


def test_seed_snapshot_prefix_and_no_iteration(cli, folder):
    """With --max-iter 0 a training only tests."""
    ran = cli(*TRAIN, "--max-iter", "0")
    assert ran.code == 0 and "accuracy" in ran.out and "0 iterations in" in ran.err
    (folder / "out").mkdir()
    for prefix, seed in (("out/a", "1"), ("out/b", "1"), ("out/c", "2")):
        assert cli(*TRAIN, "--seed", seed, "--snapshot-prefix", prefix).code == 0
    same_arrays("out/a_iter_12.npz", "out/b_iter_12.npz")
    assert np.any(arrays("out/a_iter_12.npz")["ip1__0"] != arrays("out/c_iter_12.npz")["ip1__0"])


def test_a_model_in_another_folder_snapshots_here(cli, folder):
    (folder / "there").mkdir()
    shutil.move("tiny.yaml", "there/tiny.yaml")
    assert cli("train", "there/tiny.yaml", *CPU).code == 0
    assert (folder / "tiny_iter_12.npz").exists()


# Ctrl-C and going on


def test_interrupt_snapshots_and_the_printed_command_goes_on(cli, folder, interrupt):
    assert cli(*TRAIN, "--snapshot-prefix", "whole").code == 0
    interrupt(7)
    ran = cli(*TRAIN, "--snapshot-prefix", "part one")
    assert ran.code == 130
    assert ran.out == ""
    assert "snapshot: part one_iter_7.npz" in ran.err
    stopped = re.fullmatch(r"stopped at iteration 7; to go on: (.*)", ran.last)
    assert stopped
    words = shlex.split(stopped[1])
    assert words[1:3] == ["train", "tiny.yaml"]
    again = cli(*words[1:])
    assert again.code == 0
    assert "resumed: part one_iter_7.npz at iteration 7" in again.err
    same_arrays("whole_iter_12.npz", "part one_iter_12.npz")


def test_the_printed_command_keeps_every_option_that_matters(cli, folder, model, interrupt):
    (folder / "own layers").mkdir()
    (folder / "own layers" / "swish.py").write_text(SWISH)
    net = model(("type: ReLU", "type: SiLU"), name="swish net.yaml")
    interrupt(3)
    ran = cli("train", net, *CPU, "--max-iter", "9", "--import", "own layers/swish.py",
              "--seed", "5", "--snapshot-prefix", "p", "--lenient")  # fmt: skip
    words = shlex.split(ran.last.split("to go on: ")[1])[1:]
    assert "--lenient" in words and "--seed" not in words  # a prototxt is read again, a seed kept
    again = cli(*words)
    assert again.code == 0
    assert "6 iterations" in again.err
    assert (folder / "p_iter_9.npz").exists()


def test_interrupt_while_data_is_read(cli, monkeypatch):
    from minicaffe.tools.data import datasets

    def load(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "load", load)
    ran = cli(*TRAIN)
    assert (ran.code, ran.last) == (130, "minicaffe: interrupted")


def test_interrupt_at_the_last_iteration_is_no_stop(cli, interrupt):
    interrupt(12)
    ran = cli(*TRAIN)
    assert ran.code == 0 and "stopped" not in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_stops_and_its_command_works_when_pasted(folder, noise, number):
    """Run as `python -m minicaffe` where no `minicaffe` is on the PATH, like README's .venv/bin/minicaffe."""
    (folder / "slow.yaml").write_text(SLOW)
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "minicaffe", "train", "slow.yaml", *CPU]
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
    for line in run.stderr:
        if line.startswith("iteration 10:"):
            break
    run.send_signal(number)
    _, err = run.communicate(timeout=600)
    assert run.returncode == 130
    stopped = re.fullmatch(r"stopped at iteration (\d+); to go on: (.*)", err.splitlines()[-1])
    assert stopped, err
    shell = ["/bin/sh", "-c", f"{stopped[2]} --max-iter {int(stopped[1]) + 2}"]
    done = subprocess.run(shell, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_resume_takes_the_last_snapshot(cli, folder):
    assert cli(*TRAIN, "--max-iter", "4").code == 0
    assert cli(*TRAIN, "--max-iter", "6", "--resume").code == 0
    ran = cli(*TRAIN, "--resume")
    assert "resumed: tiny_iter_6.npz at iteration 6" in ran.err
    assert "6 iterations" in ran.err
    assert cli(*TRAIN, "--snapshot-prefix", "straight").code == 0
    same_arrays("straight_iter_12.npz", "tiny_iter_12.npz")


def test_resume_of_the_newest_is_by_time_as_help_says(cli, folder):
    assert cli(*TRAIN, "--seed", "1").code == 0
    assert cli(*TRAIN, "--seed", "2", "--max-iter", "6").code == 0
    os.utime("tiny_iter_12.npz", (1, 1))
    assert "resumed: tiny_iter_6.npz" in cli(*TRAIN, "--resume").err


def test_resume_mistakes(mistake, cli, folder, model):
    none = mistake(*TRAIN, "--resume")
    assert none == "minicaffe: there is no snapshot tiny_iter_*.npz to resume from"
    assert cli(*TRAIN).code == 0
    whole = arrays("tiny_iter_12.npz")
    np.savez("weights.npz", **{k: v for k, v in whole.items() if not k.startswith("@")})
    Path("cut.npz").write_bytes(Path("tiny_iter_12.npz").read_bytes()[:5000])
    other = model(("num_output: 4", "num_output: 5"))
    for words, told in (
        ("tiny.yaml --resume no.npz", "minicaffe: no.npz: no such file"),
        ("tiny.yaml --resume weights.npz", "weights.npz: has no history for conv1__0"),
        ("tiny.yaml --resume cut.npz", "cut.npz: is not a whole .npz file"),
        (f"{other} --resume tiny_iter_12.npz", "tiny_iter_12.npz: cannot be gone on from"),
        (f"{other} --resume tiny_iter_12.npz", "layers.conv1.num_output: 4 -> 5"),
        ("tiny.yaml --resume --seed 3", "--seed cannot be given with --resume"),
        ("tiny.yaml --resume --weights tiny_iter_12.npz", "not allowed with argument"),
    ):
        assert told in mistake("train", *words.split(), *CPU)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("@iteration", None, ""),
        ("@iteration", np.array([1, 2]), ""),
        ("@iteration", np.array("x"), ""),
        ("@iteration", np.array(-5), ""),
        ("@seed", None, ""),
        ("@losses", None, ""),
        ("@history/conv1__0", np.full((4, 1, 5, 5), "x"), ""),
        ("@history/ip1__1", np.full(10, np.float32("nan")), "numbers that are not finite"),
        ("@history/ip1__1", np.full(10, -np.inf), "numbers that are not finite"),
        ("@history/ip1__1", np.full(10, 1e300), "numbers too large for float32"),
    ],
)
def test_resume_of_a_snapshot_whose_state_is_wrong(mistake, trained, name, value, told):
    state = arrays(trained)
    del state[name]
    np.savez("odd.npz", **state, **({} if value is None else {name: value}))
    line = mistake(*TRAIN, "--resume", "odd.npz")
    assert line.startswith("minicaffe: odd.npz: ")
    assert not told or line == f"minicaffe: odd.npz: entry '{name}' holds {told}"


# weights


def test_test_scores_a_snapshot(cli, trained):
    ran = cli("test", "tiny.yaml", "--weights", trained, *CPU)
    table = ran.out.splitlines()
    assert ran.code == 0
    assert f"weights: {trained}: 4 loaded" in ran.err and "TEST data: " in ran.err
    assert table[0].split() == ["test", "output", "mean"]
    assert "BUILT-IN DRAWN DIGITS" in "\n".join(table[3:])
    assert cli("test", "tiny.yaml", "--weights", trained, *CPU, "--batches", "1").code == 0


def test_weights_of_another_net(cli, mistake, trained, model):
    layers = ("name: ip1", "name: ip9"), ("[ip1", "[ip9")
    other = model(("num_output: 4", "num_output: 5"), *layers)
    line = mistake("test", other, "--weights", trained, *CPU)
    for told in (
        f"{trained}: does not fit net 'Tiny'",
        "; ip9__0, ip9__1 missing (the file has 'ip1')",
        "; ip1__0, ip1__1 unused",
        "conv1__0 (file (4, 1, 5, 5), net (5, 1, 5, 5))",
        "(layer 'conv1': num_output 4 there, 5 here); ",
    ):
        assert told in line
    assert trained in mistake("train", other, *CPU, "--weights", trained, "--max-iter", "1")
    partly = model(*layers, name="partly.yaml")
    ran = cli("train", partly, *CPU, "--weights", trained, "--max-iter", "1")
    told = f"weights: {trained}: 2 loaded; missing: ip9__0, ip9__1; unused: ip1__0, ip1__1"
    assert ran.code == 0 and told in ran.err


@pytest.mark.parametrize("command", ["train", "test"])
def test_files_that_are_no_weights(mistake, folder, command, trained):
    (folder / "empty.npz").touch()
    (folder / "text.npz").write_text("hello")
    damaged = bytearray((folder / trained).read_bytes())
    damaged[damaged.index(b"ip1__0.npy") + 2000] ^= 255
    (folder / "damaged.npz").write_bytes(damaged)
    broken = {k: v for k, v in arrays(trained).items() if not k.startswith("@")}
    np.savez("nan.npz", **broken | {"ip1__0": np.full_like(broken["ip1__0"], np.nan)})
    for name, why in (
        ("no.npz", "no.npz: no such file"),
        ("models", "models: is no run's folder: there is no run.json in it"),
        ("empty.npz", "empty.npz: is not a whole .npz file"),
        ("text.npz", "text.npz: is not a whole .npz file"),
        ("damaged.npz", "damaged.npz: entry 'ip1__0' is damaged"),
        ("nan.npz", "minicaffe: nan.npz: entry 'ip1__0' holds"),
    ):
        assert why in mistake(command, "tiny.yaml", "--weights", name, *CPU)


# words that are wrong


@pytest.mark.parametrize(
    "command, expected",
    [
        *rows("""
        trian | minicaffe: unknown command 'trian'; did you mean 'train'? (see minicaffe --help)
        device_query | minicaffe: unknown command 'device_query'; Caffe's device_query is minicaffe doctor (see minicaffe --help)
        train tiny.yaml -gpu all | minicaffe train: unrecognized arguments: -gpu all; Caffe's -gpu is --device cuda:N; of several, mpiexec -n N (see minicaffe train --help)
        train tiny.yaml --lr 0.1 | minicaffe train: unrecognized arguments: --lr 0.1; --lr is --set solver.base_lr=... (see minicaffe train --help)
        test tiny.yaml --batch-size=8 | minicaffe test: unrecognized arguments: --batch-size; --batch-size is --batch-size, of train (see minicaffe test --help)
        test tiny.yaml --epochs 3 | minicaffe test: unrecognized arguments: --epochs 3; --epochs is --epochs, of train (see minicaffe test --help)
        train tiny.yaml --epochs 0 | minicaffe train: argument --epochs: expected an integer of at least 1, got '0' (see minicaffe train --help)
        train tiny.yaml --epochs 3 --max-iter 5 | minicaffe train: argument --max-iter: not allowed with argument --epochs (see minicaffe train --help)
        train tiny.yaml --set max_iter=3 | minicaffe: --set max_iter: a model has no key 'max_iter'; did you mean 'solver.max_iter'?
        train tiny.yaml --set batch_size=3 | minicaffe: --set batch_size: a model has no key 'batch_size'; did you mean 'layers.mnist.batch_size'?
        train tiny.yaml --set conv1.num_output=3 | minicaffe: --set conv1.num_output: a model has no key 'conv1'; did you mean 'layers.conv1'?
        train tiny.yaml --set solver.lr=3 | minicaffe: --set solver.lr: solver: unknown key 'lr'; did you mean 'base_lr'?
        train tiny.yaml --set layers.conv1.type=MaxPool2d | minicaffe: --set layers.conv1.type: layer 'conv1': unknown type 'MaxPool2d'; did you mean 'Pooling' with pool: MAX?
        predict x.onnx digit.png | minicaffe: x.onnx: is a net in the ONNX format; minicaffe reads models in .yaml and .prototxt
        train | minicaffe: no MODEL: give its file, or --resume RUN, whose folder holds the model
        test | minicaffe test: the following arguments are required: MODEL (see minicaffe test --help)
        train tiny.yaml --max_iter 3 | minicaffe train: unrecognized arguments: --max_iter 3; did you mean '--max-iter'? (see minicaffe train --help)
        test tiny.yaml --weigths x.npz | minicaffe test: unrecognized arguments: --weigths x.npz; did you mean '--weights'? (see minicaffe test --help)
        train tiny.yaml --max-iter -1 | minicaffe train: argument --max-iter: expected an integer of at least 0, got '-1' (see minicaffe train --help)
        train tiny.yaml --max-iter 1e4 | minicaffe train: argument --max-iter: expected an integer of at least 0, got '1e4' (see minicaffe train --help)
        train tiny.yaml --seed x | minicaffe train: argument --seed: expected an integer of at least 0, got 'x' (see minicaffe train --help)
        train tiny.yaml --device gpu | minicaffe: unknown device 'gpu'; expected cpu, cuda or cuda:N
        train tiny.yaml --device cuda:x | minicaffe: unknown device 'cuda:x'; expected cpu, cuda or cuda:N
        train tiny.yaml --device cpu --snapshot-prefix tiny.yaml/x | minicaffe: snapshot_prefix 'tiny.yaml/x': 'tiny.yaml' cannot be made: File exists
        train no.yaml | minicaffe: no.yaml: no such file
        train models | minicaffe: models: is a folder without a model.yaml; expected a model file, a snapshot or the folder of a run
        train tiny.yaml --import no.py | minicaffe: --import no.py: no such file
        train tiny.yaml --import tiny.yaml | minicaffe: --import tiny.yaml: is not a Python file
        test tiny.yaml | minicaffe: tiny.yaml: holds no weights; give them by --weights FILE
        test tiny.yaml --weights x --batches 0 | minicaffe test: argument --batches: expected an integer of at least 1, got '0' (see minicaffe test --help)
        time tiny.yaml --iterations 0 | minicaffe time: argument --iterations: expected an integer of at least 1, got '0' (see minicaffe time --help)
        time tiny.yaml --threads 1025 | minicaffe time: argument --threads: expected an integer from 1 to 1024, got '1025' (see minicaffe time --help)
        layers pooling | minicaffe: there is no layer type 'pooling'; did you mean 'Pooling'?
        schema x | minicaffe schema: unrecognized arguments: x (see minicaffe schema --help)
        fetch minst | minicaffe: cannot fetch 'minst': expected mnist, fashion-mnist, cifar10, or weights by name; did you mean 'mnist'? (minicaffe fetch --list lists them)
        fetch mnist --list | minicaffe: --list goes without NAME, got 'mnist'
        test tiny.yaml --weights bvlc_alexnett | minicaffe: bvlc_alexnett: no such file, and no weights of this name; did you mean 'bvlc_alexnet'? (minicaffe fetch --list lists them)
        train tiny.yaml --scale-lr | minicaffe: --scale-lr: is for several ranks: mpiexec -n N minicaffe train ...
        runs no | minicaffe: no: no such folder; a training makes runs/NAME-DATE
        runs models | minicaffe: models: holds no runs
        convert tiny.yaml a.prototxt --model tiny.yaml | minicaffe: a.prototxt: --model goes with weights, not with a model
        convert-images a b --label-map c | minicaffe: --label-map is of boxes: give --boxes, too
        convert-images a b.npz --boxes | minicaffe: --boxes are written to an LMDB, not to .npz
        convert-images a b --boxes | minicaffe: a: no such list of pictures and their boxes
        doctor x | minicaffe doctor: unrecognized arguments: x (see minicaffe doctor --help)
    """),
        ("train tiny.yaml --iterations=3",
         "minicaffe train: unrecognized arguments: --iterations; Caffe's --iterations is --batches in test,"
         " --iterations in time, --max-iter in train (see minicaffe train --help)"),
        (f"time tiny.yaml --threads {'9' * 5000}",
         f"minicaffe time: argument --threads: expected an integer from 1 to 1024, got '{'9' * 59} (see minicaffe time --help)"),
    ],
    ids=lambda value: value[:60],
)  # fmt: skip
def test_wrong_words(mistake, command, expected):
    assert mistake(*command.split()) == expected


def test_o_says_where_output_goes(cli, folder):
    cli("train", "tiny.yaml", "--device", "cpu", "--max-iter", "1", "--run", "run")
    np.savez("two.npz", images=np.zeros((2, 12, 12), np.uint8), labels=[0, 1])
    for words, written in (
        ("convert tiny.yaml -o tiny.prototxt", "tiny.prototxt"),
        ("convert-images two.npz -o again.npz", "again.npz"),
        ("new small --data two.npz -o new.yaml", "new.yaml"),
        ("draw tiny.yaml -o tiny.svg", "tiny.svg"),
        ("export tiny.yaml --weights run -o tiny.safetensors", "tiny.safetensors"),
        ("export tiny.yaml --weights run -o tiny.onnx", "tiny.onnx"),
        ("import tiny.onnx -o back", "back.prototxt"),
    ):
        ran = cli(*words.split())
        lacks = "needs the package" in ran.err and words[0] in "ei"  # an extra
        assert lacks or (ran.code, os.path.exists(written)) == (0, True), ran.err
    assert read_model("new.yaml").name == "Small"
    assert "--force" in cli("new", "small", "--data", "two.npz", "-o", "new.yaml").last


def test_caffes_flags_are_done(cli):
    made = cli("train", "-solver=tiny.yaml", *CPU, "--max-iter", "1", "--run", "caffes")
    assert made.code == 0
    told = "minicaffe: Caffe's flags are done, as minicaffe train tiny.yaml --device cpu --max-iter 1 --run caffes"
    assert told in made.err.splitlines()
    words = ("--model", "tiny.yaml", "-weights", "tiny_iter_1.npz", "--iterations=2")
    run = cli("test", *words, *CPU)
    assert run.code == 0
    assert "minicaffe test tiny.yaml --weights tiny_iter_1.npz --batches 2 --device cpu" in run.err


def test_cuda_where_there_is_no_cupy(mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    needed = "CuPy is not installed; the extra cuda12 or"
    for driver, told in ((True, needed), (False, "there is no NVIDIA driver")):
        monkeypatch.setattr(cuda_device, "has_driver", lambda driver=driver: driver)
        for name in ("cuda", "cuda:7"):
            assert told in mistake("train", "tiny.yaml", "--device", name)


def test_a_model_that_becomes_too_large_is_not_written(mistake, folder, monkeypatch):
    size = (folder / "tiny.yaml").stat().st_size
    monkeypatch.setattr("minicaffe.core.config.tree.MAX_BYTES", size)
    told = mistake("convert", "tiny.yaml", "tiny.prototxt")
    assert told == "minicaffe: tiny.yaml: becomes larger than 0 MiB"
    assert not (folder / "tiny.prototxt").exists()


def test_weights_that_lack_data_or_layers(mistake, folder):
    (folder / "net.yaml").write_text(
        "layers:\n  - {name: d, type: Data, source: nowhere, batch_size: 2}\n"
        "  - {name: ip1, type: InnerProduct, num_output: 10}\n"
    )
    for name in "ab":
        np.savez(f"{name}.npz", conv1__0=np.ones((4, 1, 5, 5)), conv1__1=np.ones(4))
    told = mistake("convert", "a.npz", "w.caffemodel", "--model", "net.yaml")
    assert "net.yaml:2:5: layer 'd' (Data): " in told
    assert told.endswith("; the deploy net needs no data")
    told = mistake("test", "tiny.yaml", "--device", "cpu", "--weights", "a.npz,b.npz")
    assert told == "minicaffe: a.npz,b.npz: none of them has ip1__0, ip1__1"


# models that are wrong


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("type: ReLU", "type: Relu", ":5:25: layer 'relu1': unknown type 'Relu'; did you mean 'ReLU'?"),
        ("num_output: 10", "num_ouput: 10", ":6:37: layer 'ip1' (InnerProduct): unknown key 'num_ouput'; did you mean 'num_output'?"),
        ("num_output: 10", "num_output: ten", ":6:49: layer 'ip1' (InnerProduct): num_output: expected an integer, got 'ten'"),
        ("bottom: data", "bottom: dat", ":4:46: layer 'conv1' (Convolution): unknown bottom 'dat'; did you mean 'data'?"),
        ("kernel_size: 5", "kernel_size: 50", ":4:5: layer 'conv1' (Convolution): a kernel of extent 50 does not fit an image of 28 padded by 0"),
        ("source: mnist", "source: mnits", "layer 'mnist' (Data): data set 'mnits' not found"),
        ("momentum:", "momentun:", ":9:25: solver: unknown key 'momentun'; did you mean 'momentum'?"),
        ("include: TEST", "include: TSET", "expected one of TRAIN, TEST, got 'TSET'; did you mean 'TEST'?"),
        ("name: ip1", "name: conv1", "layer 'conv1' (InnerProduct): the name is taken by the layer at line 4"),
        ("num_output: 10", "num_output: 5", "is not one of the 5 classes 0..4"),
        ("type: Data,", "type: Data, include: TRAIN,", "bottom 'data' is written by layer 'mnist' at line 3, which takes no part in the phase TEST"),
        ("solver:", "# solver:", "changed.yaml: has no 'solver'; training needs one"),
        ("}\n", "", "changed.yaml:"),
        ("type: ReLU", "type: SiLU", ":5:25: layer 'relu1': unknown type 'SiLU'; see minicaffe layers, or --import FILE"),
    ],
)  # fmt: skip
def test_models_that_are_wrong(mistake, model, old, new, expected):
    line = mistake("train", model((old, new)), *CPU, "--max-iter", "3")
    assert line.startswith("minicaffe: changed.yaml")
    assert expected in line


def test_labels_out_of_range_without_a_test(mistake, model):
    net = model(("num_output: 10", "num_output: 5"), ("test_iter: 5, test_interval: 10, ", ""))
    label = r"changed.yaml:8:5: layer 'loss' \(SoftmaxWithLoss\): label \d is not one of the 5"
    assert re.search(label, mistake("train", net, *CPU))


def test_empty_and_binary_models(mistake, folder):
    (folder / "empty.yaml").touch()
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    told = "minicaffe: empty.yaml:1:1: is empty; expected a mapping with 'name' and 'layers'"
    assert mistake("summary", "empty.yaml") == told
    assert "binary.yaml:1:1: is not UTF-8 text" in mistake("summary", "binary.yaml")


def test_a_loss_that_is_no_number(mistake, folder, model):
    assert re.fullmatch(
        r"minicaffe: iteration \d: layer '\w+' \(\w+\) gives .*; the loss is \S+, lr 1e\+30; what went in: .*"
        r"training has diverged: lower base_lr \(now 1e\+30\) or set clip_gradients; "
        r"minicaffe replay runs/changed-[0-9-]+ shows all of it",
        mistake("train", model(("base_lr: 0.05", "base_lr: 1.0e+30")), *CPU),
    )
    assert [file.name for file in (folder / "runs").rglob("*.npz")] == ["diverged.npz"]


# the disk


@pytest.mark.parametrize("more", [(), ("--quiet",)])
def test_a_full_disk_leaves_the_last_snapshot_whole(cli, folder, trained, monkeypatch, more):
    from minicaffe.storage import checkpoint

    before = (folder / trained).read_bytes()
    save = np.savez

    def savez(file, **content):
        save(file, **dict(list(content.items())[:2]))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint.np, "savez", savez)
    ran = cli(*TRAIN, "--seed", "4", *more)
    assert ran.code == 2
    assert ran.last == f"minicaffe: {trained}: cannot be written: No space left on device"
    assert ran.out.startswith("test output")  # what was learnt is told all the same
    assert ran.err.count("no snapshot of iteration") == 1
    assert (folder / trained).read_bytes() == before
    names = ["models", "runs", "tiny.yaml", trained]
    assert sorted(path.name for path in folder.iterdir()) == names


def test_a_folder_that_cannot_be_written_is_told_before_training(cli, folder, monkeypatch):
    import tempfile

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    ran = cli(*TRAIN)
    assert ran.code == 2 and "iteration 10" not in ran.err and not os.listdir("runs")
    why = r"runs/tiny-\d+-\d+/log.jsonl: cannot be written: Read-only file system"
    assert re.fullmatch(f"minicaffe: {why}", ran.last)


def test_a_reader_that_goes_away(cli, monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", gone)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1, raising=False)
    assert cli("layers").code == 1


def test_no_memory(mistake, monkeypatch):
    from minicaffe.core.net.memory import Memory

    def take(self, graph):
        raise MemoryError

    monkeypatch.setattr(Memory, "take", take)
    assert mistake(*TRAIN) == "minicaffe: out of memory; a smaller batch_size needs less"


# own layers


def test_import_makes_layers_known_to_every_command(cli, folder, model):
    (folder / "swish.py").write_text(SWISH)
    net, own = model(("type: ReLU", "type: SiLU")), ("--import", "swish.py")
    assert cli("train", net, *own, *CPU).code == 0
    assert cli("test", net, *own, *CPU, "--weights", "changed_iter_12.npz").code == 0
    assert cli("time", net, *own, *CPU, "--iterations", "1").code == 0
    assert "SiLU" in cli("summary", net, *own).out
    assert "steepness: a number (default 1.0)" in cli("layers", "SiLU", *own).out
    assert '"SiLU"' in cli("schema", *own).out


def test_an_imported_file_may_be_named_as_a_module_of_pythons(cli, folder, model):
    import random

    (folder / "random.py").write_text(SWISH)
    assert cli("summary", model(("type: ReLU", "type: SiLU")), "--import", "random.py").code == 0
    assert sys.modules["random"] is random


@pytest.mark.parametrize(
    "text, expected",
    [
        ("def f(:\n", "minicaffe: own.py:1: SyntaxError: invalid syntax"),
        ("import no_such_package_at_all\n",
         "minicaffe: own.py:1: ModuleNotFoundError: No module named 'no_such_package_at_all'"),
        ("x = 1\n\ny = x / 0\n", "minicaffe: own.py:3: ZeroDivisionError: division by zero"),
        ("raise ValueError('two\\nlines')\n", "minicaffe: own.py:1: ValueError: two"),
        ("import sys\nsys.exit(5)\n", "minicaffe: own.py:2: SystemExit: 5"),
    ],
)  # fmt: skip
def test_import_of_a_file_that_fails(mistake, folder, text, expected):
    (folder / "own.py").write_text(text)
    line = mistake(*TRAIN, "--import", "own.py")
    assert line.startswith(expected)
    assert line.count("own.py") == 1


@pytest.mark.parametrize("method", ["setup(self, x)", "forward(self, x)", "backward(self, dy)"])
def test_a_mistake_within_an_own_layer_names_layer_and_line(mistake, folder, model, method):
    text = SWISH.replace(f"def {method}:", f"def {method}:\n        nonsense  # noqa")
    (folder / "own.py").write_text(text)
    line = mistake("train", model(("type: ReLU", "type: SiLU")), *CPU, "--import", "own.py")
    assert "changed.yaml:5:5: layer 'relu1' (SiLU)" in line
    assert "NameError: name 'nonsense' is not defined" in line
    assert "own.py:" in line


# the other commands


def test_time(cli):
    ran = cli("time", "tiny.yaml", *CPU, "--iterations", "2")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ran.code == 0
    assert rows[0] == ["layer", "forward", "ms", "backward", "ms", "share", "%"]
    assert [row[0] for row in rows[1:-1]] == ["mnist", "conv1", "relu1", "ip1", "loss", "all"]
    assert rows[-2][-1] == "100.0"
    numbers = np.array([row[1:3] for row in rows[1:-1]], float)
    np.testing.assert_allclose(numbers[:-1].sum(axis=0), numbers[-1], atol=0.004)
    medians = r"medians of 2 passes; forward \+ backward [\d.]+ ms, [\d.]+ iter/s"
    assert re.fullmatch(medians, ran.out.splitlines()[-1])
    phase = cli("time", "tiny.yaml", *CPU, "--iterations", "1", "--phase", "TEST")
    assert "\naccuracy " in phase.out


def test_summary(cli):
    ran = cli("summary", "models/lenet.yaml")
    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert lines[0] == "LeNet, phase TRAIN, float32"
    assert " ".join(lines[1].split()) == "layer type tops parameters multiply-adds column bytes"
    assert "parameters: 431,080 (1.6 MiB)" in lines
    assert "multiply-adds of a forward pass: 146,752,000" in lines
    assert "accuracy scalar" in cli("summary", "models/lenet.yaml", "--phase", "TEST").out


def test_layers(cli):
    from minicaffe.core.layers import REGISTRY

    ran = cli("layers")
    assert ran.code == 0
    lines = [line for line in ran.out.splitlines() if line and "of Caffe's forks" not in line]
    assert sorted(line.split()[0] for line in lines) == sorted(REGISTRY)
    one = cli("layers", "Pooling").out
    assert "  pool: one of MAX, AVE, STOCHASTIC (default MAX). what to take of a window" in one
    assert "keys of every layer:\n  name: text (required)." in one


def test_schema_is_json_and_accepts_models(cli, folder):
    jsonschema = pytest.importorskip("jsonschema")
    yaml = pytest.importorskip("yaml")
    schema = json.loads(cli("schema").out)
    validator = jsonschema.validators.validator_for(schema)(schema)
    for path in (folder / "tiny.yaml", folder / "models" / "lenet.yaml"):
        validator.validate(yaml.safe_load(path.read_text()))


def test_fetch_says_where_the_data_lies(cli, monkeypatch, folder):
    from minicaffe.cli import catalogue

    asked = []

    def fetch(name, where):
        asked.append((name, str(where)))
        return where / name

    monkeypatch.setattr(catalogue, "fetch", fetch)
    assert cli("fetch", "mnist").out == "mnist: data/mnist\n"
    monkeypatch.setenv("MINICAFFE_DATA", "elsewhere")
    assert cli("fetch", "mnist").out == "mnist: elsewhere/mnist\n"
    assert cli("fetch", "fashion-mnist", "--folder", "x").out == "fashion-mnist: x/fashion-mnist\n"
    assert asked[-1] == ("fashion-mnist", "x")


def test_fetch_without_a_network(mistake, monkeypatch):
    import urllib.request
    from urllib.error import URLError

    def urlopen(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    line = mistake("fetch", "mnist")
    assert line.startswith("minicaffe: cannot fetch mnist: train-images-idx3-ubyte.gz: http")
    assert "Name or service not known" in line


def test_doctor(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(cuda_device, "has_driver", lambda: False)
    ran = cli("doctor")
    told = dict(re.split(r"  +", line, maxsplit=1) for line in ran.out.splitlines())
    assert (ran.code, ran.err) == (0, "")
    assert told["minicaffe"] == __version__
    assert told["numpy"] == np.__version__
    assert told["cuda"].startswith("none: there is no NVIDIA driver")
    assert told["cpu threads"].startswith(f"{threads.count()}, ")
    assert told["would use"].startswith("cpu (")
    assert told["mnist"] == "not here; training would fetch it (minicaffe fetch mnist)"


def test_which_pictures_were_tested_is_said(cli, model):
    images = np.random.default_rng(0).integers(0, 9, (50, 1, 8, 8), np.uint8)
    np.savez("set.npz", images=images, labels=np.arange(50) % 2)
    name = model(("source: mnist", "source: set.npz"), ("num_output: 10", "num_output: 2"))
    ran = cli("train", name, "--run", "run")
    share = "20 % of each class that is held out"
    count = [re.search(rf"{phase} data: (\d+) .*{share}", ran.err) for phase in ("TRAIN", "TEST")]
    assert sum(int(found[1]) for found in count) == 50
    assert re.match(r"test output +mean\naccuracy ", ran.out) and "training pictures" not in ran.err
    assert re.match(r"test output +mean\naccuracy ", cli("test", "run").out)
    ran = cli("train", name, "--run", "whole", "--set", "layers.mnist.split=0")
    assert "TEST data: 50 images of set.npz" in ran.err
    told = r"iteration 0: accuracy on the training pictures = .* \(before training\)\n"
    assert re.search(told, ran.err)
    table = r"output +mean\naccuracy on the training pictures "
    assert re.match(table, ran.out) and re.match(table, cli("test", "whole").out)
    about = [json.loads(Path(run, "run.json").read_text())["tests_on"] for run in ("run", "whole")]
    assert about == [[""], [" on the training pictures"]]


def test_a_test_sees_each_picture_once_unless_batches_are_given(cli, model):
    images = np.random.default_rng(2).integers(0, 256, (23, 1, 8, 8), np.uint8)
    labels = np.arange(23) % 2
    np.savez("set.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    more = ("source: mnist", "source: set.npz"), ("num_output: 10", "num_output: 2")
    name = model(*more, ("test_iter: 5, ", ""))
    assert cli("train", name, "--run", "run").code == 0
    found = {}
    for batch in (1, 7, 20, 23):
        out = cli("test", "run", "--set", f"layers.mnist.batch_size={batch}").out
        found[batch] = re.findall(r"\d\.\d{4}", out)
    assert len(set(map(tuple, found.values()))) == 1 and len(found[1]) == 2
    assert re.findall(r"\d\.\d{4}", cli("test", "run", "--batches", "2").out) != found[1]
    log = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    last = [line["outputs"] for line in log if line["kind"] == "test"][-1]
    assert [f"{last[name]:.4f}" for name in ("accuracy", "loss")] == found[1]


def test_epochs_are_as_many_iterations_as_see_the_data_so_often(cli, folder, interrupt):
    ran = cli(*TRAIN, "--epochs", "1", "--run", "one")  # 300 digits in batches of 20
    assert ran.code == 0 and "15 iterations in" in ran.err
    words = "--set", "solver.iter_size=2", "--set", "layers.mnist.batch_size=32"
    assert "10 iterations in" in cli(*TRAIN, "--epochs", "2", "--run", "two", *words).err  # of 9.4
    interrupt(3)
    ran = cli(*TRAIN, "--epochs", "1", "--run", "three")
    again = shlex.split(ran.last.split("to go on: ")[1])
    assert "12 iterations in" in cli(*again[1:]).err
    images = np.random.default_rng(0).integers(0, 9, (50, 1, 28, 28), np.uint8)
    np.savez("set.npz", images=images, labels=np.arange(50) % 2)
    ran = cli(*TRAIN, "--epochs", "1", "--run", "four", "--set", "layers.mnist.source=set.npz")
    count = int(re.search(r"TRAIN data: (\d+) ", ran.err)[1])
    assert f"{-(-count // 20)} iterations in" in ran.err and count < 50


def test_epochs_of_what_has_no_end_are_refused(mistake, folder):
    (folder / "dummy.yaml").write_text(
        "layers: [{name: a, type: DummyData, shape: {dim: [2, 3]}}, {name: l, type: EuclideanLoss, bottom: [a, a]}]\n"
        "solver: {base_lr: 0.1, max_iter: 3}"
    )
    told = "nothing says how many entries the training data has; give --max-iter"
    assert mistake("train", "dummy.yaml", *CPU, "--epochs", "2") == f"minicaffe: --epochs: {told}"


def test_the_last_line_of_training_names_what_can_be_done_with_the_run(cli, folder, monkeypatch):
    look, use = cli(*TRAIN, "--run", "a run").err.splitlines()[-2:]
    words = shlex.split(look.removeprefix("to look at it: "))
    assert words[-2:] == ["report", "a run"] and cli(*words[-2:]).code == 0
    (folder / "x.pgm").write_bytes(b"P5 28 28 255\n" + bytes(784))
    words = shlex.split(use.removeprefix("to use it: ").replace("PICTURE...", "x.pgm"))
    assert words[-3:] == ["predict", "a run", "x.pgm"] and cli(*words[-3:], *CPU).code == 0
    unsaved = "--set", "solver.snapshot_after_train=false"
    assert cli(*TRAIN, "--run", "b", *unsaved).last.endswith("report b")


@pytest.mark.parametrize("length", [74, 75, 76])
def test_a_warning_is_no_wider_than_its_frame(length):
    words = "x" * (length - 10) + " " + "y" * 9
    top, *lines, bottom = banner(f"TOLD. {words} z").splitlines()
    assert {len(top), len(bottom)} == {79} and max(map(len, lines)) <= 79
    assert " ".join(line.removeprefix("!!! ") for line in lines) == f"{words} z"
