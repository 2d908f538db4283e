"""Caffe's global switches, and its stopwatch: where nets are built, from which seed, what is said on stderr.

Lines are of the levels 0 INFO, 1 WARNING, 2 ERROR; GLOG_minloglevel is the least that is shown.
"""

import os
from collections.abc import Callable

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.errors import SpecError, note

INFO, WARNING, ERROR = range(3)


class _Mode:
    """What the switches say; nets and solvers ask when they are built, and keep it."""

    gpu = False
    number = 0
    seed: int | None = None
    level: int | None = None  # the least that is shown; None: what the environment says


def set_mode_cpu() -> None:
    """Build nets on the CPU from now on, as at the beginning. Those that are there stay where they are."""
    _Mode.gpu = False


def set_mode_gpu() -> None:
    """Build nets on CUDA from now on. Where there is none, building a net raises DeviceError."""
    _Mode.gpu = True


def set_device(device_id: int) -> None:
    """The number of the CUDA device that `set_mode_gpu` means."""
    _Mode.number = _number("set_device", device_id)


def set_random_seed(seed: int) -> None:
    """The seed of the nets and solvers built from now on, unless a solver's random_seed says otherwise.

    Without it the seed is 1. Each net's numbers are a function of it, of the layer and of the pass, so that
    two nets of one text begin alike; in Caffe the second goes on in the stream of the first.
    """
    _Mode.seed = _number("set_random_seed", seed)


def _number(name: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or number < 0:
        raise SpecError(f"{name}: expected a number of at least 0, got {number!r}")
    return int(number)


def device_name() -> str:
    """Where nets are built now: cpu, cuda:0, ..."""
    return f"cuda:{_Mode.number}" if _Mode.gpu else "cpu"


def random_seed(otherwise: int) -> int:
    """What `set_random_seed` was last given; before that, what is given here."""
    return otherwise if _Mode.seed is None else _Mode.seed


def has_nccl() -> bool:
    """Whether several GPUs can train together: no."""
    return False


def solver_count() -> int:
    """How many solvers train together: one."""
    return 1


def set_solver_count(count: int) -> None:
    """Say that one solver trains. Raises SpecError for more: there is no training on several devices."""
    _only("set_solver_count", count, 1)


def solver_rank() -> int:
    """Which of the solvers this one is: the first, 0."""
    return 0


def set_solver_rank(rank: int) -> None:
    """Say that this is solver 0. Raises SpecError for another."""
    _only("set_solver_rank", rank, 0)


def set_multiprocess(multiprocess: bool) -> None:
    """Say that there is one process. Raises SpecError for more."""
    _only("set_multiprocess", bool(multiprocess), False)


def _only(name: str, value: int, possible: int) -> None:
    if value != possible:
        problem = f"expected {possible}, got {value!r}: one process trains, one device"
        raise SpecError(f"{name}: {problem}")


def is_shown(level: int) -> bool:
    """Whether lines of a level are shown."""
    if _Mode.level is not None:
        return level >= _Mode.level
    said = os.environ.get("GLOG_minloglevel", "")  # noqa: SIM112 (glog's own)
    return level >= (int(said) if said.isdecimal() else INFO)


def init_log(level: int = INFO, stderr: bool = True) -> None:
    """Show lines of a level and above from now on. They go to stderr, whatever `stderr` says: no files."""
    _Mode.level = level


def log(text: str) -> None:
    """Show a line of the level INFO."""
    if is_shown(INFO):
        note(text)


class Timer:
    """A stopwatch: `start()`, `stop()`, then `ms`; on CUDA it waits for the device.

    >>> timer = Timer()
    >>> timer.start()
    >>> timer.stop()
    >>> timer.ms >= 0
    True
    """

    def __init__(self) -> None:
        self.ms = 0.0
        self._stop: Callable[[], float] | None = None

    def start(self) -> None:
        """Begin, or begin anew."""
        self._stop = backend.device(device_name()).timer()

    def stop(self) -> None:
        """End; nothing if it was not started."""
        if self._stop is not None:
            self.ms, self._stop = self._stop(), None
