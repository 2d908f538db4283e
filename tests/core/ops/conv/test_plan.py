"""The planner: what it picks and why, what it never picks, and what it remembers where."""

import dataclasses
import io
import json
import math
import multiprocessing
import os
import re
import stat

import kit
import numpy as np
import pytest

from minicaffe.backends import cpu as loops
from minicaffe.backends import load
from minicaffe.backends.cuda import implicit_gemm
from minicaffe.backends.device import Device
from minicaffe.backends.replay import command_buffer as trace
from minicaffe.core.ops import conv, linear
from minicaffe.core.ops.conv import autotune, autotune_cache
from minicaffe.core.ops.conv import problem as case_module
from minicaffe.core.ops.conv.autotune import DIRECTIONS, Finding
from minicaffe.core.ops.conv.common import bias_workspace
from minicaffe.core.ops.conv.engine import Engine
from minicaffe.core.ops.conv.implicit import IMPLICIT, Implicit
from minicaffe.core.ops.conv.problem import Case
from minicaffe.core.ops.geometry import ConvGeometry, Window

pytestmark = pytest.mark.usefixtures("no_plans", "engines")
LARGE = ConvGeometry(4, 6, (16, 14), 8, Window((3, 3)))  # 290 thousand multiply-adds
SMALL = ConvGeometry(2, 3, (8, 7), 4, Window((3, 3)))
POINT = ConvGeometry(2, 3, (8, 7), 4, Window((1, 1)))


@pytest.fixture
def cpu():
    from minicaffe.backends import device as backend

    return backend.device("cpu")


def case_of(g, device, dtype="f4", cap=conv.CAP):
    return Case(g, np.dtype(dtype), device, cap)


def finding(ms):
    """Instead of measuring: all candidates are exact, `implicit` is as fast as told."""

    def measure(case):
        times = {name: ms if name == "implicit" else 9.0 for name in case.candidates}
        return {way: Finding(times, dict.fromkeys(times, 0.0), "2020-01-01") for way in DIRECTIONS}

    return measure


@pytest.fixture
def measured(monkeypatch):
    """The convolutions that would be measured, in turn."""
    cases = []

    def measure(case):
        cases.append(case)
        return finding(ms=1.0)(case)

    monkeypatch.setattr(autotune_cache, "measure", measure)
    return cases


def fake(monkeypatch, **methods):
    """An engine `fake`, like `implicit` but for some methods."""
    members = {name: staticmethod(method) for name, method in methods.items()}
    own = {"name": "fake", "rule_rank": None, "tie_rank": None, "__module__": "minicaffe.fake"}
    if "workspace" in methods:
        members["forward_workspace"] = Engine.forward_workspace
    monkeypatch.setitem(conv.ENGINES, "fake", type("Fake", (Implicit,), own | members)())


def only(monkeypatch, *names):
    """No engines but these and the reference, in this order of the fixed rule."""
    for name in {*conv.ENGINES} - {*names, "direct"}:
        del conv.ENGINES[name]
    for rank, name in enumerate(names):
        monkeypatch.setattr(conv.ENGINES[name], "rule_rank", rank)


def forget(monkeypatch):
    """As a new process would begin."""
    monkeypatch.setattr(autotune_cache, "_known", {})


def arrays(device, g, dtype):
    rng = np.random.default_rng(0)
    shapes = (g.x_shape, g.y_shape, g.weight_shape, (g.f,))
    return [device.asarray(rng.uniform(-1, 1, shape).astype(dtype)) for shape in shapes]


# what a plan computes


