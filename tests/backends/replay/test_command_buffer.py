"""Calls of NumPy's that are noted and replayed: on as many threads, with as few meetings, to the same bits."""

import functools
import importlib
import threading
import time

import numpy as np
import pytest
from core.ops.cases import convolutions
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe.backends import cpu
from minicaffe.backends import device as backend
from minicaffe.backends.cpu import threads
from minicaffe.backends.cpu.slices import in_slices
from minicaffe.backends.cpu.thread_pool import Crew
from minicaffe.backends.replay.command_buffer import Program, Script, recording
from minicaffe.backends.thread_state import state
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import CAP
from minicaffe.core.ops.geometry import ConvGeometry, Window


def do(function, *args, **keywords):
    """Call a function, and record it if this thread records."""
    if state.trace is not None:
        state.trace.called(functools.partial(function, *args, **keywords))
    return function(*args, **keywords)


@pytest.fixture(autouse=True)
def by_numpy(monkeypatch):
    monkeypatch.setattr(cpu, "available", lambda: False)
    monkeypatch.setattr(threads, "count", lambda: 3)
    monkeypatch.setattr(threads, "crew", functools.cache(Crew))  # not the process's own


def late(x, seconds, out):
    """out = x + 1, in some time."""
    time.sleep(seconds)
    np.add(x, 1, out=out)


def steps(x, y, moves):
    """A row for each move: slices of y are made of slices of x, as far away as that; then the other way round."""
    for shift, delay in moves:

        def part(first, last, _, x=x, y=y, shift=shift, delay=delay):
            seen = x[shift : len(x) - shift or None]
            do(late, seen[first:last], delay[first % len(delay)], out=y[first:last])

        in_slices(part, len(x) - 2 * shift, noted=True)
        x, y = y, x


def recorded(work, *args, **keywords):
    """The script of some work, which runs."""
    with recording() as made:
        work(*args, **keywords)
    assert not made.hosts
    return Script(made.rows)


def together(script):
    script.together(threads.crew(3).run)


def ways(script):
    """To run it: by one thread, or by all."""
    return script.alone, functools.partial(together, script)


def test_threads_that_need_nothing_of_each_other_do_not_meet():
    x, y = np.zeros((6, 2)), np.zeros((6, 2))

    def work():
        steps(x, y, [(0, [0.0])] * 4)
        do(np.add, x, 1, out=y)  # of all

    assert calls(recorded(work)) == [[0, 0, 0], [4, 4, 4], [1, 0, 0]]


def calls(script):
    """How many there are, by stage and thread."""
    return [[len(part) for part in stage] for stage in script.stages]


def test_calls_come_before_others_that_they_have_nothing_to_do_with():
    """What one thread has to do for all is done before they are woken, and none waits for a sum in between."""
    x, y, z, scale, sums = (np.zeros(shape) for shape in ((6, 2), (6, 2), (6, 2), (), 2))

    def work():
        steps(x, y, [(0, [0.0])])
        do(np.add.reduce, y, axis=0, out=sums)
        do(np.copyto, scale, 2.0)
        in_slices(lambda a, b, _: do(np.multiply, y[a:b], scale, out=z[a:b]), 6, noted=True)

    script = recorded(work)
    assert calls(script) == [[1, 0, 0], [2, 2, 2], [1, 0, 0]]
    for run in ways(script):
        for array in (y, z, scale, sums):
            array.fill(-1)
        run()
        assert (y == 1).all() and (z == 2).all() and (sums == 6).all()


SLICES = st.tuples(st.integers(0, 3), st.integers(0, 3))  # where in an array a move begins and ends
MOVES = st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3), SLICES, st.booleans())


@settings(max_examples=100)
@given(moves=st.lists(MOVES, min_size=2, max_size=12), seed=st.integers(0, 2**16))
def test_calls_in_another_order_make_the_same_numbers(moves, seed):
    """Of any arrays, by one thread or by all, however late one is, over what others may still read."""
    given_to = np.random.default_rng(seed).random((4, 12))
    delay = np.random.default_rng(seed).choice([0.0, 0.0, 0.002], (len(moves), 3))

    def make(arrays):
        for move, late_by in zip(moves, delay, strict=True):
            alone, source, target, (skip, lead), turned = move
            x, y = arrays[source][skip:], arrays[target][lead:]
            x = x[::-1] if turned else x
            n = min(len(x), len(y))
            if source == target:
                x = given_to[source, -len(x) :]

            def part(a, b, _, x=x, y=y, late_by=late_by):
                do(late, x[a:b], late_by[a % 3], out=y[a:b])

            part(0, n, 0) if alone else in_slices(part, n, noted=True)

    arrays, wanted = [*given_to.copy()], [*given_to.copy()]
    script = recorded(make, arrays)
    make(wanted)
    for run in ways(script):
        for array, before in zip(arrays, given_to, strict=True):
            array[...] = before
        run()
        assert [array.tobytes() for array in arrays] == [array.tobytes() for array in wanted]


def test_without_meetings_numbers_are_wrong(monkeypatch):
    """As above: what decides where they meet can be seen to matter."""
    monkeypatch.setattr(
        "minicaffe.backends.replay.command_buffer.Touched.collides", lambda *_: False
    )
    x, y = np.arange(12.0), np.zeros(12)
    script = recorded(steps, x, y, [(3, [0.0, 0.02, 0.02]), (3, [0.0])])
    wanted = [np.arange(12.0), np.zeros(12)]
    steps(*wanted, [(3, [0.0]), (3, [0.0])])
    x[:], y[:] = np.arange(12.0), 0
    together(script)
    assert x.tobytes() != wanted[0].tobytes()


