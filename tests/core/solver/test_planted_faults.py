"""Faults planted in what is replayed: the comparison with iterations taken as they are finds each."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from core.solver.twins import twins

from minicaffe.backends.cpu.command import Calls
from minicaffe.backends.replay.replay import Call, Segment
from minicaffe.backends.replay.training import Passes

pytestmark = pytest.mark.usefixtures("form", "fifty_digits")


def of_rows(what, change):
    """The fault of other rows: `change` gives them for a segment that has some of `what`, and their places."""

    def plant(solver, patch):
        nodes = solver.iterations.recordings["iteration"]
        for i, node in enumerate(nodes):
            if isinstance(node, Segment) and what in node.whose:
                rows = list(zip(node.whose, node.rows, strict=True))
                nodes[i] = Segment(
                    change(rows, [k for k, row in enumerate(rows) if row[0] == what])
                )

    return plant


def left_out(rows, places):
    return [row for i, row in enumerate(rows) if i not in places]


def another_first(of_calls, of_one):
    """The first of them is another row: of NumPy's calls, or of a loop."""

    def change(rows, places):
        what, row = rows[places[0]]
        rows[places[0]] = what, of_calls(row) if isinstance(row, Calls) else of_one(row)
        return rows

    return change


def behind_pooling(rows, places):
    i, k = places[0], next(k for k, row in enumerate(rows) if row[0] == "pool forward")
    rows[i], rows[k] = rows[k], rows[i]
    return rows


def copies(args):
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def reads_elsewhere(row):
    first = row.parts[0][0]
    writes = getattr(first.func, "writes", ("out",))
    keywords = {k: v if k in writes else copies((v,))[0] for k, v in first.keywords.items()}
    moved = partial(first.func, *copies(first.args), **keywords)
    return Calls([[moved, *row.parts[0][1:]], *row.parts[1:]])


def a_rate_of_before(solver, patch):
    patch.setattr(solver.rule, "prepare", lambda rate, i: solver.watch.expect(i))


def a_batch_of_before(solver, patch):
    nodes = solver.iterations.whole.nodes
    nodes[:] = [node for node in nodes if getattr(node, "what", "") != "the batch"]


def the_number_of_another_pass(solver, patch):
    """Data and Dropout are functions of it."""
    noted = solver.iterations.noted
    patch.setattr(noted, "begin", lambda first: Passes.begin(noted, first + 1))


def that_nobody_sees(change):
    """What was recorded goes on, over what is not the net's any more."""

    def plant(solver, patch):
        assumed = solver.iterations.whole.assumed
        patch.setattr(solver.iterations.premise, "of_all", lambda objects: assumed)
        change(solver.net)
        solver.iterations.taken = solver.net.context.taken

    return plant


def other_decay(net):
    net.params["ip"][0].decay_mult = 50.0


FAULTS = {
    "a row left out": of_rows("relu backward", left_out),
    "two rows in each other's place": of_rows("ip forward", behind_pooling),
    "a stale address": of_rows(
        "left forward",
        another_first(reads_elsewhere, lambda row: dataclasses.replace(row, args=copies(row.args))),
    ),
    "a slice too few": of_rows(  # the last units of a row are nobody's
        "relu forward",
        another_first(
            lambda row: Calls([*row.parts[:-1], []]),
            lambda row: dataclasses.replace(row, n=row.n - 1),
        ),
    ),
    "a row twice": of_rows("SGD", lambda rows, places: [*rows, rows[places[-1]]]),
    "a loss of before": of_rows("loss", left_out),
    "a rate of before": a_rate_of_before,
    "a batch of before": a_batch_of_before,
    "the number of another pass": the_number_of_another_pass,
    "a reshape that nobody sees": that_nobody_sees(lambda net: net.memory.take(net.graph)),
    "a multiplier that nobody sees": that_nobody_sees(other_decay),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, monkeypatch):
    both = twins(", lr_policy: exp, gamma: 0.9", keep=None)
    both.step(6)
    assert both.replays
    FAULTS[fault](both.replaying, monkeypatch)
    if "multiplier" in fault:
        other_decay(both.plain.net)
    with pytest.raises(AssertionError, match="apart"):
        both.step(3)


def test_without_a_fault_nothing_is_found(monkeypatch):
    both = twins(", lr_policy: exp, gamma: 0.9", keep=None)
    both.step(6)
    of_rows("ip forward", lambda rows, places: rows)(both.replaying, monkeypatch)
    both.step(3)
    assert both.replays and isinstance(both.replaying.iterations.whole.nodes[0], Call)
