"""A replayed iteration gives the bits of one that is taken as it is, whatever is between two iterations."""

from pathlib import Path

import pytest
from core.layers.test_every_layer import Stretched
from core.solver.twins import SMALL, Quiet, Twins, calls, segments, twins
from kit import registered

from minicaffe import Solver, parse
from minicaffe.backends.cpu import threads
from minicaffe.backends.replay.inference import why_not
from minicaffe.core.layers import REGISTRY
from minicaffe.core.solver.update_rules import KINDS

LENET = Path(__file__).resolve().parents[3] / "models" / "lenet.yaml"
pytestmark = pytest.mark.usefixtures("form", "fifty_digits")


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


@pytest.mark.parametrize("keep", [None, ()])
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
        ", test_iter: 2, test_interval: 4, ema_decay: 0.9, display: 3, snapshot: 5",
    ],
)
def test_whatever_the_solver_does(more, keep):
    both = twins(more, keep=keep)
    both.step(12)
    assert both.replays


@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, "float32") for kind in KINDS), ("SGD", "float64")]
)
def test_whatever_it_is(kind, dtype):
    both = twins(", iter_size: 2, clip_gradients: 1", kind=kind, dtype=dtype)
    both.step(12)
    assert both.replays


OWN = SMALL.replace(
    "  - {{name: left,", "  - {{name: own, type: Stretched, top: ip}}\n  - {{name: left,"
)


def test_the_rows_are_those_of_the_iteration(form):
    """Every layer that can be recorded is, and nothing of the update is Python; a layer of one's own lies between."""
    with registered(Stretched):
        both = twins(text=OWN)
    both.step(5)
    whose = {what for segment in segments(both.replaying) for what in segment.whose}
    python = calls(both.replaying)
    for step in both.replaying.net.steps:
        layer, name = step.layer, step.spec.name
        for way in ("forward", "backward") if layer.runs_backward else ("forward",):
            rows = layer.traits.recordable and (form == "compiled" or name != "norm")
            assert (f"{name} {way}" in whose) is (rows and name != "own"), (name, python)
    assert "SGD" in whose and "SGD" not in python
    assert python["own forward"] == python["own backward"] == "its Python is not minicaffe's"


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


def test_halves_taken_one_by_one_are_replayed_too():
    both = twins()
    for _ in range(6):
        for solver in both.both:
            solver.gradient()
            solver.update()
        both.check()
    assert both.replaying.iterations.recordings.keys() == {"passes", "update"}
    assert not both.plain.iterations.recordings.get("passes")
