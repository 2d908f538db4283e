"""A replayed iteration gives the bits of one that is taken as it is, whatever is between two iterations."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from core.solver.twins import SMALL, Quiet, Twins, calls, segments, twins
from kit import few_digits, registered

from minicaffe import DataError, Layer, Net, Solver, parse
from minicaffe.backends.cpu import threads
from minicaffe.backends.replay.inference import why_not
from minicaffe.core.config.declare import Filler, State
from minicaffe.core.layers import REGISTRY
from minicaffe.core.solver.update_rules import KINDS
from minicaffe.errors import DivergedError

LENET = Path(__file__).resolve().parents[3] / "models" / "lenet.yaml"
pytestmark = pytest.mark.usefixtures("form")


@pytest.fixture(autouse=True)
def few(monkeypatch, tmp_path):
    """The drawn digits, but few; files go into a folder of their own."""
    few_digits(monkeypatch)
    monkeypatch.chdir(tmp_path)


def lenet(batch_size, **settings):
    text = LENET.read_text().replace("source: mnist", "source: digits")
    text = text.replace("batch_size: 64", f"batch_size: {batch_size}")
    settings |= {"test_iter": (), "test_interval": 0, "display": 0, "snapshot": 0, "base_lr": 0.001}
    return Twins(lambda: Solver(parse(text), device="cpu", report=Quiet(), **settings))


@pytest.mark.parametrize("batch_size", [1, 8])
def test_lenet(batch_size, request):
    """With --long 200 iterations, bit by bit."""
    both = lenet(batch_size, deterministic=True)
    both.step(200 if request.config.getoption("--long") else 40)
    assert both.replays


@pytest.mark.parametrize(
    "more",
    [
        "",
        ", iter_size: 2",
        ", clip_gradients: 0.1",
        ", regularization_type: L1",
        ", ema_decay: 0.9",
        ", average_loss: 3",
        ", lr_policy: step, gamma: 0.5, stepsize: 3",
        ", iter_size: 3, clip_gradients: 1, average_loss: 4, ema_decay: 0.99, lr_policy: inv, power: 0.5, gamma: 0.1",
    ],
)
@pytest.mark.parametrize("keep", [None, ()])
def test_whatever_the_solver_does(more, keep):
    both = twins(more, keep=keep)
    both.step(12)
    assert both.replays


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_solver(kind):
    text = SMALL.replace("momentum: 0.9, ", "") if kind in ("AdaGrad", "RMSProp") else SMALL
    both = twins(f", iter_size: 2, clip_gradients: 1, type: {kind}", text=text)
    both.step(12)
    assert both.replays


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_either_type_of_numbers(dtype):
    both = twins(dtype=dtype)
    both.step(8)
    assert both.replays


def test_the_rows_are_those_of_the_iteration(form):
    """Every layer that can be recorded is, and nothing of the update is Python."""
    both = twins()
    both.step(5)
    whose = {what for segment in segments(both.replaying) for what in segment.whose}
    for step in both.replaying.net.steps:
        layer = step.layer
        for way in ("forward", "backward") if layer.runs_backward else ("forward",):
            what = f"{step.spec.name} {way}"
            rows = layer.traits.recordable and (form == "compiled" or step.spec.type != "BatchNorm")
            assert (what in whose) is rows, (what, calls(both.replaying))
    assert "SGD" in whose and "SGD" not in calls(both.replaying)


def test_tests_snapshots_and_a_look_at_blobs_in_between(tmp_path):
    both = twins(", test_iter: 2, test_interval: 4, ema_decay: 0.9, display: 3")
    for i in range(15):
        both.step()
        if i % 5 == 3:
            for k, solver in enumerate(both.both):
                solver.saving.prefix = str(tmp_path / f"net{k}")
                solver.snapshot()
                solver.net.forward()
                solver.net.backward()
                assert np.isfinite(solver.net.loss)
        if i % 5 == 4:
            before = [solver.scores for solver in both.both]
            assert before[0] == before[1]
    assert both.replays


def test_going_on_from_a_snapshot(tmp_path):
    """With one that replays, and with one that begins there."""
    both = twins(", ema_decay: 0.9, iter_size: 2", type="Adam")
    both.step(7)
    path, _ = [solver.snapshot() for solver in both.both]
    both.step(6)
    for solver in both.both:
        solver.restore(path)
    both.step(6)
    fresh = twins(", ema_decay: 0.9, iter_size: 2", type="Adam")
    for solver in fresh.both:
        solver.restore(path)
    fresh.step(6)
    both.both = both.replaying, fresh.replaying
    both.check()
    assert both.replays and fresh.replays


class Doubled(Layer):
    """y = 2 w x, in Python; a user's own layer."""

    def setup(self, x):
        self.weight = self.param((1,), Filler(type="constant", value=0.5))
        return x

    def forward(self, x):
        self.x = x
        return 2 * self.weight.data * x

    def backward(self, dy):
        self.weight.diff += 2 * (dy * self.x).sum()
        return 2 * self.weight.data * dy


