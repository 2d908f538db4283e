"""Whatever a user does between passes, a replay has the bits of passes that are taken as they are.

Each act alone, and random sequences of them; faults that were there once, put back, are found.
"""

import itertools
import random

import pytest
from core.net import sequences
from core.net.sequences import (
    ACTIONS,
    ACTS,
    CASES,
    CHANGES,
    CHANGES_OF_TRAINING,
    GROUPS,
    NAMES,
    NET,
    ONE_PARAMETER,
    SHARING,
    SMALL_NET,
    SOLVER,
    TWO_BATCHES,
    Worlds,
)
from core.solver.twins import replays
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import registered

from minicaffe.backends import cpu
from minicaffe.backends.replay import guards, inference
from minicaffe.core.layers import blob
from minicaffe.core.net import memory
from minicaffe.core.solver import iteration

STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, len(ACTIONS) - 1), st.integers(0, 2**32 - 1)),
    min_size=3,
    max_size=14,
)


@pytest.fixture(autouse=True)
def ready(fifty_digits):
    """The drawn digits, but few; a layer of one's own; files go into a folder of their own."""
    pytest.importorskip("h5py")
    pytest.importorskip("PIL")
    with registered(sequences.Raising):
        yield
    sequences.group_of.cache_clear()


IDS = {SOLVER: "solver", NET: "net", SHARING: "sharing"}.get


IN_BATCHES = "bad", "raises", "one_half"


def between(name, which, device="cpu", counts=(0, 1, 2, 3, 6)):
    """Do something before, between and behind passes that are recorded, and between such as are replayed."""
    worlds = Worlds(TWO_BATCHES if which == SOLVER and name in IN_BATCHES else SMALL_NET, device)
    for before in counts:
        for _ in range(before):
            worlds.do(sequences.one_pass, which)
        worlds.do(ACTS[name], which, before)
        if name in IN_BATCHES:
            worlds.do(sequences.half, which)
    worlds.do(look_away, which)
    for _ in range(4):
        worlds.do(sequences.one_pass, which)
    assert replays(worlds.both[0][which])


def look_away(world, which, random):
    """Nobody watches any more."""
    world.net(which).debug = None
    for step in world.net(which).steps:
        step.watchers.clear()


@pytest.mark.parametrize(("name", "which"), CASES, ids=IDS)
def test_what_is_done_between_passes(form, name, which):
    between(name, which)


SOON = ("feed", NET), ("replace", NET), ("resize", SOLVER), ("raises", SOLVER), ("settings", SOLVER)
ON_CUDA = [*SOON, *(pytest.param(*case, marks=pytest.mark.long) for case in CASES)]


@pytest.mark.parametrize(("name", "which"), ON_CUDA, ids=IDS)
def test_what_is_done_between_passes_on_cuda(cuda, name, which):
    between(name, which, cuda, (1, 6))


def changed(change, which, device="cpu"):
    """A change ends a replay, and begins another."""
    worlds = Worlds(SMALL_NET, device)
    one = worlds.both[0][which]
    for count, replayed in ((4, True), (1, False), (4, True)):
        for _ in range(count):
            worlds.do(sequences.one_pass, which)
        assert replays(one) is replayed
        if count == 4:
            worlds.do(lambda world, which, random: change(world.net(which)), which)


@pytest.mark.parametrize("which", [SOLVER, NET], ids=IDS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(form, name, which):
    changed(CHANGES[name], which)


@pytest.mark.parametrize("which", [SOLVER, NET, SHARING], ids=IDS)
@pytest.mark.parametrize("name", ["debug", "load", "loss", "part", "watch", "write"])
def test_what_is_no_change_ends_no_replay(form, name, which):
    worlds = Worlds(SMALL_NET)
    for _ in range(4):
        worlds.do(sequences.one_pass, which)
    for seed in range(4):
        for act in (ACTS[name], look_away, sequences.one_pass):
            worlds.do(act, which, seed)
            assert replays(worlds.both[0][which])


@pytest.mark.parametrize("name", CHANGES_OF_TRAINING)
def test_a_change_of_training_is_noticed(form, name):
    changed(CHANGES_OF_TRAINING[name], SOLVER)


@pytest.mark.parametrize("name", CHANGES | CHANGES_OF_TRAINING)
def test_a_change_on_cuda_is_noticed(cuda, name):
    changed((CHANGES | CHANGES_OF_TRAINING)[name], SOLVER, cuda)


def test_a_replay_is_what_it_stands_for(form, request):
    @settings(max_examples=1000 if request.config.getoption("--long") else 12)
    @given(st.integers(0, len(GROUPS) - 1), STEPS)
    def holds(group, steps):
        worlds = Worlds(group)
        for which, number, seed in steps:
            worlds.do(ACTIONS[number], which, seed)

    holds()


def test_all_layers_are_in_some_group():
    assert sorted(name for group in GROUPS[:ONE_PARAMETER] for name in group) == NAMES


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
    group = next((i for i, one in enumerate(GROUPS) if layer in one), ONE_PARAMETER)
    draws = random.Random(7)
    steps = [(ACTS[draws.choice(names)], which, draws.randrange(2**32)) for _ in range(60)]

    def do_all():
        worlds = Worlds(group)
        for step in steps:
            worlds.do(*step)

    do_all()
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        do_all()
