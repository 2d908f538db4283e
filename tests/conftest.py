"""One test body for both devices: CUDA is a GPU where there is one, else the stand-in of tests/tools/standin."""

import contextlib
import functools
import gc
import importlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does; before NumPy

from gpu import HAS_GPU
from hypothesis import HealthCheck, settings

collect_ignore = ["tools/standin"]  # of the name of the real CuPy
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SHARED = ROOT.parent / "shared"
SLOW: dict[str, float] = json.loads((HERE / "slow.json").read_text())["slow"]  # see tools/costs.py
PASSED = Path(os.environ.get("PASSED", os.devnull))  # what need not pass again: see .ci/run
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
STEP = """
from pathlib import Path
from minicaffe import Solver, parse
from minicaffe.tools.data import datasets
datasets._COUNTS.update(train=100, test=100)
text = Path("models/lenet_paper.yaml").read_text().replace("source: mnist", "source: digits")
Solver(parse(text), device="cpu").step(1)
"""

LOOPS = pytest.StashKey[subprocess.Popen]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="fail where there is no CUDA GPU")
    parser.addoption("--full", action="store_true", help="what is marked slow, too")
    parser.addoption(
        "--long", action="store_true", help="more random cases, and what is marked long, too"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, list[pytest.Collector]]:
    """Files of tests hold tests; examples of docstrings are the package's."""
    package = ROOT / "minicaffe" in file_path.parents
    return [one for one in (yield) if package or type(one) is pytest.Module]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """The many tests that are collected stay: Python need not look for garbage among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def older_objects() -> None:
    """What the files of tests before this one left stays: Python need not look for garbage among that, either."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What computes on CUDA bears the mark gpu, by which it can be selected: -m gpu; what SLOW names, slow.

    Without --full what is slow is left out, and without --long what bears the mark long; and what is in PASSED,
    but for properties, of which --full asks more.
    """
    touched, passed = _touched(), set(PASSED.read_text("utf-8").splitlines())
    for item in items:
        function = item.nodeid.partition("[")[0]
        if function in SLOW and function.partition("::")[0] not in touched:
            item.add_marker("slow")
        params = getattr(getattr(item, "callspec", None), "params", {})
        names = getattr(item, "fixturenames", ())
        if params["device"] == "cuda" if "device" in params else "cuda" in names:
            item.add_marker("gpu")
    without = ["slow"] * (not _full(config)) + ["long"] * (not config.getoption("--long"))

    def left_out(item: Any) -> bool:
        again = item.nodeid in passed and not getattr(item.obj, "is_hypothesis_test", False)
        return again or any(map(item.get_closest_marker, without))

    config.hook.pytest_deselected(items=[item for item in items if left_out(item)])
    items[:] = [item for item in items if not left_out(item)]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(PASSED, "a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")  # a test may have replaced print


def _full(config: pytest.Config) -> bool:
    return bool(config.getoption("--full") or config.getoption("--long"))


def _touched() -> set[str]:
    """The files that differ from where this branch left main, or $TESTED: all of their tests run."""
    asked = ["git", "diff", "--name-only", "--merge-base", os.environ.get("TESTED", "origin/main")]
    with contextlib.suppress(OSError):
        return set(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).stdout.split())
    return set()


def pytest_report_header(config: pytest.Config) -> str:
    return f"CUDA: {'a GPU' if HAS_GPU else 'the stand-in of tests/tools/standin (no GPU)'}"


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--require-gpu") and not HAS_GPU:
        raise pytest.UsageError("--require-gpu: no CUDA GPU works here")
    if hasattr(config, "workerinput"):
        config.option.full = config.workerinput["full"]
    elif config.args_source is config.ArgsSource.ARGS:
        config.option.full = True  # of files that somebody names, everything
    # How long a case takes is the machine's; a fixture that a property test wants is one for all its cases.
    idle = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    many = 75 if PASSED.stat().st_size else 100  # of which 25 have passed before
    cases = {"deadline": None, "max_examples": many if _full(config) else 25}
    settings.register_profile("minicaffe", suppress_health_check=idle, **cases)
    settings.load_profile("minicaffe")
    os.environ.setdefault("MINICAFFE_OFFLINE", "1")
    # As of what a shell runs in the background, or nohup does: the tests send these signals.
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    for number, handler in usual.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
    logging.getLogger("minicaffe").addHandler(logging.NullHandler())
    from minicaffe.backends import cpu

    main = not hasattr(config, "workerinput")  # of pytest-xdist: its workers come when main is done
    kept = _use_own_cache(config, main)
    if cpu.available():
        # The first process to compile a loop would tell of it.
        importlib.import_module("minicaffe.backends.cpu.compile_cache")._can_keep()
        if config.getoption("numprocesses", 0) and main:  # most loops, while its workers collect
            config.stash[LOOPS] = subprocess.Popen([sys.executable, "-c", STEP], cwd=ROOT, **QUIET)
    if not main or not config.getoption("numprocesses", 0):
        os.environ.update(kept)


def pytest_configure_node(node: Any) -> None:  # one of pytest-xdist's workers
    node.workerinput["full"] = node.config.option.full


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    if loops := session.config.stash.get(LOOPS, None):
        loops.wait()


def _use_own_cache(config: pytest.Config, main: bool) -> dict[str, str]:
    """A cache folder for these tests, not the user's own; but loops that are compiled need not be again.

    What it returns lets the processes that tests start compile each module once, outside the tree, even where
    Python is told to write no bytecode; the tests' own processes import each module once anyway.
    """
    from minicaffe.backends import cpu as loops
    from minicaffe.storage import caches

    before, own = caches.folder(), tempfile.TemporaryDirectory(prefix="minicaffe-cache-")
    users = before / "loops"
    if not caches.obstacle(users):
        Path(own.name, "loops").symlink_to(users)
    os.environ["MINICAFFE_CACHE"] = own.name
    config.add_cleanup(own.cleanup)
    if loops.available():  # a test that sets another cache folder has these loops too
        importlib.import_module("minicaffe.backends.cpu.compile_cache").folder()
    if not sys.dont_write_bytecode:
        return {}
    # Main's, whose cache its workers begin with
    bytecode = Path(own.name if main else before, "bytecode")
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}


@pytest.fixture(params=["compiled", "numpy"])
def form(request, monkeypatch):
    """The form of the CPU's ops: loops that Numba compiles, or NumPy's."""
    from minicaffe.backends import cpu as loops
    from minicaffe.backends.cpu import threads

    if request.param == "numpy":
        monkeypatch.setattr(loops, "available", lambda: False)
        # One made without loops walks none: not the process's own.
        monkeypatch.setattr(threads, "_crew", functools.cache(threads._crew.__wrapped__))
    elif not loops.available():
        pytest.skip("Numba is not installed")
    return request.param


@pytest.fixture
def scripts(monkeypatch):
    """Imports a script of the benchmarks by name; all of them are forgotten afterwards."""
    paths = [str(ROOT / "examples" / name) for name in ("benchmarks", "paper_tables")]
    monkeypatch.setattr(sys, "path", [*paths, *sys.path])
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(tuple(paths)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def cuda():
    """A CUDA device: the GPU or the stand-in."""
    from minicaffe.backends import device as backend

    if not HAS_GPU and shutil.which(os.environ.get("C", "g++")) is None:
        pytest.skip("neither a GPU nor a C++ compiler to run the kernels with")
    return backend.device("cuda")


@pytest.fixture(scope="session", autouse=True)
def no_kernels_are_compiled_by_processes():
    """There are as many processes as cores already; cuda.ahead has tests of its own."""
    from minicaffe.backends.cuda import ahead

    ahead.FEW = sys.maxsize


@pytest.fixture(scope="session", autouse=True)
def convolutions_are_timed_in_short():
    """Tests want an engine that is exact; a few ms show as well which is fast."""
    from minicaffe.core.ops.conv import autotune

    autotune.ROUNDS_MS = 5.0


@pytest.fixture(autouse=True)
def no_machine_is_busy(monkeypatch):
    """What else runs on the machine changes no plan, and no reason of one."""
    monkeypatch.setattr("minicaffe.backends.load.now", lambda: None)


@pytest.fixture(autouse=True)
def no_large_convolution_is_timed_on_the_stand_in(monkeypatch):
    """Its kernels are slow, and not as they are slow on a GPU; the fixed rule chooses."""
    if HAS_GPU:
        return
    from minicaffe.core.ops.conv import autotune, autotune_cache

    measure = autotune_cache.measure

    def measured(case):
        if not case.device.is_cuda or case.g.multiply_adds < 1_000_000:
            return measure(case)
        ms = {name: 1.0 if name == case.by_rule else 9.0 for name in case.candidates}
        error = dict.fromkeys(ms, 0.0)
        return {way: autotune.Finding(ms, error, "2000-01-01") for way in autotune.DIRECTIONS}

    monkeypatch.setattr(autotune_cache, "measure", measured)


@pytest.fixture(autouse=True)
def nothing_is_done_behind_what_is_held_back():
    """The stand-in refuses what nobody was asked for while cuda.fusion holds a kernel back: it came before."""
    if HAS_GPU:
        yield
        return
    from cupy._array import place

    from minicaffe.backends import launch_listener as listener

    def before():
        held = getattr(listener.hearing(), "held", None)
        if held is not None:
            raise RuntimeError(
                f"{held.name} is held back, and the device is given other work unasked"
            )

    place.before = before
    yield


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Each device in turn."""
    from minicaffe.backends import device as backend

    return backend.device("cpu") if request.param == "cpu" else request.getfixturevalue("cuda")


