"""Options that several commands share: --set, --quiet, --threads; and files that are of another kind."""

import os
import re
import shlex

import pytest
from kit import CPU, arrays

from minicaffe.backends.cpu import threads
from minicaffe.cli.parser import Parser, add_options, words_of
from minicaffe.cli.train import Train
from minicaffe.storage.file_kinds import FOREIGN

WITH_MODEL = {
    "train": ("tiny.yaml", *CPU),
    "test": ("tiny.yaml", *CPU, "--weights", "w.npz"),
    "predict": ("tiny.yaml", "x.pgm", *CPU, "--weights", "w.npz"),
    "time": ("tiny.yaml", *CPU, "--iterations", "1"),
    "explain": ("tiny.yaml", *CPU),
    "summary": ("tiny.yaml",),
}


@pytest.fixture
def trained(cli, folder):
    """w.npz, weights of tiny.yaml, and x.pgm, a picture."""
    assert cli("train", "tiny.yaml", *CPU, "--max-iter", "1").code == 0
    os.rename("tiny_iter_1.npz", "w.npz")
    (folder / "x.pgm").write_bytes(b"P5 28 28 255\n" + bytes(784))


@pytest.fixture
def threads_afterwards(monkeypatch):
    """As many threads after the test as before."""
    monkeypatch.setenv(threads.VARIABLE, "")
    threads.count.cache_clear()
    yield
    threads.count.cache_clear()


@pytest.mark.parametrize("command", WITH_MODEL)
def test_set_changes_the_model_of_every_command(mistake, command):
    assert mistake(command, *WITH_MODEL[command], "--set", "layers.conv1.num_ouput=5") == (
        "minicaffe: --set layers.conv1.num_ouput: layer 'conv1' (Convolution): unknown key 'num_ouput'"
        "; did you mean 'num_output'?"
    )


def test_set_may_be_repeated(cli):
    ran = cli("summary", "tiny.yaml", "--set", "name=X", "--set", "layers.conv1.num_output=7",
              "--set", "layers.mnist.batch_size=3")  # fmt: skip
    assert ran.out.startswith("X, phase TRAIN")
    assert "conv1 3x7x12x12" in ran.out
    assert "\nbend " in cli("time", *WITH_MODEL["time"], "--set", "layers.relu1.name=bend").out
    assert cli("explain", *WITH_MODEL["explain"], "--set", "layers.conv1.num_output=7").code == 0


def test_training_as_set(cli, folder):
    ran = cli("train", "tiny.yaml", *CPU, "--set", "solver.max_iter=2", "--set", "solver.base_lr=0.25",
              "--set", "solver.test_interval=0", "--set", "layers.mnist.batch_size=10")  # fmt: skip
    assert "iteration 0: loss = " in ran.err
    assert ", lr = 0.25" in ran.err
    tests = re.findall(r"iteration (\d+): test ", ran.err)
    assert tests == ["2"]  # with a test_interval of 0 at the end alone
    assert (folder / "tiny_iter_2.npz").exists()


def test_a_set_layer_is_scored_and_predicts_as_set(cli, trained):
    sixteen = ("--set", "layers.conv1.num_output=16")
    for command in ("test", "predict"):
        ran = cli(command, *WITH_MODEL[command], *sixteen)
        assert ran.code == 2
        assert "conv1__0 (file (4, 1, 5, 5), net (16, 1, 5, 5))" in ran.last
    assert cli("predict", *WITH_MODEL["predict"], "--set", "name=X").code == 0


def test_the_printed_command_goes_on_with_what_was_set(cli, folder, interrupt, threads_afterwards):
    interrupt(3)
    ran = cli("train", "tiny.yaml", *CPU, "--set", "solver.max_iter=6", "--set",
              "layers.conv1.weight_filler={type: msra}", "--set", "name=a b", "--threads", "1")  # fmt: skip
    assert ran.code == 130
    words = shlex.split(ran.last.split("to go on: ")[1])
    assert [words[i + 1] for i, word in enumerate(words) if word == "--set"] == [
        "solver.max_iter=6", "layers.conv1.weight_filler={type: msra}", "name=a b",
    ]  # fmt: skip
    assert words[words.index("--threads") + 1] == "1"
    again = cli(*words[1:])
    assert again.code == 0 and "3 iterations in" in again.err
    assert (folder / "tiny_iter_6.npz").exists()


