"""The CPU's threads: every slice once, each with work of its own, and nothing left behind."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from core.ops.cases import blank, cases
from hypothesis import given
from hypothesis import strategies as st
from kit import refusal

from minicaffe.backends.cpu import thread_pool
from minicaffe.backends.cpu import threads as module
from minicaffe.backends.cpu.slices import in_slices
from minicaffe.backends.cpu.threads import at_most, share
from minicaffe.core.ops import linear, pool
from minicaffe.core.ops.geometry import Window
from minicaffe.errors import MinicaffeError

ROOT = Path(__file__).parents[3]


@cases(60)
@given(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 50)))
def test_slices_cover_all_once(threads, n, size):
    """In order, as equal as can be, each with a piece of the work that is no other's."""
    work = None if size is None else np.zeros(size)
    slices = []

    def part(first, last, piece):
        slices.append((first, last))
        if piece is not None:
            piece += 1

    pieces = in_slices(part, n, work)
    slices.sort()
    assert len(pieces) == len(slices) == min(n, threads)
    assert [i for first, last in slices for i in range(first, last)] == list(range(n))
    assert {last - first for first, last in slices} <= {n // max(len(slices), 1), -(-n // threads)}
    if work is not None:
        assert share(work) == threads
        each = size // max(len(pieces), 1)
        assert {piece.size for piece in pieces} <= {each}
        assert (work[: len(pieces) * each] == 1).all()
        assert not work[len(pieces) * each :].any()


def test_a_slice_has_no_fewer_units_than_are_worth_a_thread(threads):
    for n, grain, most in ((5, 6, 1), (6, 6, 1), (12, 6, 2), (100, 1, 100), (0, 6, 0)):
        assert len(in_slices(lambda *_: None, n, grain=grain)) == min(most, threads)


def test_slices_run_at_the_same_time(threads):
    """Each waits for all others."""
    together = threading.Barrier(threads, timeout=600)
    in_slices(lambda first, last, work: together.wait(), threads)


def test_pieces_come_in_the_order_of_their_slices(threads):
    def part(first, last, piece):
        piece[:] = first

    pieces = in_slices(part, 7, np.zeros(3 * threads))
    assert [piece[0] for piece in pieces] == [7 * i // threads for i in range(threads)]


def test_what_is_split_once_is_not_split_again(threads):
    inner = []

    def part(first, last, work):
        def note(first, last, piece):
            inner.append((first, last, piece.size, threading.get_ident() == outer))

        outer = threading.get_ident()
        (piece,) = in_slices(note, 8, work)
        assert np.shares_memory(piece, work)

    in_slices(part, 3, np.zeros(12))
    if threads > 1:
        assert inner == [(0, 8, 12 // threads, True)] * threads
    assert len(in_slices(lambda *_: None, 3)) == threads  # and out of it, it is split again


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_error_of_any_slice_is_raised(threads, which):
    """After all slices have ended; the threads are as good as before."""
    ended = []

    def part(first, last, work):
        if first <= which < last:
            raise KeyError("no such thing")
        ended.append((first, last))

    with pytest.raises(KeyError, match="no such thing"):
        in_slices(part, 3)
    assert len(ended) == threads - 1
    assert len(in_slices(lambda *_: None, 3)) == threads


def test_an_error_of_the_first_slice_waits_for_the_others(threads):
    ended = []

    def part(first, last, work):
        if first == 0:
            raise KeyError(first)
        threading.Event().wait(0.05)
        ended.append(first)

    with pytest.raises(KeyError):
        in_slices(part, threads)
    assert sorted(ended) == list(range(1, threads))


def test_work_on_cuda_is_one_slice(threads, cuda):
    work, slices = blank(cuda, 6, np.float32), []
    assert share(work) == 1
    (piece,) = in_slices(lambda *args: slices.append(args), 5, work)
    assert piece.size == 6
    assert [args[:2] for args in slices] == [(0, 5)]


def test_blas_has_one_thread_while_minicaffe_computes_and_before_and_after_its_own():
    if module.set_blas is None:
        pytest.skip("NumPy's BLAS says no number of threads")
    script = """
import threading
from minicaffe import Net, parse
from minicaffe.backends.cpu.threads import OneThread, blas_has as get, set_blas
from minicaffe.backends.cpu.slices import in_slices

set_blas(2)
seen = []
in_slices(lambda *_: seen.append(get()), 2)
net = Net(parse("layers: [{name: x, type: Input, shape: {dim: 2}}, {name: y, type: ReLU}]"), "TEST")
net.steps[1].watchers["before_forward"] = [lambda: seen.append(get())]
net.forward(x=[1, 2])
with OneThread():
    other = threading.Thread(target=net.forward)  # comes while somebody is within, and goes
    other.start()
    other.join()
    seen.append(get())
try:
    with OneThread():
        raise KeyError
except KeyError:
    print(seen, get())
"""
    env = {**os.environ, "MINICAFFE_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    command, how = [sys.executable, "-c", script], {"text": True, "check": True}
    run = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, **how)
    assert run.stdout == "[1, 1, 1, 1, 1] 2\n"


def test_a_long_slice_is_waited_for_asleep(threads):
    """Longer than a thread stays awake, on either side."""
    for slow in range(threads):
        ended = []

        def part(first, last, work, slow=slow, ended=ended):
            if first == slow:
                threading.Event().wait(0.02)
            ended.append(first)

        in_slices(part, threads)
        assert sorted(ended) == list(range(threads))
        threading.Event().wait(0.01)


def test_two_callers_at_once_share_the_threads(threads):
    """One gets them, the other takes its slices in turn; both get all of them."""
    found, together = {}, threading.Barrier(2, timeout=600)

    def caller(name):
        together.wait()
        for _ in range(50):
            seen = []
            in_slices(lambda first, last, work, seen=seen: seen.append((first, last)), 6)
            found.setdefault(name, []).append(sorted(seen))

    callers = [threading.Thread(target=caller, args=(name,)) for name in "ab"]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    expected = [(6 * i // threads, 6 * (i + 1) // threads) for i in range(threads)]
    assert found == {"a": [expected] * 50, "b": [expected] * 50}


def test_the_number_of_threads_is_asked_for(monkeypatch):
    monkeypatch.setenv("MINICAFFE_NUM_THREADS", "")
    assert 1 <= module.count.__wrapped__() <= os.cpu_count()
    for asked, expected in (("3", 3), ("1", 1), ("0256", 256), ("1024", 1024)):
        monkeypatch.setenv("MINICAFFE_NUM_THREADS", asked)
        assert module.count.__wrapped__() == expected


@pytest.mark.parametrize("asked", ["0", "-2", "two", "²", "2.5", " ", "1025", "9" * 5000])
def test_a_number_of_threads_that_is_none_is_told(monkeypatch, asked):
    monkeypatch.setattr("os.environ", {"MINICAFFE_NUM_THREADS": asked})  # in any locale
    told = f"MINICAFFE_NUM_THREADS: expected an integer from 1 to 1024, got {asked!r:.60}"
    assert refusal(module.count.__wrapped__) == told


def test_one_thread_where_blas_cannot_be_held(monkeypatch):
    monkeypatch.setattr(module, "set_blas", None)
    monkeypatch.setenv("MINICAFFE_NUM_THREADS", "3")
    for name in module.VARIABLES_OF_BLAS:
        monkeypatch.delenv(name, raising=False)
    assert module.count.__wrapped__() == 1
    monkeypatch.setenv(module.VARIABLES_OF_BLAS[0], "1")
    assert module.count.__wrapped__() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_threads_after_a_fork():
    script = """
import os, signal
from minicaffe.backends.cpu.threads import at_most
from minicaffe.backends.cpu.slices import in_slices
signal.alarm(600)
found = []
in_slices(lambda first, last, _: found.append(first), 3)
child = os.fork()
in_slices(lambda first, last, _: found.append(first), 3)
assert sorted(found) == [0, 0, 1, 1, 2, 2], found
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    env = {**os.environ, "MINICAFFE_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, "-W", "ignore", "-c", script]
    subprocess.run(run, env=env, cwd=ROOT, check=True, timeout=600)


def test_a_slice_has_the_callers_errstate(threads):
    """A diverging run is told by its loss, not by warnings of whichever thread met the overflow."""
    with np.errstate(over="ignore"):
        in_slices(lambda *_: np.float32(3e38) * np.float32(10), 3)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        in_slices(lambda *_: np.float32(3e38) * np.float32(10), 3)


def test_an_interrupted_wait_leaves_the_threads_in_order(threads, monkeypatch):
    """Ctrl-C finds the caller waiting: the others end, and the next call is split as before."""
    if threads == 1:
        return
    error, ended = thread_pool.Job.error, []

    def interrupted(job):
        monkeypatch.setattr(thread_pool.Job, "error", error)
        raise KeyboardInterrupt

    def part(first, last, work):
        if first:
            threading.Event().wait(0.02)
        ended.append(first)

    monkeypatch.setattr(thread_pool.Job, "error", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_slices(part, threads)
    now = list(ended)
    threading.Event().wait(0.05)
    assert ended == now  # what had been begun has ended, the rest is never begun
    assert 0 in now
    test_slices_run_at_the_same_time(threads)


def test_fewer_threads_are_used_where_no_more_are_wanted(threads):
    """By this thread alone, and until the end of the block, whatever is raised there."""
    seen = []
    with pytest.raises(KeyError), at_most(2):
        seen += in_slices(lambda first, last, work: None, 9, np.zeros(6))
        other = threading.Thread(target=lambda: seen.append(share(None)))
        other.start()
        other.join()
        raise KeyError
    assert [getattr(piece, "size", piece) for piece in seen] == [6 // min(threads, 2)] * min(
        threads, 2
    ) + [threads]
    assert share(None) == threads


def test_threads_that_cannot_be_started_are_told_in_one_line(monkeypatch):
    def fails(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    told = "3 threads: can't start new thread; ask for fewer with"
    with pytest.raises(MinicaffeError, match=told):
        module._crew.__wrapped__(3, True)


def test_work_is_reserved_for_all_threads_that_may_come():
    """A net that is built while fewer are let in runs with all of them later: its pieces must hold."""
    window = Window((5, 5), (1, 1), (2, 2))
    whole = pool.workspace(window, (31, 33), (31, 33)), linear.workspace(3, 5, 7)
    with at_most(1):
        assert (pool.workspace(window, (31, 33), (31, 33)), linear.workspace(3, 5, 7)) == whole