@pytest.fixture
def doubled():
    with registered(Doubled):
        yield


OWN = SMALL.replace(
    "  - {{name: left,", "  - {{name: own, type: Doubled, top: ip}}\n  - {{name: left,"
)


@pytest.mark.parametrize("more", ["", ", iter_size: 2, clip_gradients: 0.5"])
def test_a_layer_of_ones_own_lies_between_segments(doubled, more):
    both = twins(more, text=OWN)
    both.step(10)
    assert both.replays
    told = calls(both.replaying)
    assert told["own forward"] == told["own backward"] == "its Python is not minicaffe's"


def test_a_subclass_that_overrides_forward_is_ones_own():
    base = REGISTRY["ReLU"]

    class Mine(base):
        def forward(self, x):
            return super().forward(x)

    assert why_not(Mine()) == "its Python is not minicaffe's"
    layer = base()
    assert why_not(layer) == ""
    layer.forward = lambda x: x
    assert why_not(layer) == "its Python is not minicaffe's"


def reshape(solver):
    solver.net.reshape(x=(4, 1, 20, 20))


def other_data(solver):
    blob = solver.net.blobs["ip"]
    solver.net.steps[4].tops[0].blob.lie_in(np.array(blob.data))
    solver.net.memory.take(solver.net.graph)


def shared_weights(solver):
    other = Net(solver.net.spec, "TRAIN", device="cpu", seed=5)
    solver.net.share_with(other)


def engine(solver):
    solver.net.layers["conv"].engine = "caffe"
    solver.net.memory.take(solver.net.graph)


def solver_keys(solver):
    solver.spec = solver.rule.spec = dataclasses.replace(solver.spec, clip_gradients=0.01)


def setting(of, name, value):
    """To set an attribute of what `of` finds in a solver's net."""
    return lambda solver: setattr(of(solver.net), name, value)


