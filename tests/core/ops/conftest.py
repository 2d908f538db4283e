"""--long, the forms of an op and the number of threads, for the tests of the ops."""

import pytest
from core.ops import cases
from core.ops.cases import need_loops

from minicaffe.backends import device as backend
from minicaffe.backends.cpu import threads as module
from minicaffe.core.ops.conv import ENGINES


def pytest_configure(config):
    cases.LONG = config.getoption("--long")


def pytest_collection_modifyitems(config, items):
    """On CUDA the number of threads makes no difference: one of them is enough."""
    cases.FULL = config.getoption("--long") or config.getoption("--full")
    idle = {
        item
        for item in items
        if _params(item).get("device") == "cuda" and _params(item).get("threads", 3) != 3
    }
    config.hook.pytest_deselected(items=[*idle])
    items[:] = [item for item in items if item not in idle]


def _params(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(params=["cpu", "cpu-compiled", "cuda"])
def device(request, monkeypatch):
    """Each form of an op in turn: NumPy's, the one compiled by Numba, the CUDA kernels."""
    if request.param == "cuda":
        return request.getfixturevalue("cuda")
    if request.param == "cpu-compiled":
        need_loops()
    monkeypatch.setattr("minicaffe.backends.cpu.available", lambda: request.param == "cpu-compiled")
    return backend.device("cpu")


@pytest.fixture(scope="session", autouse=True)
def crew():
    """More threads than any test wants; and the process's own, before a test hides the loops from it."""
    module.crew(module.count())
    return module.crew(64)


@pytest.fixture
def engines():
    """All engines are there again after a test, in their order."""
    before = dict(ENGINES)
    yield
    ENGINES.clear()
    ENGINES.update(before)


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.long), 3])
def threads(request, monkeypatch, crew):
    """That many threads, however few the cores."""
    monkeypatch.setattr("minicaffe.backends.cpu.threads.count", lambda: request.param)
    monkeypatch.setattr("minicaffe.backends.cpu.threads.crew", lambda threads: crew)
    return request.param