def test_an_error_on_one_thread_ends_all():
    """And is the one that is raised; the crew is there for the next."""
    x, bad = np.zeros(6), [False]

    def fails(x, first):
        if bad[0] and first:
            raise ValueError(f"at {first}")

    with recording() as made:
        in_slices(lambda first, last, _: do(fails, x[first:last], first), 6, noted=True)
        do(np.add, x, 1, out=x)
    script, bad[0] = Script(made.rows), True
    with pytest.raises(ValueError, match="at "):
        together(script)
    bad[0] = False
    together(script)
    assert list(x) == [2] * 6


def test_ctrl_c_as_threads_are_woken_hangs_nobody(monkeypatch):
    """Those that were, and wait for who never came, give up."""
    x = np.zeros(6)
    with recording() as made:
        steps(x, x, [(0, [0.0])] * 2)
        do(np.add, x, 1, out=x)
        steps(x, x, [(0, [0.0])])
    script, crew = Script(made.rows), threads.crew(3)
    assert len(script.stages) > 1

    def interrupted(calls):
        raise KeyboardInterrupt

    before = crew.__class__._wake
    monkeypatch.setattr(crew.__class__, "_wake", lambda self, t: interrupted(t) if t == 2 else None)
    with pytest.raises(KeyboardInterrupt):
        script.together(crew.run)
    monkeypatch.setattr(crew.__class__, "_wake", before)
    x[:] = 0
    script.together(crew.run)
    assert list(x) == [4] * 6


def test_what_threads_work_in_is_theirs_until_they_meet():
    """Of an update of two groups the second, of fewer slices, waits for who works where it will."""
    from minicaffe.backends.device import device
    from minicaffe.core.ops.update import Parts, update

    w, d, h = (np.zeros(220_000, np.float32) for _ in range(3))
    numbers = np.array([[0.1, 0.9, 0.0]] * 2)
    parts = Parts([(200_000, 0), (220_000, 1)], device("cpu"))
    given = w, d, [h], numbers, parts, "L2", 1.0, np.empty(2**18, np.float32), np.zeros(1, np.int32)
    script = recorded(update, "sgd", *given)
    assert [row.slices for row in script.rows] == [3, 2]
    assert len(script.stages) == 3


def test_two_threads_of_python_at_once():
    """The crew is one's at a time: the other makes its calls by itself."""
    scripts, arrays = [], [np.zeros(9) for _ in range(2)]
    for x in arrays:
        scripts.append(Program(recorded(steps, x, x, [(0, [0.001])] * 3).rows))
        x[:] = 0

    def run(program):
        for _ in range(20):
            program.run()

    both = [threading.Thread(target=run, args=(one,)) for one in scripts]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert all(list(x) == [60] * 9 for x in arrays)


def test_a_step_that_takes_memory_is_never_the_same():
    """What it is given lies elsewhere each time; so it is not replayed."""
    x = np.zeros(3)
    noted = [recorded(lambda: do(np.add, x, np.ones(3), out=x)).rows for _ in range(2)]
    assert noted[0] != noted[1]


def test_where_loops_are_compiled_calls_are_no_rows(monkeypatch):
    monkeypatch.setattr(cpu, "available", lambda: True)
    with recording() as made:
        do(np.add, np.zeros(2), 1, out=np.zeros(2))
    assert made.rows == [] and made.hosts == ["add by NumPy"]


BY_NUMPY = [name for name in conv.ENGINES if name != "packed"]


@pytest.mark.parametrize("name", BY_NUMPY)
@settings(max_examples=15)
@given(data=st.data())
def test_a_convolution_replayed_on_other_numbers(name, data):
    """Each strategy and direction gives the bits of a run as it is, into memory that held something else."""
    op = importlib.import_module("minicaffe.core.ops.conv").ENGINES[name]
    g = data.draw(convolutions().filter(lambda g: op.refuses(g) is None))
    rng = np.random.default_rng(0)
    work = np.full(3 * op.workspace(g, CAP // 4), np.nan)
    shapes = g.x_shape, g.y_shape, g.weight_shape, (g.f,)
    x, dy, weight, bias = (rng.normal(size=shape) for shape in shapes)
    y, dx, dw, db = (np.zeros(shape) for shape in (g.y_shape, g.x_shape, *shapes[2:]))

    def run():
        op.forward(x, weight, bias, g, y, work)
        op.weight_gradient(x, dy, g, dw, work)
        op.input_gradient(dy, weight, g, dx, work)
        conv.common.bias_gradient(dy, g, db, work)

    script = recorded(run)
    for array in (x, dy, weight, bias):
        array[...] = rng.normal(size=array.shape)
    found = []
    for again in (run, *ways(script)):
        for array in (y, dx, work):
            array.fill(np.nan)
        dw.fill(0.5)
        db.fill(0.5)
        again()
        found.append([array.tobytes() for array in (y, dx, dw, db)])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("filters", [8, 20, 64])
def test_the_bias_waits_for_no_thread(filters):
    """What sums its gradient lies behind what sums the weight's, in lines of its own."""
    g = ConvGeometry(66, 8, (20, 20), filters, Window((3, 3)))
    plan = conv.plan(g, np.float32, backend.device("cpu"), "batched", CAP)
    x, dy, weight = (np.ones(s, np.float32) for s in (g.x_shape, g.y_shape, g.weight_shape))
    dw, db = np.zeros_like(weight), np.zeros(filters, np.float32)
    work = np.empty(plan.workspace, np.float32)
    scripts = [recorded(plan.gradients, x, dy, weight, None, dw, b, work) for b in (db, None)]
    assert len(scripts[0].stages) == len(scripts[1].stages)