@pytest.mark.parametrize("engine", ["auto", "caffe", "implicit"])
def test_a_plan_computes_a_convolution_within_its_workspace(device, engine):
    dtype = np.float32
    x, dy, weight, bias = arrays(device, SMALL, dtype)
    p = conv.plan(SMALL, dtype, device, engine)
    work = device.asarray(np.full(p.workspace, np.nan, dtype))
    y, dx = device.xp.empty(SMALL.y_shape, dtype), device.xp.empty(SMALL.x_shape, dtype)
    dw, db = device.xp.zeros(SMALL.weight_shape, dtype), device.xp.zeros((SMALL.f,), dtype)
    p.forward(x, weight, bias, y, work)
    p.gradients(x, dy, weight, dx, dw, db, work)
    x, dy, weight, bias, y, dx, dw, db = map(device.to_host, (x, dy, weight, bias, y, dx, dw, db))
    columns = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    expected = np.einsum("nchwij,fcij->nfhw", columns, weight) + bias[:, None, None]
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(dw, np.einsum("nchwij,nfhw->fcij", columns, dy), atol=1e-4)
    np.testing.assert_allclose(db, dy.sum((0, 2, 3)), atol=1e-4)
    y0 = expected - bias[:, None, None]
    np.testing.assert_allclose((y0 * dy).sum(), (x * dx).sum(), rtol=1e-4)


def test_the_gradient_of_the_bias_has_room_in_the_workspace(cpu, monkeypatch):
    fake(monkeypatch, workspace=lambda g, limit: 0)
    p = conv.plan(SMALL, "f4", cpu, "fake")
    assert p.workspace == p.case.shares * bias_workspace(SMALL)


# by name, by rule


# Of FCN-8s, whose weights alone are above the cap
FC6 = ConvGeometry(2, 512, (22, 22), 4096, Window((7, 7)))


@pytest.mark.parametrize(
    ("g", "engine", "cap", "told"),
    [
        (LARGE, "bached", None, r"SpecError: unknown engine 'bached'; expected one of auto, direct, .*; did you mean 'batched'\?"),
        (POINT, "winograd", None, r"ShapeError: engine 'winograd' cannot take this convolution: F\(4x4\) needs kernels of 2 to 5; engines that can: {able}$"),
        (dataclasses.replace(LARGE, image=(512, 512)), "caffe", 2**20, r"ShapeError: engine 'caffe' needs [\d.]+ MiB of workspace, the cap is 1.0 MiB; --workspace raises it"),
        (LARGE, "auto", 10, r"ShapeError: no engine gets by with 0.0 MiB of workspace: direct needs"),
        (FC6, "auto", 255 * 2**20, r"ShapeError: no engine gets by with 255.0 MiB of workspace"),
    ],
    ids=["a name", "a shape", "its own need", "any", "FCN-8s"],
)  # fmt: skip
def test_what_no_plan_can_be_made_of(cpu, g, engine, cap, told):
    able = ", ".join(n for n, op in conv.ENGINES.items() if op.refuses(POINT) is None)
    given = {} if cap is None else {"cap": cap}
    said = kit.error_line(conv.plan, g, "f4", cpu, engine, deterministic=True, **given)
    assert re.match(told.replace("{able}", able), said)


def test_a_name_is_checked_before_there_is_a_plan():
    assert "cannot take" in kit.error_line(conv.check, POINT, "winograd")
    conv.check(SMALL, "winograd")
    conv.check(SMALL, "auto")


@pytest.mark.parametrize(
    ("g", "deterministic", "why"),
    [
        (SMALL, False, "too small to measure"),
        (dataclasses.replace(LARGE, n=0), False, "too small to measure"),
        (LARGE, True, "deterministic"),
    ],
)
def test_what_goes_by_rule(device, measured, g, deterministic, why):
    p = conv.plan(g, "f4", device, deterministic=deterministic)
    assert set(p.names.values()) == {case_of(g, device).by_rule}
    assert set(p.reasons.values()) == {f"fixed rule: {why}"}
    assert not measured


# by measurement


def test_an_engine_says_what_its_indices_do_not_reach(cpu):
    """Weights, or images of a block, of 2^31 numbers; nothing of that size is taken."""
    wide = ConvGeometry(1, 2**15, (4, 4), 2**13, Window((3, 3)))
    assert math.prod(wide.weight_shape) > 2**31
    said = "it needs images of a block, and weights, of less than 2147483648 numbers"
    assert conv.ENGINES["packed"].refuses(wide) == said
    assert case_of(wide, cpu).refuses("packed") == said
    assert conv.ENGINES["packed"].refuses(LARGE) is None


