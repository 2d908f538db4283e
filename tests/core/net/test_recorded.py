"""Work that is noted and replayed; and every layer replayed on other numbers than it was recorded with."""

from __future__ import annotations

import numpy as np
import pytest
from core.layers.rows import ROWS, net_of
from kit import numbers_of

from minicaffe import Net, parse
from minicaffe.backends import device as backend
from minicaffe.backends.replay.guards import Premise
from minicaffe.backends.replay.replay import Assumed, Call, Repeated, Segment, Tape
from minicaffe.backends.replay.training import Passes
from minicaffe.core.ops import arrays

pytestmark = pytest.mark.usefixtures("form")
CPU = backend.device("cpu")
EVERY = [(name, keys, bottoms) for name, rows in ROWS.items() for keys, bottoms in rows]


class Replayed:
    """A net whose passes, forward and backward, are recorded and replayed; or done as they are."""

    def __init__(self, text, plain):
        self.net, self.plain, self.number = Net(parse(text), device="cpu"), plain, 0
        self.noted, self.work = Passes(self.net), Repeated(CPU)
        self.premise = Premise(self.net)

    def passes(self, tape):
        for param in self.net.learnable:
            param.stale = True
        self.noted.forward(tape)
        self.noted.backward(tape)
        self.noted.end(tape)

    def run(self):
        self.noted.begin(self.number)
        self.work.run(self.passes, lambda: None if self.plain else self.premise.of_all())
        self.number += 1

    def numbers(self):
        found = {}
        for name, param in self.net.named_params.items():
            found[f"{name} data"], found[f"{name} diff"] = param.data, param.diff
        for step in self.net.steps:
            for value in step.tops:
                found[f"{value.name} data"], found[f"{value.name} diff"] = (
                    value.blob.data,
                    value.blob.diff,
                )
        return found


@pytest.mark.parametrize(("name", "keys", "bottoms"), EVERY)
def test_a_layer_replayed_on_other_numbers(form, name, keys, bottoms):
    """The same bits as a pass that is taken as it is; what is recordable lies in rows alone."""
    both = [Replayed(net_of(name, keys, bottoms), plain) for plain in (False, True)]
    random = np.random.default_rng(5)
    if any(step.layer.traits.sizes_vary for step in both[0].net.steps):
        assert both[0].premise.seen
        return
    for turn in range(6):
        for i, given in enumerate(numbers_of(bottoms, turn, random)):
            for one in both:
                one.net.blobs[f"b{i}"].data[...] = given
        for one in both:
            one.run()
        mine, theirs = both[0].numbers(), both[1].numbers()
        assert [n for n, x in mine.items() if x.tobytes() != theirs[n].tobytes()] == [], turn
    nodes = both[0].work.nodes
    assert nodes is not None, "two recordings in a row differ"
    told = {node.why for node in nodes if isinstance(node, Call) and node.what.startswith("it ")}
    if both[0].net.layers["it"].traits.recordable and form == "compiled":
        assert told <= {"mask by NumPy", "pixels are drawn"}


def counter(x):
    return lambda tape: (tape.take if tape else lambda what, work: work())(
        "add", lambda: arrays.add(ONE, x)
    )


ONE = np.ones(3)


def test_work_is_done_once_each_time_and_replayed_from_the_fourth():
    x = np.zeros(3)
    repeated, work = Repeated(CPU), counter(x)
    for i in range(1, 9):
        repeated.run(work, lambda: Assumed([], 0))
        assert list(x) == [i] * 3
        assert bool(repeated.nodes) is (i >= 3)


def test_another_premise_begins_anew_and_none_leaves_all_as_it_is():
    x, held = np.zeros(3), [0]
    repeated, work = Repeated(CPU), counter(x)
    for i in range(1, 12):
        held[0] = None if i == 5 else (1 if i > 6 else 0)
        repeated.run(work, lambda: held[0] if held[0] is None else Assumed([], held[0]))
        assert list(x) == [i] * 3
        assert bool(repeated.nodes) is (3 <= i <= 6 or i >= 9)


def test_a_premise_that_the_work_itself_changes():
    """What is asked before each run alone counts."""
    x, held = np.zeros(3), [0]
    repeated, add = Repeated(CPU), counter(x)

    def work(tape):
        held[0] += 1
        add(tape)

    for i in range(1, 7):
        held[0] = 0
        repeated.run(work, lambda: held[0] if held[0] is None else Assumed([], held[0]))
        assert list(x) == [i] * 3
    assert repeated.nodes


def test_work_that_is_another_each_time_is_never_replayed():
    x, turn = np.zeros(4), [0]

    def work(tape):
        turn[0] += 1
        part = x[turn[0] % 2 : turn[0] % 2 + 3]
        if tape is None:
            arrays.add(ONE, part)
        else:
            tape.take("add", lambda: arrays.add(ONE, part))

    repeated = Repeated(CPU)
    for _ in range(8):
        repeated.run(work, lambda: Assumed([], 0))
    assert repeated.nodes is None and list(x) == [4, 8, 8, 4]


def test_rows_and_calls_keep_their_order():
    x, said = np.ones(3), []
    tape = Tape(CPU)
    assert tape.take("double", lambda: arrays.scale(x, 2, x))
    assert not tape.take("say", lambda: said.append(x[0]), "it is Python")
    assert tape.take("add", lambda: arrays.add(ONE, x))
    first, second, third = nodes = tape.nodes()
    assert (
        isinstance(first, Segment) and isinstance(third, Segment) and second.why == "it is Python"
    )
    for node in nodes:
        node.work()
    assert list(x) == [7] * 3 and said == [2, 6]


def test_only_calls_are_not_worth_a_replay():
    tape = Tape(CPU)
    tape.take("say", lambda: None, "it is Python")
    assert tape.nodes() == []