CHANGES = {
    "reshape": reshape,
    "other data": other_data,
    "shared weights": shared_weights,
    "engine": engine,
    "keys of the solver": solver_keys,
    "multiplier": setting(lambda net: net.params["ip"][0], "lr_mult", 0.5),
    "decay": setting(lambda net: net.params["ip"][1], "decay_mult", 3.0),
    "key": setting(lambda net: net.layers["drop"], "dropout_ratio", 0.2),
    "forward": setting(lambda net: net.layers["relu"], "forward", lambda x: np.maximum(x, 0.1)),
    "weight of the loss": setting(lambda net: net.graph.losses[1], "loss_weight", 2.0),
    "scale of the loss": setting(lambda net: net, "loss_scale", 3.0),
    "phase": setting(lambda net: net.context, "state", State(phase="TEST")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(change):
    """What was recorded is of another net now: it is recorded anew, with no wrong step in between."""
    both = twins(keep=None)
    both.step(6)
    assert both.replays
    for solver in both.both:
        change(solver)
    both.step()
    assert not both.replays
    both.step(4)
    assert both.replays


def test_other_threads_are_seen(monkeypatch):
    both = twins()
    both.step(5)
    other = 2 if threads.share() == 1 else 1
    monkeypatch.setattr(threads, "share", lambda work=None: other)
    monkeypatch.setattr("minicaffe.backends.replay.guards.threads", lambda: other)
    both.step()
    assert not both.replays
    both.step(4)
    assert both.replays


@pytest.mark.parametrize("what", ["debug", "watcher"])
def test_who_looks_sees_an_iteration_as_it_is_and_what_was_recorded_stays(what):
    both, seen = twins(), []
    both.step(5)
    for solver in both.both:
        net, step = solver.net, solver.net.steps[2]
        if what == "debug":
            net.debug = seen.append
        else:
            step.watchers.setdefault("after_forward", []).append(lambda: seen.append(1))
    both.step(2)
    assert both.replays
    looked = len(seen)
    assert looked
    for solver in both.both:
        solver.net.debug = None
        if what == "watcher":
            solver.net.steps[2].watchers.clear()
    both.step(2)
    assert len(seen) == looked and both.replays


@pytest.mark.parametrize(
    ("form", "threads_asked"),
    [
        *(("compiled", 2), ("compiled", 3), ("numpy", 3)),
        *(pytest.param("compiled", asked, marks=pytest.mark.long) for asked in (1, 4)),
        *(pytest.param("numpy", asked, marks=pytest.mark.long) for asked in (1, 2, 4)),
    ],
    indirect=["form"],
)
def test_any_number_of_threads(form, threads_asked, tmp_path, request):
    """Iterations of LeNet in a process of so many threads: with --long 200."""
    count = 200 if request.config.getoption("--long") else 20
    script = tmp_path / "script.py"
    script.write_text(
        "from core.solver import test_iteration as tests\n"
        "from minicaffe.tools.data import datasets\n"
        "datasets._COUNTS, datasets._DRAWING = {'train': 50, 'test': 20}, 'few-50'\n"
        "both = tests.lenet(8, deterministic=True)\n"
        f"both.step({count})\n"
        "assert both.replays\n"
        "more = tests.twins(', iter_size: 2, clip_gradients: 0.1')\n"
        "more.step(12)\n"
        "assert more.replays\n"
    )
    here = Path(__file__).resolve().parents[2]
    given = {"MINICAFFE_NUM_THREADS": str(threads_asked), "PYTHONPATH": f"{here}:{here.parent}"}
    given |= {"MINICAFFE_NUMBA": "0"} if form == "numpy" else {}
    how = {"env": os.environ | given, "capture_output": True, "text": True, "timeout": 600}
    told = subprocess.run([sys.executable, script], **how)
    assert told.returncode == 0, told.stderr


def test_a_bad_label_is_told_as_ever():
    """A replay does not raise on the way; what it leaves and says is that of an iteration as it is."""
    both = twins(keep=None)
    both.step(6)
    assert both.replays
    told = []
    for solver in both.both:
        solver.net.layers["data"].all_labels[:] = 99
        before = solver.net.weights()
        with pytest.raises(DataError) as error:
            solver.step(1)
        told.append(str(error.value))
        assert solver.iteration == 6 == solver.net.context.passes
        now = solver.net.weights()
        learnt = [name for name in now if not name.startswith("norm")]
        assert all(np.array_equal(now[name], before[name]) for name in learnt)
    assert told[0] == told[1] and "label 99 is not one of the 10 classes" in told[0]


def test_what_diverges_is_told_as_ever(tmp_path):
    both, told = twins(keep=None), []
    both.step(6)
    for solver in both.both:
        solver.net.params["left"][0].data[0, 0] = np.inf
        with pytest.raises(DivergedError) as error, np.errstate(invalid="ignore"):
            solver.step(1)
        told.append(str(error.value))
    assert told[0] == told[1] and told[0].startswith("iteration 6: ")


def test_what_a_last_layer_refuses_is_told_before_pythons_backward(doubled):
    """One without a backward pass: a replay asks it between its commands and the next call of Python."""
    last = "  - {{name: again, type: BatchReindex, bottom: [sum, label]}}\nsolver:"
    text, begun = OWN.replace("solver:", last).replace("num_output: 10", "num_output: 20"), []

    class Counted(Doubled):
        """A layer of one's own that says when its backward pass begins."""

        def backward(self, dy):
            begun.append(self)
            return super().backward(dy)

    REGISTRY["Doubled"] = Counted
    both = twins(text=text.replace("batch_size: 6", "batch_size: 12"), keep=None)
    both.step(6)
    assert both.replays
    for solver in both.both:
        solver.net.layers["data"].all_labels[:] = 15  # a class, but no sample of the batch
        begun.clear()
        with pytest.raises(DataError, match="'again'"):
            solver.step(1)
        assert not begun


def test_halves_taken_one_by_one_are_replayed_too():
    both = twins()
    for _ in range(6):
        for solver in both.both:
            solver.gradient()
            solver.update()
        both.check()
    assert both.replaying.iterations.recordings.keys() == {"passes", "update"}
    assert not both.plain.iterations.recordings.get("passes")