@pytest.fixture
def command(capsys):
    """Run a command in this process, which must end with `code`, and give what it printed: stdout, stderr."""
    from minicaffe.cli import main

    def run(*words: object, code: int = 0) -> str:
        capsys.readouterr()
        try:
            ended: Any = main([str(word) for word in words])
        except SystemExit as stop:
            ended = stop.code
        printed = "".join(capsys.readouterr())
        assert ended == code, printed
        return printed

    return run


@pytest.fixture(scope="session")
def mnist_folder() -> Path:
    """The folder that holds mnist/, where the true files are at hand."""
    for folder in (os.environ.get("MINICAFFE_DATA"), SHARED / "data", ROOT / "data"):
        if folder and list((Path(folder) / "mnist").glob("t10k-images*")):
            return Path(folder)
    pytest.skip("MNIST is not here (set MINICAFFE_DATA)")


@pytest.fixture
def no_plans(monkeypatch, tmp_path):
    """An empty folder of plans, and a process that knows none."""
    monkeypatch.setenv("MINICAFFE_CACHE", str(tmp_path / "plans"))
    monkeypatch.setattr("minicaffe.core.ops.conv.autotune_cache._known", {})


@pytest.fixture
def here(monkeypatch, tmp_path):
    """The current folder, an empty one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fifty_digits(monkeypatch, here):
    """Fifty of the drawn digits in place of the whole set; files go into a folder of their own."""
    from kit import few_digits

    few_digits(monkeypatch)


@pytest.fixture
def few_digits(monkeypatch):
    """A few of the drawn digits in place of the whole set."""
    from kit import few_digits

    few_digits(monkeypatch, 3000)
