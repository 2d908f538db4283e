"""Work that is the same each time is noted and replayed."""

import numpy as np
import pytest

from minicaffe.backends import device as backend
from minicaffe.backends.replay.replay import Assumed, Repeated, Segment, Tape
from minicaffe.core.ops import arrays

pytestmark = pytest.mark.usefixtures("form")
CPU = backend.device("cpu")


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