def test_set_without_a_value(mistake):
    told = "minicaffe: --set 'name': expected PATH=VALUE, such as solver.base_lr=0.02"
    assert mistake("summary", "tiny.yaml", "--set", "name").startswith(told)
    assert "expected one argument" in mistake("summary", "tiny.yaml", "--set")


def test_quiet_training_tells_the_table_and_the_warnings_alone(cli, folder):
    loud = cli("train", "tiny.yaml", *CPU, "--snapshot-prefix", "loud")
    quiet = cli("train", "tiny.yaml", *CPU, "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.out == loud.out
    assert "BUILT-IN DRAWN DIGITS" in quiet.out
    assert (folder / "tiny_iter_12.npz").exists()


def test_a_quiet_terminal_shows_no_bar(folder, terminal, capsys):
    assert terminal.run("train", "tiny.yaml", *CPU, "--quiet") == 0
    assert terminal.getvalue() == ""
    assert capsys.readouterr().out.startswith("test output")


@pytest.mark.parametrize("command", ["test", "predict", "time", "explain"])
def test_quiet_commands_tell_the_result_alone(cli, trained, command):
    ran = cli(command, *WITH_MODEL[command], "--quiet")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out


def test_a_quiet_command_tells_a_mistake_and_how_to_go_on(cli, mistake, interrupt):
    assert "no.yaml" in mistake("train", "no.yaml", "--quiet")
    interrupt(3)
    ran = cli("train", "tiny.yaml", *CPU, "--quiet")
    assert ran.code == 130
    assert ran.err.startswith("stopped at iteration 3; to go on: ")
    assert "--quiet" in shlex.split(ran.last.split("to go on: ")[1])


@pytest.mark.parametrize("command", WITH_MODEL)
def test_threads_of_every_command(cli, trained, command, threads_afterwards, monkeypatch):
    for asked in (3, 1, 2):
        ran = cli(command, *WITH_MODEL[command], "--threads", str(asked))
        assert ran.code == 0, ran.err
        assert threads.count() == asked


def test_threads_go_before_the_variable(cli, threads_afterwards, monkeypatch):
    monkeypatch.setenv(threads.VARIABLE, "nonsense")
    assert cli("summary", "tiny.yaml", "--threads", "1").code == 0


@pytest.mark.parametrize("command", WITH_MODEL)
@pytest.mark.parametrize("asked", ["abc", "0", "100000"])
def test_a_variable_that_is_no_number_of_threads(
    mistake, command, asked, threads_afterwards, monkeypatch
):
    monkeypatch.setenv(threads.VARIABLE, asked)
    told = f"MINICAFFE_NUM_THREADS: expected an integer from 1 to 1024, got '{asked}'"
    assert mistake(command, *WITH_MODEL[command]) == f"minicaffe: {told}"


def test_doctor_tells_of_such_a_variable_and_of_all_else(cli, threads_afterwards, monkeypatch):
    monkeypatch.setenv(threads.VARIABLE, "abc")
    ran = cli("doctor")
    assert ran.code == 0
    wanted = r"cpu threads +MINICAFFE_NUM_THREADS: expected an integer from 1 to 1024, got 'abc'\n"
    assert re.search(wanted, ran.out)
    assert "\nwould use " in ran.out


@pytest.mark.parametrize("ending", FOREIGN)
def test_files_of_other_software_are_told_what_they_are(mistake, folder, ending):
    file = f"net{ending.upper()}" if ending == ".pt" else f"net{ending}"
    text = b'name: "LeNet"\nlayer {\n'  # of Caffe's, but that no text has a zero
    (folder / file).write_bytes(text if ending == ".prototxt" else text + b"\0")
    what = FOREIGN[ending]
    line = f"minicaffe: {file}: is {what}; minicaffe reads models in .yaml and .prototxt"
    if ending == ".prototxt":  # that is read
        line = "minicaffe: net.prototxt:2:7: the '{' here has no '}'"
    assert mistake("summary", file) == line
    line = f"{file}: is {what}; minicaffe reads a solver's state in .npz and .solverstate"
    told = mistake("train", "tiny.yaml", "--resume", file)
    if ending == ".solverstate":  # that is read
        text = "is not a whole .solverstate: it is the text of a prototxt"
        assert told.startswith(f"minicaffe: {file}: {text}")
    elif ending == ".caffemodel":
        assert told == f"minicaffe: {file}: holds weights and no solver's state; try --weights"
    else:
        assert told == f"minicaffe: {line}"
    line = f"is {what}; minicaffe reads weights in .npz, .safetensors and .caffemodel"
    if ending in (".caffemodel", ".h5"):  # those are read
        line = "is not a whole .caffemodel: it is the text of a prototxt"
    for command in ("test", "train"):
        told = mistake(command, "tiny.yaml", "--weights", file)
        assert told.startswith(f"minicaffe: {file}: {line}")


def test_a_net_as_caffes_text_is_not_trained_without_its_solver(mistake, folder):
    wanted = "minicaffe: net.prototxt: is a net; training needs the solver's prototxt that names it"
    given = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 } } }'
    (folder / "net.prototxt").write_text(given)
    assert mistake("train", "net.prototxt") == wanted


