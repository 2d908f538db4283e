"""The cache folder on a disk on which one call after the other fails, or whose power is cut.

Whatever fails, what is asked for is what an empty cache would return, now and the next time, and what is left of
a file is removed when it is written anew: plans, loops, drawn digits, the note of a fetch that failed. The default
suite tries some calls; `--long` all.
"""

import os
import shutil

import numpy as np
import pytest
from faults.disk import STATES, Disk, Fault, cut, faults_of, noted

from minicaffe.backends import cpu
from minicaffe.backends import device as backend
from minicaffe.core.ops.conv import CAP, autotune_cache
from minicaffe.core.ops.conv.autotune import DIRECTIONS, Finding
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window
from minicaffe.storage import caches
from minicaffe.tools.data import datasets


def plan(monkeypatch):
    """The times of a convolution's engines."""

    def measure(case):
        times = dict.fromkeys(case.candidates, 1.0)
        return {way: Finding(times, dict.fromkeys(times, 0.0), "2020-01-01") for way in DIRECTIONS}

    monkeypatch.setattr(autotune_cache, "measure", measure)
    monkeypatch.setattr(autotune_cache, "_known", {})
    geometry = ConvGeometry(4, 6, (16, 14), 8, Window((3, 3)))
    findings, _ = autotune_cache.findings(
        Case(geometry, np.dtype("f4"), backend.device("cpu"), CAP)
    )
    return {way: (one.ms, one.error, one.date) for way, one in findings.items()}


def loop(monkeypatch):
    """What a loop computes that is found, or compiled."""
    if not cpu.available():
        pytest.skip("needs Numba")
    from minicaffe.backends.cpu import compile_cache

    for cached in (compile_cache.folder, compile_cache._can_keep):
        cached.cache_clear()

    def twice(x: float) -> float:
        return 2 * x

    return cpu.compiled(twice)(1.5)


def digits(monkeypatch):
    """Some digits that are drawn, or were."""
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 10, "test": 10})
    found = datasets.load("digits", "test")
    return found.images.tobytes(), found.labels.tobytes()


@pytest.fixture(params=[plan, loop, digits], ids=lambda use: use.__name__)
def use(request, monkeypatch):
    """What reads and writes the cache of a folder; returns what was asked for."""
    from_users = caches.folder

    def used(folder):
        monkeypatch.setattr(caches, "folder", lambda: folder)
        try:
            return request.param(monkeypatch)
        finally:
            monkeypatch.setattr(caches, "folder", from_users)

    return used


def clean(folder):
    """Nothing temporary is left: what lies there is as old as what would be removed."""
    return not [path for path in folder.rglob(".*") if path.is_file()]


def spread(every, request, most):
    """All cases, or about so many of them."""
    return every if request.config.getoption("--long") else every[:: max(1, len(every) // most)]


def test_each_call_fails_in_turn(tmp_path, use, request):
    with Disk(tmp_path / "straight") as disk:
        wanted = use(tmp_path / "straight")
    assert use(tmp_path / "straight") == wanted and clean(tmp_path / "straight") and disk.calls
    wrong, broken = list[str](), tmp_path / "broken"
    for k, error in spread(faults_of(disk.calls), request, 12):
        with noted(wrong, disk, k, error):
            with Disk(broken, {k: Fault(error)}):
                assert use(broken) == wanted
            assert clean(broken) or disk.calls[k - 1].kind == "unlink"
            assert use(broken) == wanted
        shutil.rmtree(broken, ignore_errors=True)
    assert not wrong, "\n".join(wrong)


def test_the_power_is_cut_after_each_call(tmp_path, use, request):
    with Disk(tmp_path / "straight") as disk:
        wanted = use(tmp_path / "straight")
    every = [(k, state) for k in range(len(disk.calls) + 1) for state in STATES]
    wrong, left = list[str](), tmp_path / "left"
    for k, state in spread(every, request, 12):
        left.mkdir()
        with noted(wrong, disk, k, state):
            cut(disk, k, state, left)
            for path in left.rglob("*"):
                os.utime(path, (0, 0))
            assert use(left) == wanted
            assert clean(left)
            assert use(left) == wanted
        shutil.rmtree(left)
    assert not wrong, "\n".join(wrong)
