"""Commands go on where stdout and stderr are closed, or cannot show a name; and under `python -OO`."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

from minicaffe.cli import COMMANDS, main
from minicaffe.errors import note

NAME = "größe😀"
SHOWN = r"gr\xf6\xdfe\U0001f600"


@pytest.fixture
def noisy(model, noise):
    """tiny.yaml on noise."""
    return model(("source: mnist", "source: noise"), name="noisy.yaml")


def shell(words: str) -> subprocess.CompletedProcess:
    """Run `minicaffe` with redirections, as a shell does."""
    command = f'"{sys.executable}" -W error -m minicaffe {words}'
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_training_goes_on_where_nobody_listens(noisy, folder, closed):
    ran = shell(f"train {noisy} --device cpu --max-iter 3 {closed}")
    assert ran.returncode == 0, ran
    assert "Traceback" not in ran.stderr
    assert ("test output" in ran.stdout) == (">&-" not in closed.replace("2>&-", ""))
    with np.load("noisy_iter_3.npz", allow_pickle=False) as snapshot:
        assert int(snapshot["@iteration"]) == 3
        assert all(np.isfinite(snapshot[name]).all() for name in snapshot.files)


def test_a_reader_of_stderr_that_has_gone_ends_no_training(noisy, folder):
    ran = shell(f"train {noisy} --device cpu --max-iter 3 2>&1 >scores | true; cat scores")
    assert "test output" in ran.stdout and os.path.exists("noisy_iter_3.npz")


def test_a_stdout_that_cannot_be_written_is_told():
    ran = shell("layers 1</dev/null")
    assert ran.returncode == 2
    assert ran.stderr == "minicaffe: the output cannot be written: Bad file descriptor\n"


def test_a_file_opened_where_stdout_was_closed_gets_nothing_that_is_printed(tmp_path):
    script = """
import os, sys
from minicaffe.cli import prepare_streams
prepare_streams()
with open("there", "w") as file:
    assert file.fileno() > 2
    print("out")
    print("err", file=sys.stderr)
    os.write(1, b"raw")
prepare_streams()
"""
    closed = ["/bin/sh", "-c", f'"{sys.executable}" -W error -c "$0" >&- 2>&-', script]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(closed, cwd=tmp_path, check=True, env=env)
    assert (tmp_path / "there").read_text() == ""


def test_a_full_stderr_stops_nothing(monkeypatch):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    note("unheard")
    assert main(["layers", "Zebra"]) == 2


EVERY = {
    "train": "noisy.yaml --device cpu --max-iter 2 --run run",
    "test": "noisy.yaml --device cpu --weights noisy_iter_2.npz",
    "new": "small --data pair.npz",
    "predict": "noisy.yaml black.pgm --device cpu --weights noisy_iter_2.npz",
    "time": "noisy.yaml --device cpu --iterations 1",
    "replay": "noisy_iter_2.npz --device cpu",
    "explain": "noisy.yaml --device cpu",
    "summary": "noisy.yaml",
    "report": "run",
    "runs": ".",
    "draw": "noisy.yaml --svg noisy.svg",
    "convert": "noisy.yaml noisy.prototxt --force",
    "import": "relu.onnx --out relu --force",
    "export": "noisy.yaml --weights noisy_iter_2.npz --onnx noisy.onnx --force",
    "calibrate": "noisy.yaml --device cpu --weights noisy_iter_2.npz --images 4 --force",
    "models": "lenet",
    "layers": "Convolution",
    "schema": "",
    "fetch": "minst",
    "data": "pair.npz",
    "mean": "pair.npz -o mean.npy",
    "convert-images": "pair.npz copy.npz",
    "warm": "noisy.yaml",
    "completion": "bash",
    "doctor": "",
}
ALL = """
import json, sys
from minicaffe.cli import COMMANDS, main

every = json.loads(sys.argv[1])
codes = {}
for name in COMMANDS:
    if "help" in sys.argv:
        try:
            main([name, "--help"])
        except SystemExit as stop:
            codes[name + " --help"] = stop.code
    codes[name] = main([name, *every[name].split()])
codes["layers "] = main(["layers"])
with open("codes.json", "w") as file:
    json.dump(codes, file)
"""


def write_relu(path):
    """A model of ONNX of one node."""
    import onnx

    x, y = (onnx.helper.make_tensor_value_info(name, 1, (1, 3)) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    imports = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), str(path))


@pytest.mark.parametrize("how", [pytest.param("-OO", marks=pytest.mark.long), "closed"])
def test_every_command(noisy, folder, how):
    assert EVERY.keys() == COMMANDS.keys()
    np.savez(folder / "pair.npz", x=np.zeros((2, 3, 3), np.uint8), y=[0, 1])
    (folder / "black.pgm").write_bytes(b"P5 12 12 255\n" + bytes(144))
    write_relu(folder / "relu.onnx")
    words = [sys.executable, *["-OO"] * (how == "-OO"), "-c", ALL, json.dumps(EVERY), "help"]
    if how == "closed":
        words = ["/bin/sh", "-c", '"$0" "$@" >&- 2>&-', *words]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran
    codes = json.loads((folder / "codes.json").read_text())
    assert codes.pop("fetch") == 2
    assert not any(codes.values()), codes
    if how == "-OO":
        for name in COMMANDS:
            assert f"usage: minicaffe {name} " in ran.stdout
            assert f"\nexample:\n  minicaffe {name}" in ran.stdout
        assert "Train a net as the `solver` of its model file says, and record that" in ran.stdout
        assert "num_output: an integer (required). number of filters" in ran.stdout
        assert "Annotated[" not in ran.stdout


class Ascii(io.TextIOWrapper):
    """A terminal that knows no letters but ASCII's."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="ascii", errors="strict")

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode("ascii")


@pytest.mark.skipif(sys.getfilesystemencoding() != "utf-8", reason="no file can have such a name")
def test_names_outside_the_terminals_encoding_are_escaped(model, terminal):
    out, err = Ascii(), Ascii()
    changes = ("ip1", NAME), ("name: Tiny", "name: Ü"), ("accuracy,", "Güte,")
    net = model(*changes, name="käse.yaml")
    with redirect_stdout(out), redirect_stderr(err):
        assert main(["summary", net]) == 0
        assert main(["time", net, "--iterations", "1", "--device", "cpu"]) == 0
        assert main(["train", net, "--device", "cpu"]) == 0
        assert main(["summary", "größer.yaml"]) == 2
    assert r"\xdc, phase TRAIN" in out.text()
    assert out.text().count(f"\n{SHOWN} ") == 2
    assert r"snapshot: k\xe4se_iter_12.npz" in err.text()
    assert "12/12 [" in err.text()
    assert r"iteration 0: test G\xfcte = " in err.text()
    assert r"minicaffe: gr\xf6\xdfer.yaml: no such file" in err.text()


def test_a_layer_without_documentation_is_shown(cli, folder):
    bare = "@minicaffe.register\nclass Bare(minicaffe.Layer):\n    x: int = 1\n"
    (folder / "own.py").write_text(f"import minicaffe\n\n{bare}")
    assert "\nBare\n" in cli("layers", "--import", "own.py").out
    shown = cli("layers", "Bare", "--import", "own.py").out
    assert shown.startswith("Bare\n\nno documentation\n\nkeys:\n  x: an integer (default 1)")
