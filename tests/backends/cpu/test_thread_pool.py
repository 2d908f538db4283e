"""The crew walks tables of compiled loops: each row once, after the one before, whoever else wants it."""

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from core.ops import cases

from minicaffe.backends import cpu

if not cpu.available():
    pytest.skip("needs Numba", allow_module_level=True)

from minicaffe.backends.cpu import Piece, compiled
from minicaffe.backends.cpu.command import Apart
from minicaffe.backends.cpu.slices import in_slices
from minicaffe.backends.cpu.threads import at_most, run
from minicaffe.backends.replay.command_buffer import Program, recording
from minicaffe.core.ops import conv
from minicaffe.core.ops.geometry import ConvGeometry, Window

ROOT = Path(__file__).parents[3]


@compiled
def add_one(x, y, first, last):
    """y = x + 1."""
    for i in range(first, last):
        y[i] = x[i] + 1


@compiled
def mirrored(x, y, first, last):
    """y = x from its end, plus 1: each entry is another slice's."""
    for i in range(first, last):
        y[i] = x[x.size - 1 - i] + 1


@compiled
def where_it_ran(out, piece, first, last):
    """Each slice leaves its bounds in the piece that is its own, and in its row."""
    piece[0], piece[1] = first, last
    for i in range(first, last):
        out[i, 0], out[i, 1] = first, last


@compiled
def everything(x, numbers, nested, flag, y, first, last):
    """An argument of every kind."""
    (a, b), c = nested
    for i in range(first, last):
        y[i] = x[i, 1] * numbers[0] + numbers[1] + a * b[0] + c if flag else -1.0


def chain(x, y, rows, n=None):
    """A program in which each row needs all that the one before has written."""
    with recording() as made:
        for i in range(rows):
            run(mirrored, n or x.size, *((x, y) if i % 2 == 0 else (y, x)))
    assert not made.hosts
    return Program(made.rows)


