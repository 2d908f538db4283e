"""Faults planted in what is replayed: the comparison with iterations taken as they are finds each."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from core.solver.twins import twins
from kit import few_digits

from minicaffe.backends.cpu.command import Calls
from minicaffe.backends.replay.replay import Call, Segment
from minicaffe.backends.replay.training import Passes

pytestmark = pytest.mark.usefixtures("form")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """The drawn digits, but few."""
    few_digits(monkeypatch)


def change_rows(solver, change, *has):
    """Have a replay go by other rows: `change` gives (what, row) for those of a segment that has all of these."""
    nodes = solver.iterations.recordings["iteration"]
    for i, node in enumerate(nodes):
        if isinstance(node, Segment) and set(has) <= set(node.whose):
            nodes[i] = Segment(change(list(zip(node.whose, node.rows, strict=True))))


def of(what, rows):
    """The place of the first row of a layer's pass."""
    return next(i for i, (whose, _) in enumerate(rows) if whose == what)


def a_row_left_out(solver, patch):
    change_rows(solver, lambda rows: [r for r in rows if r[0] != "relu backward"])


def two_rows_in_each_others_place(solver, patch):
    def change(rows):
        i, k = of("pool forward", rows), of("ip forward", rows)
        rows[i], rows[k] = rows[k], rows[i]
        return rows

    change_rows(solver, change, "pool forward", "ip forward")


def a_stale_address(solver, patch):
    """An array that a row reads has moved; the row still reads where it was."""

    def change(rows):
        i = of("left forward", rows)
        what, row = rows[i]
        if isinstance(row, Calls):
            first = row.parts[0][0]
            writes = getattr(first.func, "writes", ("out",))
            keywords = {k: v if k in writes else copies((v,))[0] for k, v in first.keywords.items()}
            moved = partial(first.func, *copies(first.args), **keywords)
            rows[i] = what, Calls([[moved, *row.parts[0][1:]], *row.parts[1:]])
        else:
            rows[i] = what, dataclasses.replace(row, args=copies(row.args))
        return rows

    change_rows(solver, change, "left forward")


def copies(args):
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def a_slice_too_few(solver, patch):
    """The last units of a row are nobody's."""

    def change(rows):
        i = of("relu forward", rows)
        what, row = rows[i]
        if isinstance(row, Calls):
            rows[i] = what, Calls([*row.parts[:-1], []])
        else:
            rows[i] = what, dataclasses.replace(row, n=row.n - 1)
        return rows

    change_rows(solver, change, "relu forward")


def a_row_twice(solver, patch):
    """As when a thread walks a table again."""

    def change(rows):
        rows.append([row for row in rows if row[0] == "SGD"][-1])
        return rows

    change_rows(solver, change, "SGD")


def a_rate_of_before(solver, patch):
    patch.setattr(solver.rule, "prepare", lambda rate, i: solver.watch.expect(i))


def a_batch_of_before(solver, patch):
    nodes = solver.iterations.whole.nodes
    nodes[:] = [node for node in nodes if getattr(node, "what", "") != "the batch"]


def the_number_of_another_pass(solver, patch):
    """Data and Dropout are functions of it."""
    patch.setattr(
        solver.iterations.noted,
        "begin",
        lambda first: Passes.begin(solver.iterations.noted, first + 1),
    )


def a_reshape_that_nobody_sees(solver, patch):
    """What was recorded goes on, over arrays that are not the net's any more."""
    held = solver.iterations.whole.assumed
    patch.setattr(solver.iterations, "_of_iteration", lambda: held)
    solver.net.memory.take(solver.net.graph)
    solver.iterations.taken = solver.net.context.taken


def a_multiplier_that_nobody_sees(solver, patch):
    held = solver.iterations.whole.assumed
    patch.setattr(solver.iterations, "_of_iteration", lambda: held)
    solver.net.params["ip"][0].decay_mult = 50.0


def a_loss_of_before(solver, patch):
    change_rows(solver, lambda rows: [r for r in rows if r[0] != "loss"])


FAULTS = [
    *(a_row_left_out, two_rows_in_each_others_place, a_stale_address, a_slice_too_few, a_row_twice),
    *(a_rate_of_before, a_batch_of_before, the_number_of_another_pass, a_reshape_that_nobody_sees),
    *(a_multiplier_that_nobody_sees, a_loss_of_before),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, monkeypatch):
    both = twins(", lr_policy: exp, gamma: 0.9", keep=None)
    both.step(6)
    assert both.replays
    fault(both.replaying, monkeypatch)
    if fault is a_multiplier_that_nobody_sees:
        both.plain.net.params["ip"][0].decay_mult = 50.0
    with pytest.raises(AssertionError, match="iteration"):
        both.step(3)


def test_without_a_fault_nothing_is_found():
    both = twins(", lr_policy: exp, gamma: 0.9", keep=None)
    both.step(6)
    change_rows(both.replaying, lambda rows: rows)
    both.step(3)
    assert both.replays and isinstance(both.replaying.iterations.whole.nodes[0], Call)
