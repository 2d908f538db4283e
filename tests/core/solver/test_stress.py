"""Thousands of replayed iterations while others want the cores: none hangs, each gives the bits it gives alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
BEGIN = """
import os, sys, threading, time
from disturbed import others_take_the_cores
from minicaffe.tools.data import datasets
from core.solver.test_iteration import lenet
from core.solver.twins import twins
datasets._COUNTS, datasets._DRAWING = {'train': 50, 'test': 20}, 'few-50'
count, batch_size = map(int, sys.argv[1:])

def solver():
    return lenet(batch_size, deterministic=True).replaying

def weights(one):
    assert all(one.iterations.recordings.values()), 'nothing is replayed'
    return {name: array.tobytes() for name, array in one.net.weights().items()}

def calm(count):
    one = solver()
    one.step(count)
    return weights(one)
"""
AS_IT_IS = """
both, more = lenet(batch_size, deterministic=True), twins(', iter_size: 2, clip_gradients: 0.1')
both.step(count // 3 if count < 100 else 200)
more.step(12)
assert both.replays and more.replays
"""
LOADED = """
one = solver()
with others_take_the_cores():
    for _ in range(count // 10):
        one.step(10)
        if one.iteration % 500 == 0:
            time.sleep(0.02)  # until the threads sleep
assert weights(one) == calm(count)
"""
FORKED = """
one, children = solver(), []
one.step(10)
with others_take_the_cores():
    for turn in range(5):
        child = os.fork()
        if not child:
            one.step(count // 5 * (5 - turn))  # to where the parent ends
            os.write(1, hash_of(one))
            os._exit(0)
        children.append(child)
        one.step(count // 5)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
os.write(1, hash_of(one))
""".replace(
    "hash_of(one)",
    "(hashlib.sha256(repr(weights(one)).encode()).hexdigest() + os.linesep).encode()",
)
TWO = """
solvers, wrong = [solver() for _ in range(2)], []
solvers[1].step(3)  # out of step with the other

def train(one):
    try:
        one.step(count - one.iteration)
    except BaseException as error:
        wrong.append(error)

both = [threading.Thread(target=train, args=(one,)) for one in solvers]
with others_take_the_cores():
    for one in both: one.start()
    for one in both: one.join()
assert not wrong, wrong
assert weights(solvers[0]) == weights(solvers[1]) == calm(count)
"""


def run(script, threads, count, batch_size, minutes):
    """The script's output; where it hangs, what its threads were at."""
    watch = f"import faulthandler, hashlib\nfaulthandler.dump_traceback_later({60 * minutes - 5})\n"
    given = {"MINICAFFE_NUM_THREADS": str(threads), "PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    words = [sys.executable, "-W", "ignore", "-c", watch + BEGIN + script]
    words += [str(count), str(batch_size)]
    how = {"env": os.environ | given, "capture_output": True, "text": True}
    told = subprocess.run(words, timeout=60 * minutes, **how)
    assert told.returncode == 0, told.stderr
    return told.stdout


@pytest.fixture(autouse=True)
def in_children(form, monkeypatch):
    """The processes of a test have its form, too."""
    if form == "numpy":
        monkeypatch.setenv("MINICAFFE_NUMBA", "0")


@pytest.fixture
def many(request):
    """(iterations, minutes that they may take), of which the default suite takes few."""
    return (10_000, 30) if request.config.getoption("--long") else (60, 10)


def forms(names, few, many):
    """Parameters of a test: few of them, and many with --long."""
    rows = [*few, *(pytest.param(*one, marks=pytest.mark.long) for one in many)]
    return pytest.mark.parametrize(names, rows, indirect=["form"])


@forms(
    ("form", "threads"),
    [("compiled", 2), ("compiled", 3), ("numpy", 3)],
    [*(("compiled", count) for count in (1, 4)), *(("numpy", count) for count in (1, 2, 4))],
)
def test_any_number_of_threads(threads, many):
    """Each iteration has the bits of one that is taken as it is."""
    run(AS_IT_IS, threads, many[0], 8, many[1])


@forms(
    ("form", "threads", "batch_size"),
    [("compiled", 3, 8), ("compiled", 16, 1)],
    [("compiled", 2, 1), ("numpy", 3, 8), ("numpy", 2, 1), ("numpy", 16, 1)],
)
def test_others_take_the_cores(threads, batch_size, many):
    """Also with more threads than cores."""
    run(LOADED, threads, many[0], batch_size, many[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@forms(("form", "threads"), [("compiled", 16), ("numpy", 2)], [("compiled", 2), ("numpy", 16)])
def test_after_a_fork(threads, many):
    """Parent and children train on, all to one end."""
    told = run(FORKED, threads, many[0], 1, many[1]).split()
    assert len(told) == 6
    assert len(set(told)) == 1


@forms(("form", "threads"), [("compiled", 2), ("numpy", 16)], [("compiled", 16), ("numpy", 2)])
def test_two_threads_with_a_solver_each(threads, many):
    """Who finds the crew taken walks alone."""
    run(TWO, threads, many[0], 1, many[1])