def test_what_16_bits_round_is_only_by_name(cuda):
    """And TF32 may err by what it rounds."""
    case = case_of(LARGE, cuda, "f2")
    over = {name: case.passes_over(name) for name in case.able if name not in case.candidates}
    said = "sums the weight's gradient in float16: only when asked for by name"
    assert said in over.values() and all(
        conv.ENGINES[n].rounds_sums(LARGE) for n in over if over[n] == said
    )
    single = Case(LARGE, np.dtype("f4"), cuda.of_precision("tf32"), conv.CAP)
    assert single.tolerance("forward") == 2e-3


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_is_measured_is_right_and_sane(device, dtype):
    case = case_of(LARGE, device, dtype)
    for way, one in autotune.measure(case).items():
        assert set(one.error) == set(case.candidates) == set(one.ms)
        assert all(0 <= error <= case.tolerance(way) for error in one.error.values())
        assert min(one.ms.values()) > 0


def test_of_equals_the_first_is_taken(cpu):
    case = case_of(LARGE, cpu)
    assert case.fastest({"caffe": 1.0, "implicit": 1.01, "batched": 1.015}) == "implicit"
    assert case.fastest({"caffe": 1.0, "winograd": 1.01, "batched": 1.015}) == "batched"
    assert case.fastest({"packed": 1.0, "loopfree": 1.01}) == "loopfree"


@pytest.mark.parametrize("way", DIRECTIONS)
def test_what_is_inexact_is_never_taken(device, monkeypatch, way):
    """Not even where it is the fastest by far, and exact in the other directions."""

    def wrong(*given):
        out = getattr(IMPLICIT, way)(*given)
        out *= 1 + 3e-5
        return out

    fake(monkeypatch, **{way: wrong})
    monkeypatch.setattr(autotune._Arrays, "time", lambda _, name, *__: 9.0 - 8.0 * (name == "fake"))
    p = conv.plan(LARGE, "f4", device)
    assert dict(p.names) == {**dict.fromkeys(DIRECTIONS, "fake"), way: p.names[way]}
    assert p.names[way] != "fake"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_gives_no_numbers_is_never_taken(cpu, monkeypatch, value):
    fake(monkeypatch, forward=lambda *given: given[4].fill(value) or given[4])
    found = autotune.measure(case_of(LARGE, cpu))
    assert "fake" not in found["forward"].ms
    assert "fake" in found["input_gradient"].ms


def test_where_nothing_is_exact_the_reference_is_taken(cpu, monkeypatch):
    fake(monkeypatch, forward=lambda *given: given[4].fill(0) or given[4])
    only(monkeypatch, "fake")
    monkeypatch.setattr(case_module, "FEW", 0)
    for origin in ("measured now", "remembered"):
        p = conv.plan(LARGE, "f4", cpu)
        assert p.names["forward"] == "direct"
        assert origin in p.reasons["forward"]


def test_large_images_are_checked_in_a_corner_and_few_samples_are_timed(cpu, monkeypatch):
    g = ConvGeometry(64, 64, (224, 224), 64, Window((3, 3), (1, 1), (1, 1)))
    case = case_of(g, cpu)
    corner = autotune._corner(case, case.candidates)
    assert corner.multiply_adds <= autotune.ENOUGH
    assert (corner.n, corner.c, corner.f, corner.window) == (2, 64, 64, g.window)
    deep = ConvGeometry(2, 512, (7, 7), 4096, Window((7, 7)))  # there is no less of it
    case = case_of(deep, cpu)
    assert autotune._corner(case, case.candidates) == deep
    monkeypatch.setattr(autotune, "RUN_MS", 0.0)
    shapes = []
    monkeypatch.setattr(autotune._Arrays, "time", lambda self, *_: shapes.append(self.g.n) or 1.0)
    found = autotune.measure(case_of(dataclasses.replace(LARGE, n=64), cpu))
    assert set(shapes) == {2}
    assert set(found["forward"].ms.values()) == {32.0}  # of all 64