def test_files_that_are_not_there(mistake):
    assert "no.prototxt: no such file" in mistake("summary", "no.prototxt")
    line = mistake("test", "tiny.yaml", "--weights", "no.caffemodel")
    assert line == "minicaffe: no.caffemodel: no such file"


def test_fine_tuning_with_another_num_output_is_told_how(cli, mistake, model, trained):
    other = model(("num_output: 10", "num_output: 20"))
    line = mistake("train", other, *CPU, "--weights", "w.npz")
    told, _, remedy = line.partition("; to train layer 'ip1' anew, give it another name: ")
    sizes = "ip1__0 (file (10, 576), net (20, 576)), ip1__1 (file (10,), net (20,))"
    assert told == f"minicaffe: w.npz: mismatched: {sizes}"
    ran = cli("train", other, *CPU, "--weights", "w.npz", *shlex.split(remedy))
    assert ran.code == 0
    assert "weights: w.npz: 2 loaded; missing: ip1_new__0, ip1_new__1; unused: ip1__0" in ran.err
    assert arrays("changed_iter_12.npz")["ip1_new__0"].shape == (20, 576)
    net = model(("num_output: 10", "num_output: 20, top: scores"), ("[ip1", "[scores"))
    line = mistake("train", net, *CPU, "--weights", "w.npz")
    assert line.endswith("another name: --set layers.ip1.name=ip1_new")


def test_level_and_stage_decide_which_layers_take_part(cli, folder):
    text = (folder / "tiny.yaml").read_text()
    deep = "  - {name: deep, type: ReLU, bottom: ip1, include: {min_level: 2, stage: [a, b]}}\n"
    (folder / "staged.yaml").write_text(text.replace("solver:", f"{deep}solver:"))
    assert "deep" not in cli("summary", "staged.yaml").out
    assert "deep" not in cli("summary", "staged.yaml", "--level", "2", "--stage", "a").out
    assert "deep" in cli("summary", "staged.yaml", "--level", "2", "--stage", "b,a").out


def test_the_solver_names_its_device_and_its_weights(cli, folder, mistake):
    text = (folder / "tiny.yaml").read_text()
    (folder / "own.yaml").write_text(text.replace("base_lr:", "device: cuda:77, base_lr:"))
    assert "device cuda:77" in mistake("train", "own.yaml", "--max-iter", "1")
    assert cli("train", "tiny.yaml", "--device", "cpu", "--max-iter", "1").code == 0
    weights = text.replace("base_lr:", "device: cpu, weights: tiny_iter_1.npz, base_lr:")
    (folder / "own.yaml").write_text(weights)
    ran = cli("train", "own.yaml", "--max-iter", "1")
    assert ran.code == 0 and "weights: tiny_iter_1.npz: 4 loaded" in ran.err


@pytest.mark.parametrize("words", [
    "",
    "--import a.py --import 'b c.py' --lenient --set x=1 --set y=2 --threads 2 --level 0 --stage a,b",
    "--size 30x20 --batch-size auto --device cpu --quiet --dtype float64 --workspace 8 --deterministic",
    "--data photos --weights w.npz --find-lr rates.svg",
    "--resume runs/a --max-iter 0 --seed 0 --snapshot-keep 0",
    "--conv-engine caffe --precision tf32 --batch-per-rank --reduce-dtype float16 --no-graph --epochs 3",
])  # fmt: skip
def test_words_of_options_are_those_that_were_typed(words):
    parser = Parser()
    add_options(parser, Train)
    asked = shlex.split(words)
    options = parser.parse_args(["tiny.yaml", *asked], Train())
    again = parser.parse_args(["tiny.yaml", *words_of(options, ())], Train())
    assert sorted(words_of(options, ())) == sorted(asked)
    assert again == options
    assert words_of(Train(), ()) == []
    options = Train()  # less those that are named
    options.model, options.stage, options.seed = "tiny.yaml", "a", 3
    assert words_of(options, {"seed"}) == ["--stage", "a"]
