"""Random sequences of what a user does: a replay has the bits of passes that are taken as they are.

Faults that were there once, put back, are found.
"""

from __future__ import annotations

import itertools
import random

import pytest
from core.net import sequences
from core.net.sequences import ACTIONS, COUNT, GROUPS, NAMES, run
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe import register
from minicaffe.backends import cpu
from minicaffe.backends.replay import guards, inference
from minicaffe.core.layers import REGISTRY, blob
from minicaffe.core.net import memory
from minicaffe.core.solver import iteration
from minicaffe.tools.data import datasets

STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, len(ACTIONS) - 1), st.integers(0, 2**32 - 1)),
    min_size=3,
    max_size=14,
)


@pytest.fixture(autouse=True)
def ready(monkeypatch, tmp_path):
    """The drawn digits, but few; a layer of one's own; files go into a folder of their own."""
    pytest.importorskip("h5py")
    pytest.importorskip("PIL")
    monkeypatch.setattr(datasets, "_COUNTS", {"train": 50, "test": 20})
    monkeypatch.setattr(datasets, "_DRAWING", "few-50")
    monkeypatch.chdir(tmp_path)
    before = dict(REGISTRY)
    register(sequences.Raising)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)
    sequences.group_of.cache_clear()


def test_a_replay_is_what_it_stands_for(form, request):
    @settings(max_examples=1000 if request.config.getoption("--long") else 12)
    @given(st.integers(0, COUNT), STEPS)
    def holds(group, steps):
        assert run(group, steps) == ""

    holds()


def test_all_layers_are_in_some_group():
    assert sorted(name for group in GROUPS for name in group) == NAMES


def ids_that_are_compared(monkeypatch):
    """An object that is gone may have left its id to another."""
    of_passes = guards.Guard.of_passes

    def by_ids(self, *args):
        objects, told = of_passes(self, *args)
        self.listed = None  # which keeps them alive
        return guards.Assumed([], ([id(one) for one in objects], told))

    def forgetful(self, now):
        compute(self, now)
        del self.spec, self.rule  # which keeps the settings of the last iteration alive

    compute = iteration.Iteration.run
    monkeypatch.setattr(iteration.Iteration, "run", forgetful)
    monkeypatch.setattr(guards.Guard, "of_passes", by_ids)


def setters_that_count_nothing(monkeypatch):
    monkeypatch.setattr(blob, "_numbers", itertools.repeat(blob.Versioned.version))


def checks_that_vanish(monkeypatch):
    monkeypatch.setattr(inference, "refuses", lambda step: False)


def starts_at_what_was_overwritten(monkeypatch):
    monkeypatch.setattr(memory.Sharing, "_holds", lambda self, *args: dict(self.holds))


@pytest.mark.skipif(not cpu.available(), reason="needs Numba")
@pytest.mark.parametrize(
    ("fault", "layer", "which", "names"),
    [
        (ids_that_are_compared, None, 2, ["share"]),
        (setters_that_count_nothing, None, 2, ["share"]),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                (ids_that_are_compared, "TanH", 0, ["settings"]),
                (checks_that_vanish, "HingeLoss", 3, ["passes", "bad"]),
                (checks_that_vanish, "Embed", 3, ["passes", "bad"]),
                (starts_at_what_was_overwritten, "TanH", 4, ["part"]),
            )
        ),
    ],
)
def test_a_fault_is_found(fault, layer, which, names, monkeypatch):
    group = next((i for i, one in enumerate(GROUPS) if layer in one), COUNT)
    numbers = [i for i, action in enumerate(ACTIONS) if action.__name__ in names]
    draws = random.Random(7)
    steps = [(which, draws.choice(numbers), draws.randrange(2**32)) for _ in range(60)]
    assert run(group, steps) == ""
    fault(monkeypatch)
    assert run(group, steps)
