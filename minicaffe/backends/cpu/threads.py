"""The CPU's threads: how many, those that there are, and BLAS held to one in each."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backends.cpu import available, loops
from minicaffe.backends.cpu.thread_pool import CompiledCrew, Crew
from minicaffe.backends.device import on_cuda
from minicaffe.backends.thread_state import state
from minicaffe.errors import MinicaffeError

VARIABLE = "MINICAFFE_NUM_THREADS"
MOST = 1024  # threads one may ask for
FEW = 8  # samples that it pays to give to a thread that is there, however little work they are
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


_held: list[Any] = []  # holds on BLAS, never let go: its own threads would wake and take the cores


@functools.cache
def count() -> int:
    """Threads to use: $MINICAFFE_NUM_THREADS, else the processors this process may run on.

    One where BLAS cannot be held to one thread, since threads of both kinds would fight for the cores.
    Raises MinicaffeError if the variable is no number from 1 to MOST. It is asked once.
    """
    if asked := os.environ.get(VARIABLE):
        if not re.fullmatch("0*[1-9][0-9]{,3}", asked) or int(asked) > MOST:
            raise MinicaffeError(
                f"{VARIABLE}: expected an integer from 1 to {MOST}, got {asked!r:.60}"
            )
        cores = int(asked)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return cores if _can_hold_blas() else 1


@contextlib.contextmanager
def at_most(most: int, each: int | None = None) -> Iterator[None]:
    """Let this thread's calls of `in_slices` use no more threads than that, and `each` a piece no longer.

    That begins where a line of the cache does.

    >>> from minicaffe.backends.cpu.run import in_slices
    >>> with at_most(1):
    ...     len(in_slices(lambda first, last, work: None, 5))
    1
    """
    before = state.most_threads, state.longest_piece
    state.most_threads, state.longest_piece = most, each
    try:
        yield
    finally:
        state.most_threads, state.longest_piece = before


def share(work: Any = None) -> int:
    """Among how many threads work on the CPU is shared; 1 if a buffer for it lies on CUDA."""
    if work is not None and on_cuda(work):
        return 1
    most = state.most_threads
    return count() if most is None else min(count(), most)


def crew(threads: int) -> Crew:
    """So many threads, the caller's among them; from now on BLAS has one thread in each."""
    return _crew(threads, available())


@functools.cache
def _crew(threads: int, compiled: bool) -> Crew:
    """The same, which walk through compiled loops, or not."""
    if (controller := _controller()) is not None:
        _held.append(controller.limit(limits=1, user_api="blas"))
    try:
        replay = loops("thread_pool_loops", np.float64) if compiled else None
        return CompiledCrew(threads, replay) if replay else Crew(threads)
    except RuntimeError as error:  # the system has no more
        raise MinicaffeError(f"{threads} threads: {error}; ask for fewer with {VARIABLE}") from None


@functools.cache
def _controller() -> Any:
    """threadpoolctl's hold on BLAS, if it is installed."""
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController()


def _can_hold_blas() -> bool:
    return _controller() is not None or any(os.environ.get(name) == "1" for name in BLAS_THREADS)


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_crew.cache_clear)
