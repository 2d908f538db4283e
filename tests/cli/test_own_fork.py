"""A user's fork: a file of three classes with blocks of their own, by --import, for everything that a net is for."""

import json
import re
import subprocess
import sys

import pytest
from kit import few_digits

from minicaffe.cli import main
from minicaffe.core.layers import REGISTRY

FORK = '''
"""Three layers of a fork of one's own, one of which has the name of a layer that minicaffe has of a fork."""

from typing import Annotated, Any, Literal

import numpy as np

from minicaffe import Layer, Traits, register
from minicaffe.core.config.declare import Filler
from minicaffe.core.config.types import AtLeast


@register
class MyScale(Layer):
    """y = factor w x, w learnt for each channel."""

    factor: Annotated[float, "times everything"]
    mode: Annotated[Literal["ONE", "TWO"], "TWO doubles"] = "ONE"
    weight_filler: Annotated[Filler, "of w"] = Filler(type="constant", value=1.0)

    def setup(self, x):
        self.param((x[1],), self.weight_filler)
        return x

    @property
    def times(self):
        return self.factor * (2 if self.mode == "TWO" else 1)

    def forward(self, x):
        self.x = x
        return x * self.params[0].data * self.times

    def backward(self, dy):
        self.params[0].diff += (dy * self.x).sum(axis=0) * self.times
        return dy * self.params[0].data * self.times


@register
class Shift(Layer):
    """y = x + sum of `by`."""

    by: Annotated[tuple[float, ...], "what is added"] = ()

    def setup(self, x):
        return x

    def forward(self, x):
        return x + sum(self.by)

    def backward(self, dy):
        return dy


@register
class CenterLoss(Layer):
    """The mean square of what is off the center `at`: not the fork's of the same name."""

    at: Annotated[float, "the center"] = 0.0
    least: Annotated[int, "the least number of samples", AtLeast(1)] = 1

    traits = Traits(is_loss=True, label_bottoms=(1,))

    def setup(self, x, label):
        return ()

    def forward(self, x, label):
        self.off = x - self.at
        return (self.off**2).mean()

    def backward(self, dloss):
        return 2 * self.off / self.off.size * dloss, None
'''
NET = """
name: "own"
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "digits" batch_size: 20 backend: LMDB }
  include { phase: TRAIN } transform_param { scale: 0.00390625 } }
layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "digits" batch_size: 50 }
  include { phase: TEST } transform_param { scale: 0.00390625 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10
  weight_filler { type: "xavier" } } }
layer { name: "mine" type: "MyScale" bottom: "ip" top: "mine" my_scale_param { factor: 0.5 mode: TWO
  weight_filler { type: "constant" value: 2 } } }
layer { name: "shift" type: "Shift" bottom: "mine" top: "shift" shift_param { by: 0.5 by: -0.25 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "shift" bottom: "label" top: "loss" }
layer { name: "center" type: "CenterLoss" bottom: "ip" bottom: "label" top: "center" center_loss_param { at: 1.5 }
  loss_weight: 0.01 }
layer { name: "accuracy" type: "Accuracy" bottom: "shift" bottom: "label" top: "accuracy" include { phase: TEST } }
""".replace(" backend: LMDB", "")
SOLVER = """net: "net.prototxt"
base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 8 snapshot: 4 snapshot_prefix: "own" display: 2
test_iter: 2 test_interval: 4 solver_mode: CPU
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a command with few drawn digits, `here` or in a process of its own; returns what it printed."""
    (tmp_path / "fork.py").write_text(FORK)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    few_digits(monkeypatch, 300, 100)
    monkeypatch.delitem(sys.modules, "fork", raising=False)
    few = (
        "import sys; from minicaffe.tools.data import datasets; datasets._DRAWING = 'few-300';"
        "datasets._COUNTS.update(train=300, test=100); from minicaffe.cli import main;"
        "sys.exit(main(sys.argv[1:]))"
    )

    def command(*words, fails=False):
        done = subprocess.run([sys.executable, "-c", few, *words], capture_output=True, text=True)
        return printed(done.returncode, done.stdout + done.stderr, fails)

    def here(*words, fails=False):
        before = dict(REGISTRY)
        code = main(list(words))
        REGISTRY.clear()
        REGISTRY.update(before)  # the next command knows the fork by its own --import only
        sys.modules.pop("fork", None)
        return printed(code, "".join(capsys.readouterr()), fails)

    def printed(code, text, fails):
        assert (code != 0) == fails, text
        assert "Traceback" not in text
        return text

    command.folder, command.here = tmp_path, here
    return command


def test_all_that_a_net_is_for(run):
    folder = run.folder
    with_fork = ("--import", "fork.py")
    on_cpu = (*with_fork, "--device", "cpu")
    assert run("train", "solver.prototxt", fails=True).count("\n") == 1  # without it, a line
    printed = run("train", "solver.prototxt", *with_fork, "--run", "one")
    assert "accuracy" in printed and (folder / "own_iter_8.caffemodel").exists()

    # goes on from the middle, to the same weights
    (folder / "own_iter_8.caffemodel").rename(folder / "whole.caffemodel")
    resume = ("--resume", "own_iter_4.solverstate", "--run", "two")
    run("train", "solver.prototxt", *with_fork, *resume)
    whole, again = (folder / f"{name}.caffemodel" for name in ("whole", "own_iter_8"))
    assert whole.read_bytes() == again.read_bytes()

    # scores, shapes, a report
    scores = run("test", "net.prototxt", *on_cpu, "--weights", "whole.caffemodel")
    assert re.search(r"accuracy +\d", scores)
    assert "MyScale" in run.here("summary", "net.prototxt", *with_fork)
    run.here("report", "one", *with_fork)
    assert "MyScale" in json.dumps((folder / "one" / "report.html").read_text("utf-8"))

    # to YAML and back, with the same net and the same weights in every format
    run.here("convert", "net.prototxt", "net.yaml", *with_fork)
    yaml = (folder / "net.yaml").read_text()
    assert "factor: 0.5" in yaml and "by: [0.5, -0.25]" in yaml and "at: 1.5" in yaml
    run.here("convert", "net.yaml", "back.prototxt", *with_fork)
    back = (folder / "back.prototxt").read_text()
    for block in ("my_scale_param {", "shift_param {", "center_loss_param { at: 1.5 }"):
        assert block in back
    assert "minicaffe_param" not in back
    assert run.here("test", "back.prototxt", *on_cpu, "--weights", "whole.caffemodel") == scores
    run.here("convert", "whole.caffemodel", "whole.npz", *with_fork)
    again = run.here("test", "net.yaml", *on_cpu, "--weights", "whole.npz")
    assert again.replace("whole.npz", "whole.caffemodel") == scores