# the cap


def test_the_cap_bounds_what_one_thread_may_take(cpu):
    case = Case(LARGE, np.dtype("f4"), cpu, 4000 * 4)
    assert case.limit(case.shares) == 4000 // case.shares
    assert Case(LARGE, np.dtype("f4"), cpu, 2**40).limit(1) == case_module.IN_CACHE


def test_the_cap_that_nobody_asked_for_refuses_nothing(cpu):
    """One thread's need is granted, unless a cap is given."""
    assert 4 * math.prod(FC6.weight_shape) > conv.CAP
    plan = conv.plan(FC6, "f4", cpu, deterministic=True)
    assert conv.CAP < 4 * plan.workspace <= plan.case.cap and plan.case.shares == 1


# the memory


@pytest.mark.parametrize("calm", [True, False])
def test_what_a_busy_machine_measured_is_measured_once_more_when_it_is_quiet(
    cpu, measured, monkeypatch, calm
):
    """By a later process; not again in the same one, and not while the machine is still busy."""
    monkeypatch.setattr(load, "busy", lambda since, threads: True)
    first = conv.plan(LARGE, "f4", cpu).reasons["forward"]
    assert first.endswith("measured now, measured while the machine was busy")
    monkeypatch.setattr(load, "busy", lambda since, threads: False)
    monkeypatch.setattr(load, "quiet", lambda threads: calm)
    assert conv.plan(LARGE, "f4", cpu).reasons["forward"].endswith("the machine was busy")
    assert len(measured) == 1  # the process goes on as it began
    for _ in range(2):
        forget(monkeypatch)
        for _ in range(2):
            reason = conv.plan(LARGE, "f4", cpu).reasons["forward"]
            assert reason.endswith("the machine was busy") == (not calm)
    assert len(measured) == 1 + calm


def test_a_measurement_of_a_busy_machine_replaces_no_quiet_one(cpu, monkeypatch):
    """Nor another of a busy machine: whoever was first is right."""
    for busy, ms, kept in ((True, 1.0, 1.0), (True, 2.0, 1.0), (False, 3.0, 3.0), (True, 4.0, 3.0)):
        case = case_of(LARGE, cpu)
        found = {way: dataclasses.replace(one, busy=busy) for way, one in finding(ms)(case).items()}
        file, key = autotune_cache.path(cpu), autotune_cache._key(case)
        one = autotune_cache._keep(file, key, found, case, False)["forward"]
        assert one.ms["implicit"] == kept
        assert autotune_cache._read(file)[key]["forward"] == one