@pytest.mark.parametrize("grain", [1, 3, 100])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 40])
def test_slices_of_a_loop_cover_all_once(threads, n, grain):
    """At least `grain` of them in each, if there is more than one; each has a piece of its own."""
    out, work = np.full((n, 2), -1), np.full(30, -1)
    slices = run(where_it_ran, n, out, Piece(work), grain=grain)
    assert slices == min(n, max(1, min(n // grain, threads)))
    bounds = [(n * s // slices, n * (s + 1) // slices) for s in range(slices)]
    assert out.tolist() == [[first, last] for first, last in bounds for _ in range(first, last)]
    size = 30 // max(slices, 1)
    assert [tuple(work[s * size : s * size + 2]) for s in range(slices)] == bounds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arguments_of_every_kind(threads, dtype):
    x, y, b = np.arange(20, dtype=dtype).reshape(10, 2), np.zeros(10, dtype), np.array([7], dtype)
    numbers = np.array([2, 5], dtype)
    for flag in (True, False):
        run(everything, 10, x, (dtype(3), numbers[1]), ((np.int32(-2), b), -4), flag, y)
        assert (y == (x[:, 1] * 3 + 5 - 14 - 4 if flag else -1)).all()
    run(everything, 10, x, (0.5, 1.5), ((2, b), np.uint8(200)), np.bool_(True), y)
    assert (y == x[:, 1] * dtype(0.5) + dtype(1.5) + 14 + 200).all()


def test_empty_arrays_and_tuples(threads):
    @compiled
    def count(x, nothing, y, first, last):
        for i in range(first, last):
            y[i] = x.size + len(nothing)

    y = np.full(4, -1)
    run(count, 4, np.zeros((3, 0)), (), y)
    assert not y.any()


@pytest.mark.parametrize("bad", [None, "text", np.zeros((4, 4)).T, [1, 2], object()])
def test_what_has_no_place_in_a_row_is_told(bad):
    with pytest.raises(TypeError, match="has no place in a row"):
        run(add_one, 4, bad, np.zeros(4))


@pytest.mark.parametrize("size", [1, 2, 3, 64, 1000])
def test_each_row_sees_all_of_the_one_before(threads, size):
    """Also where rows of one slice and of several take turns."""
    x, y = np.zeros(size), np.zeros(size)
    with recording() as made:
        for i in range(30):
            pair = (x, y) if i % 2 == 0 else (y, x)
            run(mirrored, size, *pair, grain=size if i % 5 < 3 else 1)
    program = Program(made.rows)
    assert (x == 30).all()
    for times in range(2, 52):
        program.run()
        assert (x == 30 * times).all()
    assert (y == x - 1).all()


def test_a_program_keeps_alive_what_its_rows_point_to(threads):
    def made():
        x, y = np.zeros(1 << 16), np.zeros(1 << 16)
        return chain(x, y, 4), x[:1]

    program, first = made()
    gc.collect()
    others = [np.ones(1 << 16) for _ in range(8)]  # which would get the memory
    for _ in range(10):
        program.run()
    assert first[0] == 44
    assert all((other == 1).all() for other in others)


def test_what_is_run_within_a_slice_is_one_slice(threads):
    ran = []

    def part(first, last, work):
        x, y = np.zeros(50), np.zeros(50)
        ran.append((run(add_one, 50, x, y), y.sum()))

    in_slices(part, 3)
    assert ran == [(1 if threads > 1 else threads, 50)] * threads


def test_recording_is_of_this_thread_alone(threads):
    x, y = np.zeros(8), np.zeros(8)
    with recording() as outer:
        run(add_one, 8, x, y)
        with recording() as inner:
            in_slices(lambda first, last, work: None, 3)
        other = threading.Thread(target=run, args=(add_one, 8, x, y))
        other.start()
        other.join()
    assert [row.name for row in outer.rows] == ["test_thread_pool.add_one"]
    assert not outer.hosts
    assert not inner.rows
    assert len(inner.hosts) == 1
    run(add_one, 8, x, y)
    assert len(outer.rows) == 1


def test_rows_do_the_same_with_fewer_threads(threads):
    """Slices are those of the recording, whoever walks them."""
    out, work = np.full((40, 2), -1), np.full(30, -1)
    with recording() as made:
        run(where_it_ran, 40, out, Piece(work))
    before = out.copy(), work.copy()
    out[:], work[:] = -1, -1
    with at_most(1):
        Program(made.rows).run()
    assert (before[0] == out).all()
    assert (before[1] == work).all()


def test_a_thread_that_sleeps_is_woken(threads):
    x, y = np.zeros(100), np.zeros(100)
    program = chain(x, y, 2)
    for times in range(2, 12):
        time.sleep(0.02)  # longer than it waits awake
        (program.run if times % 2 else lambda: in_slices(lambda *_: program.run(), 1))()
        assert (x == 2 * times).all()


def test_calls_of_python_and_tables_take_turns(threads):
    x, y, ran = np.zeros(64), np.zeros(64), []
    program = chain(x, y, 4)
    for times in range(2, 300):
        in_slices(lambda first, last, work: ran.append(first), threads)
        program.run()
        assert len(ran) == (times - 1) * threads
    with pytest.raises(ZeroDivisionError):
        in_slices(lambda first, last, work: 1 / 0, threads)
    program.run()
    assert (x == 4 * 300).all()


def test_two_threads_with_a_program_each(threads):
    """Whoever finds the crew taken walks alone; what is computed is the same."""
    together, wrong = threading.Barrier(3, timeout=600), []

    def caller(size):
        x, y = np.zeros(size), np.zeros(size)
        together.wait()
        program = chain(x, y, 10)
        for times in range(2, 400):
            program.run()
            if not (x == 10 * times).all():
                wrong.append((size, times))
            if times % 50 == 0:
                in_slices(lambda *_: None, 3)

    callers = [threading.Thread(target=caller, args=(size,)) for size in (7, 1000, 30)]
    for one in callers:
        one.start()
    for one in callers:
        one.join(600)
    assert not any(one.is_alive() for one in callers)
    assert not wrong


def test_a_finalizer_may_run_loops_at_any_time(threads):
    """Of garbage, collected in the midst of whatever a thread does."""
    x, y, z = np.zeros(64), np.zeros(64), np.zeros(64)
    program, ran = chain(x, y, 3), []

    class Garbage:
        def __init__(self):
            self.me = self

        def __del__(self):
            run(add_one, 64, z, z)
            in_slices(lambda first, last, work: ran.append(last - first), 6)

    before = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for _ in range(200):
            Garbage()
            in_slices(lambda first, last, work: [[] for _ in range(20)], threads)
            program.run()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert (z == 200).all()
    assert sum(ran) == 200 * 6


def python(script, threads, timeout=600):
    env = {**os.environ, "MINICAFFE_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    words = [sys.executable, "-W", "ignore", "-c", script]
    return subprocess.run(words, env=env, cwd=ROOT, check=True, timeout=timeout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("threads", [2, 5])
def test_programs_after_a_fork(threads):
    """In parent and child, of a program from before, with all threads asleep or awake."""
    python(
        """
import os, time
import numpy as np
from backends.cpu.test_thread_pool import chain
x, y = np.zeros(100), np.zeros(100)
program = chain(x, y, 4)
for times in range(2, 22):
    if times % 2: time.sleep(0.01)
    child = os.fork()
    program.run()
    assert (x == 4 * times).all()
    if not child:
        for more in range(1, 50):
            program.run()
            assert (x == 4 * (times + more)).all()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
""",
        threads,
    )


@pytest.mark.parametrize("threads", [8, 16])
def test_more_threads_than_cores(threads):
    """Who waits gives way: thousands of meetings in seconds, not in minutes."""
    python(
        """
import numpy as np
from backends.cpu.test_thread_pool import chain
x, y = np.zeros(1000), np.zeros(1000)
program = chain(x, y, 20)
for times in range(2, 102):
    program.run()
    assert (x == 20 * times).all()
""",
        threads,
    )


def test_ctrl_c_between_programs(tmp_path):
    """Again and again, wherever it finds the process: every program ends, and the next one runs."""
    python(
        """
import os, signal, threading, time
import numpy as np
from minicaffe.backends.cpu.slices import in_slices
from backends.cpu.test_thread_pool import chain
x, y = np.zeros(100), np.zeros(100)
program, armed, caught = chain(x, y, 4), False, 0

def press():
    while True:
        time.sleep(0.003)
        os.kill(os.getpid(), signal.SIGINT)

def interrupt(number, frame):  # but not while the last one is looked at
    global armed
    if armed:
        armed = False
        signal.default_int_handler(number, frame)

signal.signal(signal.SIGINT, interrupt)
presser = threading.Thread(target=press, daemon=True)
presser.start()
while caught < 200:
    try:
        armed = True
        while True:
            program.run()
            in_slices(lambda *_: None, 3)
    except KeyboardInterrupt:
        caught += 1
        assert x.min() == x.max() and x[0] % 4 == 0, x
        before = x[0]
        program.run()
        assert (x == before + 4).all()
        parts = []
        in_slices(lambda first, last, work: parts.append(first), 3)
        assert sorted(parts) == [0, 1, 2]
    except BaseException:
        os._exit(3)
os._exit(0)
""",
        3,
    )


LOADED = """
import time
import numpy as np
from disturbed import others_take_the_cores
from backends.cpu.test_thread_pool import chain
x, y = np.zeros(3000), np.zeros(3000)
program = chain(x, y, 10)
with others_take_the_cores():
    for times in range(2, REPLAYS + 2):
        program.run()
        assert (x == 10 * times).all(), times
        if times % 500 == 0:
            time.sleep(0.02)
"""


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_thousands_of_replays_while_others_take_the_cores(threads):
    """No hang, no call lost, no row before the one before it has ended."""
    python(LOADED.replace("REPLAYS", "10_000" if cases.LONG else "300"), threads, 1200)


@pytest.mark.parametrize("name", ["caffe", "loopfree"])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_an_engine_whose_slices_are_apart_is_replayed_on_other_numbers(name, n, threads):
    """Of each slice its own loops: as many as it has samples, and the same bits as without a trace."""
    g = ConvGeometry(n, 4, (90, 91), 6, Window((3, 3), pad=(1, 0)), 2)
    engine, rng = conv.ENGINES[name], np.random.default_rng(1)
    work = np.full(threads * engine.workspace(g, 2**22), np.nan, np.float32)
    shapes = g.x_shape, g.y_shape, g.weight_shape, (g.f,)
    x, dy, weight, bias = (rng.normal(size=shape).astype("f4") for shape in shapes)
    y, dx, dw = (np.zeros_like(array) for array in (dy, x, weight))

    def passes():
        engine.forward(x, weight, bias, g, y, work)
        engine.weight_gradient(x, dy, g, dw, work)
        engine.input_gradient(dy, weight, g, dx, work)

    with recording() as trace:
        passes()
    assert not trace.hosts
    apart = [row for row in trace.rows if isinstance(row, Apart)]
    assert [row.slices for row in apart] == [min(n, threads)] * len(apart)
    assert bool(apart) == (min(n, threads) > 1)
    for array in (x, dy, weight, bias):
        array[...] = rng.normal(size=array.shape)
    bits = []
    for again in (passes, Program(trace.rows).run):
        for array in (y, dx, work):
            array.fill(np.nan)
        dw.fill(0.5)
        again()
        bits.append([array.tobytes() for array in (y, dx, dw)])
    assert bits[0] == bits[1]
