"""A small model and few drawn digits in an empty folder, and ways to run a command there."""

import io
import re
import shutil
import signal
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from minicaffe.cli import main
from minicaffe.core.layers import REGISTRY
from minicaffe.storage import caches
from minicaffe.tools.data import datasets, idx

FEW = {"train": 300, "test": 100}
ROOT = Path(__file__).resolve().parent.parent.parent
TINY = """\
name: Tiny
layers:
  - {name: mnist, type: Data, top: [data, label], source: mnist, batch_size: 20, transform: {scale: 0.00390625}}
  - {name: conv1, type: Convolution, bottom: data, num_output: 4, kernel_size: 5, stride: 2}
  - {name: relu1, type: ReLU, top: conv1}
  - {name: ip1, type: InnerProduct, num_output: 10}
  - {name: accuracy, type: Accuracy, bottom: [ip1, label], include: TEST}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip1, label]}
solver: {base_lr: 0.05, momentum: 0.9, max_iter: 12, test_iter: 5, test_interval: 10, display: 5, snapshot_prefix: tiny}
"""


@dataclass
class Ran:
    """What a command did: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.err.splitlines()[-1]


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    columns = 120

    def isatty(self) -> bool:
        return True

    def run(self, *words: str) -> int:
        """Run a command that sees this terminal, and give its exit code."""
        with redirect_stderr(self):
            return main(list(words))

    def states(self) -> list[str]:
        """What stood in the bar's line, one after the other."""
        parts = self.getvalue().replace("\n", "\r").split("\r")
        return [text for text in parts if re.match(r" *\d+%\|", text)]


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """Where the few drawn digits are kept, drawn once; loops are those of all tests, compiled before."""
    cache, loops = tmp_path_factory.mktemp("cache"), caches.folder() / "loops"
    if not caches.obstacle(loops):
        (cache / "loops").symlink_to(loops)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINICAFFE_CACHE", str(cache))
        patch.setattr(datasets, "_COUNTS", FEW)
        for split in FEW:
            datasets.load("digits", split)
    return cache


@pytest.fixture
def folder(tmp_path, monkeypatch, here, drawn):
    """An empty folder with tiny.yaml and models/, and 300 drawn digits where MNIST is asked for."""
    found = datasets.shape

    def shape(source, split, beside=None):
        count = datasets._COUNTS[split]
        return (count, 1, 28, 28) if source in ("mnist", "digits") else found(source, split, beside)

    shutil.copytree(ROOT / "models", tmp_path / "models")
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.delenv("MINICAFFE_DATA", raising=False)
    monkeypatch.setenv("MINICAFFE_OFFLINE", "1")
    monkeypatch.setenv("MINICAFFE_CACHE", str(drawn))
    monkeypatch.setattr(datasets, "_COUNTS", FEW)
    monkeypatch.setattr(datasets, "shape", shape)
    before = dict(REGISTRY)
    yield tmp_path
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def noise(folder):
    """noise/, an IDX data set of 12 x 12 noise, so that a process of its own need not draw 60,000 digits."""
    chance = np.random.default_rng(0)
    (folder / "noise").mkdir()
    for split, count in (("train", 50), ("t10k", 10)):
        pictures = chance.integers(0, 256, (count, 12, 12), np.uint8)
        idx.write(folder / "noise" / f"{split}-images-idx3-ubyte", pictures)
        labels = (np.arange(count) % 10).astype(np.uint8)
        idx.write(folder / "noise" / f"{split}-labels-idx1-ubyte", labels)
    return folder / "noise"


@pytest.fixture
def model(folder):
    """Write a model that is tiny.yaml with some text replaced, and give its name."""

    def write(*changes: tuple[str, str], name: str = "changed.yaml") -> str:
        text = TINY
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        text = text.replace("snapshot_prefix: tiny", f"snapshot_prefix: {Path(name).stem}")
        (folder / name).write_text(text, "utf-8")
        return name

    return write


@pytest.fixture
def cli(folder, capsys):
    """Run a command in the folder; nothing it prints may hold a traceback or a warning of Python's."""

    def run(*words: str) -> Ran:
        capsys.readouterr()
        try:
            code = main(list(words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        ran = Ran(code, *capsys.readouterr())
        for noise in ("Traceback", "Warning:", "warnings.warn"):
            assert noise not in ran.out + ran.err
        return ran

    return run


@pytest.fixture
def mistake(cli):
    """Run a command that must fail: exit code 2, nothing on stdout, the mistake in stderr's last line."""

    def run(*words: str) -> str:
        ran = cli(*words)
        assert ran.code == 2, ran
        assert ran.out == ""
        told = "was not found and could not be fetched"  # once in a process
        assert sum(line.startswith("minicaffe") and told not in line
                   for line in ran.err.splitlines()) == 1, ran.err  # fmt: skip
        assert ran.last.startswith("minicaffe"), ran.err
        return ran.last

    return run


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 120 columns; `terminal.columns` makes it narrower."""
    screen = Terminal()
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda file: (screen.columns, 30))
    return screen


@pytest.fixture
def interrupt(monkeypatch):
    """Send SIGINT after an iteration, as Ctrl-C does."""
    from minicaffe.tools.training import progress

    def at(iteration: int) -> None:
        for shown in (progress.Bar, progress.Lines, progress.Quiet):

            def iterated(self, solver, before=shown.iterated):
                before(self, solver)
                if solver.iteration == iteration:
                    signal.raise_signal(signal.SIGINT)

            monkeypatch.setattr(shown, "iterated", iterated)

    return at
