"""A net of every layer: iterations that are replayed have the bits of such as are taken as they are.

With iter_size 2, clipping, dropout, and a snapshot in their midst that both go on from.
"""

from itertools import cycle

import numpy as np
import pytest
from core.layers.test_every_layer import Stretched
from core.solver.every_layer import ELSEWHERE, Every
from core.solver.twins import Twins, calls, graphs
from kit import registered

from minicaffe import Solver
from minicaffe.backends.cpu import threads
from minicaffe.core.layers import REGISTRY

TYPES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW")
WITHOUT_MOMENTUM = "AdaGrad", "RMSProp"


@pytest.fixture(autouse=True)
def ready(fifty_digits):
    """The drawn digits, but few; a layer of one's own; files go into a folder of their own."""
    pytest.importorskip("h5py")
    pytest.importorskip("PIL")
    with registered(Stretched):
        yield


def every(whole, kind="Adam", device="cpu", dtype=None):
    """Twins of the net."""
    momentum = {} if kind in WITHOUT_MOMENTUM else {"momentum": 0.9}
    given = {"type": kind, "iter_size": 2, "clip_gradients": 1, "weight_decay": 0.001}
    return Twins(Every(whole, device, dtype, base_lr=0.001, **given, **momentum))


def trained(both, count):
    """So many iterations, half of them before the snapshot."""
    half = count // 2
    both.step(half)
    assert both.replays
    for k, solver in enumerate(both.both):
        solver.saving.prefix = f"twin{k}"
    paths = both.do(Solver.snapshot)
    both.step(2)
    for solver, path in zip(both.both, paths, strict=True):
        solver.restore(path)
    assert both.plain.iteration == half
    both.step(count - half)
    assert both.replays


def some_iterations(both, count):
    """Every type of layer is there; what cannot be recorded is called; all that can learn has."""
    assert {step.spec.type for step in both.plain.net.steps} == set(REGISTRY) - ELSEWHERE
    before = both.plain.net.weights()
    trained(both, count)
    after = both.plain.net.weights()
    assert [name for name in after if np.array_equal(before[name], after[name])] == []
    python = calls(both.replaying)
    assert python["own forward"] == python["own backward"] == "its Python is not minicaffe's"
    return python


@pytest.mark.parametrize(
    "form", ["compiled", pytest.param("numpy", marks=pytest.mark.long)], indirect=True
)
def test_some_iterations(form, monkeypatch):
    monkeypatch.setattr(threads, "count", lambda: 3)
    both = every(False)
    python = some_iterations(both, 8)
    for step in both.replaying.net.steps:
        assert step.layer.traits.recordable or f"{step.spec.name} forward" in python


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.long)])
def test_some_iterations_on_cuda(cuda, dtype, request):
    """What reads files, or is of the user's own Python, lies between graphs; all else is in them."""
    both = every(False, "SGD", cuda, dtype)
    some_iterations(both, 200 if request.config.getoption("--long") else 8)
    assert {graph.why for graph in graphs(both.replaying)} == {""}


@pytest.mark.long
@pytest.mark.parametrize(("kind", "asked"), [*zip(TYPES, cycle((1, 2, 3, 4)), strict=False)])
def test_200_iterations(form, kind, asked, monkeypatch):
    """Of all rows of the table."""
    monkeypatch.setattr(threads, "count", lambda: asked)
    trained(every(True, kind), 200)
