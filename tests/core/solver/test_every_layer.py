"""A net of every layer: iterations that are replayed have the bits of such as are taken as they are.

With iter_size 2, clipping, dropout, and a snapshot in their midst that both go on from.
"""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from core.layers.test_every_layer import Stretched
from core.solver.every_layer import ELSEWHERE, Every
from core.solver.twins import Twins, calls

from minicaffe import register
from minicaffe.backends.cpu import threads
from minicaffe.core.layers import REGISTRY
from minicaffe.tools.data import datasets

TYPES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW")
WITHOUT_MOMENTUM = "AdaGrad", "RMSProp"


@pytest.fixture(autouse=True)
def ready(monkeypatch, tmp_path):
    """The drawn digits, but few; a layer of one's own; files go into a folder of their own."""
    pytest.importorskip("h5py")
    pytest.importorskip("PIL")
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 50, "test": 20})
    monkeypatch.setattr(datasets, "_DRAWING", "few-50")
    monkeypatch.chdir(tmp_path)
    before = dict(REGISTRY)
    register(Stretched)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def every(whole, kind, **settings):
    momentum = {} if kind in WITHOUT_MOMENTUM else {"momentum": 0.9}
    given = {"type": kind, "iter_size": 2, "clip_gradients": 1, "weight_decay": 0.001}
    return Twins(Every(whole, base_lr=0.001, **given, **momentum, **settings))


def trained(both, count):
    """So many iterations, half of them before the snapshot."""
    half = count // 2
    both.step(half)
    assert both.replays
    for k, solver in enumerate(both.both):
        solver.saving.prefix = f"twin{k}"
    paths = [solver.snapshot() for solver in both.both]
    both.step(2)
    for solver, path in zip(both.both, paths, strict=True):
        solver.restore(path)
    assert both.plain.iteration == half
    both.step(count - half)
    assert both.replays


@pytest.mark.parametrize(
    "form", ["compiled", pytest.param("numpy", marks=pytest.mark.long)], indirect=True
)
@pytest.mark.parametrize(("kind", "asked"), [("Adam", 3)])
def test_some_iterations(form, kind, asked, monkeypatch):
    """Every type of layer is there; what cannot be recorded lies between segments; all that can learn has."""
    monkeypatch.setattr(threads, "count", lambda: asked)
    both = every(False, kind)
    held = {step.spec.type for step in both.plain.net.steps}
    assert held == set(REGISTRY) - ELSEWHERE
    before = both.plain.net.weights()
    trained(both, 8)
    after = both.plain.net.weights()
    assert [name for name in after if np.array_equal(before[name], after[name])] == []
    python = calls(both.replaying)
    for step in both.replaying.net.steps:
        assert step.layer.traits.recordable or f"{step.spec.name} forward" in python
    assert python["own forward"] == python["own backward"] == "its Python is not minicaffe's"


@pytest.mark.parametrize(("kind", "asked"), [*zip(TYPES, cycle((1, 2, 3, 4)), strict=False)])
def test_200_iterations(form, kind, asked, monkeypatch, request):
    """Of all rows of the table."""
    if not request.config.getoption("--long"):
        pytest.skip("takes a minute: --long")
    monkeypatch.setattr(threads, "count", lambda: asked)
    trained(every(True, kind), 200)