@pytest.mark.parametrize(
    ("cores", "all_work", "own", "busy"),
    [
        (2, 1.0, 1.0, False),
        (2, 2.0, 1.0, True),
        (2, 1.04, 1.0, False),
        (4, 2.5, 0.5, False),
        (4, 3.0, 0.5, True),
    ],
)
def test_the_machine_is_busy_when_others_use_our_processors(
    monkeypatch, cores, all_work, own, busy
):
    """Not when they use those that two threads leave over."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr(load, "now", lambda: load.Moment(6.0, 70.0 + all_work, 3.0 + own))
    assert load.busy(load.Moment(5.0, 70.0, 3.0), 2) is busy


NOW = load.now  # which the tests replace


def test_the_system_tells_how_much_it_works(monkeypatch):
    first, second = NOW(), NOW()
    assert first is None or all(a <= b for a, b in zip(first, second, strict=True))
    monkeypatch.setattr(
        "builtins.open", lambda *args, **kwargs: io.StringIO("cpu 300 0 100 7 9 0 0 0")
    )
    if hasattr(os, "sysconf"):
        assert NOW().work == 400 / os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr("builtins.open", lambda *args, **kwargs: io.StringIO("nothing of it"))
    assert NOW() is None


def test_where_the_system_tells_nothing_nothing_is_busy_and_nothing_measured_again(monkeypatch):
    monkeypatch.setattr(load, "now", lambda: None)
    assert not load.busy(None, 1) and not load.busy(load.Moment(0, 0, 0), 1)
    load.quiet.cache_clear()
    assert not load.quiet(1)
    load.quiet.cache_clear()


@pytest.mark.parametrize(
    "change",
    [
        {"g": dataclasses.replace(LARGE, n=5)},
        {"g": dataclasses.replace(LARGE, window=Window((3, 3), (1, 1), (1, 1)))},
        {"g": dataclasses.replace(LARGE, group=2, n=9)},
        {"dtype": "f8"},
        {"cap": 2**20},
    ],
)
def test_another_convolution_is_measured_anew(cpu, measured, change):
    given = {"g": LARGE, "dtype": "f4", "device": cpu, "cap": 2**24}
    conv.plan(**given)
    conv.plan(**{**given, **change})
    assert len(measured) == 2


def test_the_file_is_named_by_version_and_device(cpu, cuda, monkeypatch):
    from minicaffe import __version__
    from minicaffe.backends.cpu import threads

    files = [autotune_cache.path(cpu), autotune_cache.path(cuda)]
    there = loops.available()
    monkeypatch.setattr(loops, "available", lambda: not there)
    files.append(autotune_cache.path(cpu))
    monkeypatch.setattr(threads, "count", lambda: 77)
    files.append(autotune_cache.path(cpu))
    monkeypatch.setattr(autotune_cache, "__version__", "9.9")
    files.append(autotune_cache.path(cpu))
    assert len(set(files)) == 5
    assert files[0].name.startswith(f"plans-{__version__}-")
    assert files[4].name.startswith("plans-9.9-")


def test_where_the_file_is(cpu, monkeypatch, tmp_path):
    assert autotune_cache.path(cpu).parent == tmp_path / "plans"
    monkeypatch.delenv("MINICAFFE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert autotune_cache.path(cpu).parent == tmp_path / "xdg" / "minicaffe"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert autotune_cache.path(cpu).parent == tmp_path / ".cache" / "minicaffe"


def entry(path):
    """The one convolution of a file."""
    content = json.loads(path.read_text())
    (directions,) = content["plans"].values()
    return content, directions


BREAKAGES = {
    "another strategy": lambda d: d["forward"]["ms"].update(nonsense=0.001),
    "a strategy less": lambda d: [d["forward"][key].pop("implicit") for key in ("ms", "error")],
    "no time": lambda d: d["forward"]["ms"].clear(),
    "a time less": lambda d: d["forward"]["ms"].pop("winograd"),
    "a time below nothing": lambda d: d["forward"]["ms"].update(implicit=-1.0),
    "a time that is text": lambda d: d["forward"]["ms"].update(implicit="fast"),
    "a time that is none": lambda d: d["forward"]["ms"].update(implicit=float("nan")),
    "inexact, yet timed": lambda d: d["forward"]["error"].update(implicit=1.0),
    "an error that is none": lambda d: d["forward"]["error"].update(implicit=float("nan")),
    "a direction less": lambda d: d.pop("input_gradient"),
    "a list": lambda d: d.update(forward=[1, 2]),
    "null": lambda d: d.update(forward=None),
    "no date": lambda d: d["forward"].pop("date"),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_what_makes_no_sense_is_measured_anew(cpu, measured, monkeypatch, breakage):
    conv.plan(LARGE, "f4", cpu)
    file = autotune_cache.path(cpu)
    content, directions = entry(file)
    breakage(directions)
    file.write_text(json.dumps(content))
    forget(monkeypatch)
    assert set(conv.plan(LARGE, "f4", cpu).names.values()) <= set(conv.ENGINES)
    assert len(measured) == 2
    forget(monkeypatch)
    conv.plan(LARGE, "f4", cpu)  # and the file was mended
    assert len(measured) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", b"null", b"[]", b"3", b'{"plans": 3}', b'{"plans": []}', b"{}",
        b'{"plans": {"a": 3, "b": {}}}', b"[" * 100_000, b" " * (2**24 + 1),
    ],
    ids=range(12),
)  # fmt: skip
def test_a_damaged_file_counts_as_empty(cpu, measured, content):
    file = autotune_cache.path(cpu)
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    conv.plan(LARGE, "f4", cpu)
    assert len(measured) == 1
    entry(file)


def test_a_new_engine_is_measured(cpu, measured, monkeypatch):
    conv.plan(LARGE, "f4", cpu)
    fake(monkeypatch)
    conv.plan(LARGE, "f4", cpu)
    assert len(measured) == 2
    assert "fake" in entry(autotune_cache.path(cpu))[1]["forward"]["ms"]


@pytest.mark.parametrize("obstacle", ["a file", "a full disk", "no lock", "a folder in the way"])
def test_where_nothing_can_be_written_it_is_kept_in_memory(
    cpu, measured, monkeypatch, tmp_path, obstacle
):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    if obstacle == "a file":
        (tmp_path / "plans").touch()
    elif obstacle == "a full disk":
        monkeypatch.setattr("tempfile.NamedTemporaryFile", refuse)
    elif obstacle == "no lock":
        monkeypatch.setattr("fcntl.flock", refuse)
    else:
        autotune_cache.path(cpu).mkdir(parents=True)
    assert conv.plan(LARGE, "f4", cpu).names == conv.plan(LARGE, "f4", cpu).names
    assert len(measured) == 1


def test_the_file_is_replaced_whole(cpu, tmp_path):
    conv.plan(LARGE, "f4", cpu)
    file = autotune_cache.path(cpu)
    before = file.stat().st_ino
    conv.plan(dataclasses.replace(LARGE, n=5), "f4", cpu)
    assert file.stat().st_ino != before
    assert sorted(p.suffix for p in file.parent.iterdir()) == [".json", ".lock"]
    assert stat.S_IMODE(file.stat().st_mode) & 0o400


def test_of_two_that_measure_the_same_the_first_to_write_is_right(cpu, monkeypatch):
    def slow(case):
        """While this one measures, another process writes what it found."""
        with monkeypatch.context() as other:
            other.setattr(autotune_cache, "_known", {})
            other.setattr(autotune_cache, "measure", finding(ms=1.0))
            autotune_cache.findings(case)
        return finding(ms=99.0)(case)

    monkeypatch.setattr(autotune_cache, "measure", slow)
    assert set(conv.plan(LARGE, "f4", cpu).names.values()) == {"implicit"}


def writer(folder, numbers):
    from minicaffe.backends import device as backend

    os.environ["MINICAFFE_CACHE"] = folder
    autotune_cache.measure = finding(ms=1.0)
    for n in numbers:
        conv.plan(dataclasses.replace(LARGE, n=n), "f4", backend.device("cpu"))


def test_what_processes_write_at_once_is_all_there(cpu, tmp_path):
    method = multiprocessing.get_context("spawn")
    batches = [range(10 + i, 50, 2) for i in range(2)]
    processes = [method.Process(target=writer, args=(str(tmp_path / "plans"), b)) for b in batches]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(json.loads(autotune_cache.path(cpu).read_text())["plans"]) == 40


@pytest.mark.parametrize("threads", [1, 2, 3, 16, 64], indirect=True)
def test_many_threads_leave_room_for_a_good_engine(cpu, threads):
    """Where the cap is not enough for all of them fewer are used, and the sums are as right."""
    g = ConvGeometry(8, 16, (9, 9), 32, Window((3, 3)))
    p = conv.plan(g, "f4", cpu, cap=300_000, deterministic=True)
    assert p.workspace * 4 <= 300_000
    assert 1 <= p.case.shares <= threads
    assert p.names["forward"] != "direct"
    x, dy, weight, bias = arrays(cpu, g, np.float32)
    work = np.full(p.workspace, np.nan, np.float32)
    y, dx, dw, db = (np.zeros(s, "f4") for s in (g.y_shape, g.x_shape, g.weight_shape, (g.f,)))
    p.forward(x, weight, bias, y, work)
    p.gradients(x, dy, weight, dx, dw, db, work)
    direct, sums = conv.ENGINES["direct"], np.empty(64 * dw.size, np.float32)
    for ours, wanted in [
        (y, direct.forward(x, weight, bias, g, np.zeros_like(y), sums)),
        (dx, direct.input_gradient(dy, weight, g, np.zeros_like(dx), sums)),
        (dw, direct.weight_gradient(x, dy, g, np.zeros_like(dw), sums)),
        (db, dy.sum((0, 2, 3))),
    ]:
        np.testing.assert_allclose(ours, wanted, atol=1e-3)


@pytest.mark.parametrize("engine", sorted(conv.ENGINES))
@pytest.mark.parametrize("g", [LARGE, POINT], ids=["3x3", "1x1"])
def test_forward_gets_by_with_the_work_that_it_says(device, engine, g):
    if conv.ENGINES[engine].refuses(g):
        pytest.skip(conv.ENGINES[engine].refuses(g))
    p, guard = conv.plan(g, "f4", device, engine), 1000
    assert p.forward_workspace <= p.workspace
    rng = np.random.default_rng(0)
    x, weight = (rng.normal(size=shape).astype("f4") for shape in (g.x_shape, g.weight_shape))
    found = []
    for size in (p.workspace, p.forward_workspace):
        work = device.asarray(np.full(size + guard, np.nan, "f4"))
        y = device.xp.empty(g.y_shape, "f4")
        p.forward(device.asarray(x), device.asarray(weight), None, y, work[:size])
        assert np.isnan(device.to_host(work)[size:]).all()
        found.append(device.to_host(y).tobytes())
    assert found[0] == found[1]


def test_the_rule_never_unrolls_what_leaves_the_cache(cpu):
    wide = ConvGeometry(1, 64, (112, 112), 8, Window((3, 3), pad=(1, 1)))
    assert case_of(wide, cpu).by_rule == "implicit"
    small = case_of(LARGE, cpu)
    assert small.by_rule == "implicit" if compiled(small) else "batched"


def compiled(case):
    """Whether there are compiled strategies."""
    return case.recordable("implicit")


@pytest.mark.skipif(not loops.available(), reason="needs Numba")
def test_where_loops_are_compiled_no_other_is_a_candidate(cpu, monkeypatch):
    pytest.importorskip("numba")
    others = {"caffe", "batched", "loopfree"}
    case = case_of(LARGE, cpu)
    assert set(case.candidates) == {"implicit", "winograd", "packed"}
    assert case.passes_over("batched").startswith("calls NumPy where others are compiled")
    assert case.recordable("direct") and not case.recordable("batched")
    half = case_of(LARGE, cpu, "f2")  # which no loop takes
    assert not compiled(half) and "implicit" in half.candidates
    monkeypatch.setattr("minicaffe.backends.cpu.available", lambda: False)
    assert others < set(case_of(LARGE, cpu).candidates)


@pytest.mark.skipif(not loops.available(), reason="needs Numba")
@pytest.mark.parametrize("threads", [2, 3], indirect=True)
@pytest.mark.parametrize("g", [LARGE, POINT, SMALL], ids=["3x3", "1x1", "small"])
def test_one_sample_is_work_for_all_threads(cpu, threads, monkeypatch, g):
    """Whatever the direction: the loops that take time have a slice a thread at least."""
    pytest.importorskip("numba")
    wide = dataclasses.replace(g, n=1, c=8, f=32, image=(24, 24))
    x, dy, weight, bias = arrays(cpu, wide, np.float32)
    for engine in case_of(wide, cpu).candidates:
        p = conv.plan(wide, "f4", cpu, engine)
        work, y = np.empty(p.workspace, np.float32), np.empty_like(dy)
        with trace.recording() as made:
            p.forward(x, weight, bias, y, work)
            p.gradients(x, dy, weight, np.empty_like(x), weight.copy(), bias.copy(), work)
        assert not made.hosts
        few = "packed_gemm.pack"  # of one panel
        assert all(row.slices > 1 or row.name == few for row in made.rows), engine


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_what_computes_a_large_inner_product_on_cuda_is_measured(cuda, measured, dtype):
    """Our kernel or cuBLAS, in each direction, as for a convolution of images of one place."""
    given = np.dtype(dtype), cuda
    plan = linear.plan(64, 1024, 1025, *given)
    assert [case.candidates for case in measured] == [("batched", "implicit")]
    assert set(plan.names.values()) == {"implicit"} and "measured now" in plan.reasons["forward"]
    again = linear.plan(70, 1024, 1025, *given, before=plan)  # another batch
    assert again.names == plan.names and len(measured) == 1
    assert linear.plan(64, 1024, 1025, np.dtype("f4"), Device("asked for")) is None


@pytest.mark.parametrize(
    ("numbers", "features", "name", "why"),
    [
        (16, 16, "implicit", "too small to measure"),
        (4096, 4096, "batched", "too large to measure"),
        (1024, 1024, "implicit", "deterministic"),
        (1024, 1025, "batched", "deterministic"),
    ],
)
def test_inner_products_that_are_not_measured(cuda, measured, numbers, features, name, why):
    """Where to launch takes all the time; and where arrays, once more, might not find room beside the net's."""
    vectors = 4096 if "large" in why else 64
    given = {"deterministic": why == "deterministic"}
    plan = linear.plan(vectors, numbers, features, np.dtype("f4"), cuda, **given)
    assert set(plan.names.values()) == {name} and not measured
    assert plan.reasons["forward"] == f"fixed rule: {why}"


