"""The planner's stopwatch: what it may see, and of how many samples; on CUDA by a clock of our own."""

import dataclasses
import functools

import numpy as np
import pytest
from gpu import HAS_GPU

from minicaffe.backends import cpu
from minicaffe.backends import device as backend
from minicaffe.backends.cpu import threads
from minicaffe.backends.cpu.thread_pool import Crew
from minicaffe.backends.cuda import implicit_gemm, launch
from minicaffe.core.ops import conv
from minicaffe.core.ops.conv import autotune
from minicaffe.core.ops.conv.engine import ENGINES
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window

SOME = ConvGeometry(16, 1, (6, 6), 5, Window((3, 3)))
MANY = ConvGeometry(128, 1, (12, 12), 5, Window((3, 3)))


def test_no_compiler_is_timed(cuda, monkeypatch):
    """NVRTC takes 100 to 1000 ms a kernel and tile; each is compiled when it is first asked for."""
    if HAS_GPU:
        pytest.skip("the stopwatch is the test's")
    compiled, while_timed, running, kernels = set(), [], [], launch.kernels

    def timer(self):
        running.append(self)
        return lambda: running.clear() or 1.0

    def slow(*which):
        while_timed.extend([which] if running and which not in compiled else [])
        compiled.add(which)
        return kernels(*which)

    monkeypatch.setattr(type(cuda), "timer", timer)
    monkeypatch.setattr(launch, "kernels", slow)
    monkeypatch.setattr(type(ENGINES["implicit"]), "traced", False)  # a replay runs once untimed
    few = 2 * SOME.places + 1  # columns of all samples get another tile than of two
    monkeypatch.setattr(implicit_gemm, "_share", lambda n, *_: ((1, 2 + 2 * (n[1] > few)), 1))
    autotune.measure(Case(SOME, np.dtype("f4"), cuda, conv.CAP))
    assert {
        tuple(template.split(", ")[:4]) for file, template, _ in compiled if file == "implicit.cu"
    } == {("float", "float", "1", n) for n in "24"}  # of two samples, and of all
    assert while_timed == []


def test_on_cuda_several_runs_are_timed_as_one_graph(cuda, monkeypatch):
    """To launch a kernel takes longer than many take; a graph launches all of them."""
    if HAS_GPU:
        pytest.skip("the stand-in counts graphs")
    import cupy

    monkeypatch.setattr(type(cuda), "timer", lambda self: lambda: 30.0)
    case = Case(SOME, np.dtype("f4"), cuda, conv.CAP)
    arrays, before = autotune._Arrays(case, SOME, case.candidates), cupy.graphs
    with cuda.current():
        assert arrays.time("batched", "forward") == 30.0 / autotune.RUNS
        assert cupy.graphs == before + 2  # the first is not timed
        arrays.outs["forward"].fill(np.nan)
        arrays.time("batched", "forward")
        assert cupy.graphs == before + 3
        assert np.isfinite(cuda.to_host(arrays.outs["forward"])).all()
    few = autotune._Arrays(case, dataclasses.replace(SOME, n=2), case.candidates)
    assert few.time("batched", "forward") == 30.0


def test_on_cuda_no_engine_is_tried_that_launches_for_each_sample(cuda):
    candidates = Case(MANY, np.dtype("f4"), cuda, conv.CAP).candidates
    assert {"batched", "implicit"} < set(candidates)
    assert not {"caffe", "loopfree"} & set(candidates)


@pytest.mark.parametrize("device", ["cpu-compiled"], indirect=True)
def test_what_is_recorded_is_timed_without_its_python(device, monkeypatch):
    """Else Python of an engine, which training runs once, decides among quick convolutions."""
    case = Case(SOME, np.dtype("f4"), device, conv.CAP)
    arrays = autotune._Arrays(case, SOME, case.candidates)
    names = [name for name in case.candidates if case.recordable(name)]
    assert names
    for name in names:
        for direction in ("forward", "input_gradient"):
            arrays.time(name, direction)
            expected = arrays.outs[direction].copy()
            arrays.outs[direction].fill(np.nan)
            with monkeypatch.context() as patch:
                patch.setattr(arrays, "run", None)
                assert arrays.time(name, direction) > 0
            np.testing.assert_array_equal(arrays.outs[direction], expected)


@pytest.mark.parametrize(
    ("launches", "sample", "timed"),
    [(4.0, 0.01, 128), (4.0, 0.3, 128), (0.1, 1.0, 64), (1.0, 40.0, 2)],
)
def test_all_samples_are_timed_unless_they_truly_take_long(
    cuda, monkeypatch, launches, sample, timed
):
    """The ms of few samples are those of launches: to multiply them would make of a quick batch a slow one."""
    seen = []

    def time(self, name, direction):
        seen.append(self.g.n)
        return launches + sample * self.g.n

    monkeypatch.setattr(autotune._Arrays, "time", time)
    monkeypatch.setattr(autotune._Arrays, "run", lambda self, name, way: self.outs[way])
    monkeypatch.setattr(autotune._Arrays, "error", lambda *_: 0.0)
    found = autotune.measure(Case(MANY, np.dtype("f4"), cuda, conv.CAP))
    assert abs(seen[-1] - timed) <= 16
    scaled = (launches + sample * seen[-1]) * 128 / seen[-1]
    assert found["forward"].ms["batched"] == pytest.approx(scaled)


@pytest.mark.parametrize("count", [2, 3, 4, 16])
def test_few_samples_by_many_threads_of_numpy(monkeypatch, count):
    """Of the two that show errors each has a thread: its piece of work is not one of so many threads."""
    with monkeypatch.context() as patch:
        patch.setattr(cpu, "available", lambda: False)
        patch.setattr(threads, "count", lambda: count)
        patch.setattr(threads, "crew", functools.cache(Crew))  # not the process's own
        patch.setattr(autotune, "ROUNDS", (1, 1))
        found = autotune.measure(Case(MANY, np.dtype("f4"), backend.device("cpu"), conv.CAP))
    for one in found.values():
        assert max(one.error.values()) < 1e-4, one.error