def test_an_inner_product_is_measured_as_it_is_computed(cuda, monkeypatch):
    """The kernel takes part of the depth, and more blocks, in the trial as in training."""
    launched, real = [], implicit_gemm._share

    def share(*given):
        launched.append(real(*given))
        return launched[-1]

    monkeypatch.setattr(implicit_gemm, "_share", share)
    plan = linear.plan(16, 900, 60, np.dtype("f4"), cuda)
    found, _ = autotune_cache.findings(plan.case)
    for way, one in found.items():
        assert set(one.ms) == {"implicit", "batched"}
        assert plan.names[way] == plan.case.fastest(one.ms)
        assert max(one.error.values()) < 1e-6
    timed = {*launched}
    assert implicit_gemm.workspace(plan.case.g, 2**30) == linear.workspace(16, 900, 60)
    x, weight, y = (cuda.xp.ones(shape, np.float32) for shape in ((16, 900), (900, 60), (16, 60)))
    work = cuda.xp.empty(linear.workspace(16, 900, 60), np.float32)
    own = dataclasses.replace(plan, names=dict.fromkeys(DIRECTIONS, "implicit"))
    launched.clear()
    with cuda.current():
        linear.linear(x, weight, None, y, work, own)
        linear.input_gradient(y, weight.T, x, work, own)
    assert any(parts > 1 for _, parts in launched) and {*launched} <= timed


@pytest.mark.parametrize(("stride", "elements"), [(1, 8210), (2, 6220)])
def test_what_a_depthwise_loop_asks_for_decides_no_other_plan_than_before(stride, elements):
    """Engines are chosen by their workspace: another number is another plan, and other bits."""
    from minicaffe.backends.cpu.conv import direct

    g = ConvGeometry(1, 64, (56, 56), 64, Window((3, 3), (stride, stride), (1, 1)), 64)
    assert direct.elements(g) == elements
