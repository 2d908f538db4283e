"""The CPU's threads: one primitive that runs a function over slices of a batch."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.errors import MinicaffeError
from minicaffe.ops import record
from minicaffe.ops.loops import loops
from minicaffe.ops.record import Piece

VARIABLE = "MINICAFFE_NUM_THREADS"
MOST = 1024  # threads one may ask for
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PATIENCE = 5_000_000  # looks of a thread that waits, some 3 ms, before it goes to sleep
HEAD_START = 40_000  # looks, some 25 us, that a caller gives the other threads to get past the GIL
_here = threading.local()
_busy = threading.Lock()  # the workers serve one caller at a time
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
def at_most(most: int) -> Iterator[None]:
    """Let this thread's calls of `in_slices` use no more threads than that.

    >>> with at_most(1):
    ...     len(in_slices(lambda first, last, work: None, 5))
    1
    """
    before, _here.most = getattr(_here, "most", None), most
    try:
        yield
    finally:
        _here.most = before


def in_slices(part: Callable[..., None], n: int, work: Any = None) -> list[Any]:
    """Run part(first, last, work) over slices of 0..n, one a thread; gives the pieces of `work` used.

    There are min(n, share(work)) slices; each gets an equal piece of the flat buffer `work`. They are a
    function of n and of the number of threads alone, so that sums over them are always taken in the same
    order. Within a slice, another call runs as one slice: what is split once is not split again. So does
    one whose work is on CUDA. The first call that needs more than one thread holds BLAS to one, for good.

    >>> parts = []
    >>> len(in_slices(lambda first, last, work: parts.append(last - first), 5)) == min(count(), 5)
    True
    >>> sum(parts)
    5
    """
    if not getattr(_here, "inside", False):
        record.host(getattr(part, "__qualname__", repr(part)))
    return _in_slices(part, n, work)


def _in_slices(part: Callable[..., None], n: int, work: Any) -> list[Any]:
    if getattr(_here, "inside", False):
        if n:
            part(0, n, work)
        return [work] * min(n, 1)
    slices = min(n, share(work))
    if slices == 1:
        part(0, n, work)
        return [work]
    size = 0 if work is None or not slices else work.size // slices
    pieces = [None if work is None else work[i * size : (i + 1) * size] for i in range(slices)]
    _run(
        [
            functools.partial(part, n * i // slices, n * (i + 1) // slices, piece)
            for i, piece in enumerate(pieces)
        ]
    )
    return pieces


def run(loop: Callable[..., None], n: int, *args: Any, grain: int = 1) -> int:
    """Run a compiled loop(*args, first, last) over slices of 0..n, one a thread; gives how many there are.

    A slice has at least `grain` units, if there is more than one. Of an argument Piece(work) each slice gets
    the piece that is its own, all of one size, in the order of the slices. Recorded, if this thread records.
    """
    most = 1 if getattr(_here, "inside", False) else share(None)
    slices = min(n, max(1, min(n // grain, most)))
    record.row(loop, args, n, slices)
    again(record.Row(loop, args, n, slices))
    return slices


def again(row: record.Row) -> None:
    """Run a row."""
    work = next((arg.work for arg in row.args if isinstance(arg, Piece)), None)
    with at_most(max(row.slices, 1)):
        _in_slices(_bound(row.loop, row.args), row.n, work)


def _bound(loop: Callable[..., None], args: Sequence[Any]) -> Callable[..., None]:
    def part(first: int, last: int, piece: Any) -> None:
        loop(*(piece if isinstance(arg, Piece) else arg for arg in args), first, last)

    return part


def share(work: Any) -> int:
    """Among how many threads `in_slices` shares a buffer."""
    if on_cuda(work):
        return 1
    most = getattr(_here, "most", None)
    return count() if most is None else min(count(), most)


def _run(calls: Sequence[Callable[[], None]]) -> None:
    """Run calls side by side, the first here; raises the first exception once all have ended."""
    if not calls:
        return
    workers, errors = _workers(count())[: len(calls) - 1], []
    _here.inside = True
    try:
        if _busy.acquire(blocking=False):
            try:
                for worker, call in zip(workers, calls[1:], strict=True):
                    worker.start(functools.partial(contextvars.copy_context().run, call))
                errors.append(_error_of(calls[0]))
                errors += [worker.join() for worker in workers]
            finally:
                for worker in workers:  # also after Ctrl-C, which finds this thread waiting
                    worker.join()
                _busy.release()
        else:  # another thread of the user's has the workers
            errors += [_error_of(call) for call in calls]
    finally:
        _here.inside = False
    for error in filter(None, errors):
        raise error


def _error_of(call: Callable[[], None]) -> BaseException | None:
    try:
        call()
    except BaseException as error:  # raised again by who waits
        return error
    return None


class _Signal:
    """A count that one thread sets and another waits for."""

    def __init__(self) -> None:
        self.count = np.zeros(1, np.int64)
        self.asleep, self._awake = False, threading.Lock()
        self._awake.acquire()

    def wake(self) -> None:
        """Wake up who sleeps until the count is what it is now."""
        if self.asleep and self._awake.locked():
            self._awake.release()

    def sleep_until(self, count: int) -> None:
        """Wait without taking time from other threads; to wake up takes 40 us."""
        self.asleep = True
        try:
            while self.count[0] != count:
                self._awake.acquire()
        finally:
            self.asleep = False


def _exchange(mine: _Signal, count: int, theirs: _Signal, wanted: int, looks: int) -> bool:
    """Set one count, and look so many times whether the other is as wanted, with the GIL let go.

    It is let go before the count is set, so that who sees it finds the GIL free: to wait for that is to
    sleep, and to wake up takes as long as many a slice.
    """
    spin = _spinner()
    if spin is None:
        mine.count[0] = count
        met = bool(theirs.count[0] == wanted)
    else:
        met = spin(mine.count, count, theirs.count, wanted, 0 if mine.asleep else looks)
    mine.wake()
    return met


class _Worker:
    """A thread that runs one call after the other."""

    def __init__(self, number: int) -> None:
        self.call: Callable[[], None] | None = None
        self.error: BaseException | None = None
        self.asked, self.done, self.calls = _Signal(), _Signal(), 0
        threading.Thread(target=self._loop, name=f"minicaffe_{number}", daemon=True).start()

    def start(self, call: Callable[[], None]) -> None:
        """Begin a call, and give it a moment to get under way."""
        self.call, self.calls = call, self.calls + 1
        _exchange(self.asked, self.calls, self.done, self.calls, HEAD_START)

    def join(self) -> BaseException | None:
        """Wait for the call to end; gives what it raised."""
        if not _exchange(self.asked, self.calls, self.done, self.calls, PATIENCE):
            self.done.sleep_until(self.calls)
        error, self.call, self.error = self.error, None, None
        return error

    def _loop(self) -> None:
        _here.inside = True
        for number in itertools.count(1):
            if not _exchange(self.done, number - 1, self.asked, number, PATIENCE):
                self.asked.sleep_until(number)
            assert self.call is not None
            self.error = _error_of(self.call)


@functools.cache
def _workers(threads: int) -> list[_Worker]:
    """All threads but the caller's; from now on BLAS has one thread in each."""
    if (controller := _controller()) is not None:
        _held.append(controller.limit(limits=1, user_api="blas"))
    _spinner()
    try:
        return [_Worker(number) for number in range(1, threads)]
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


@functools.cache
def _spinner() -> Any:
    """spin(mine, count, theirs, wanted, looks): `_exchange` without a GIL; None without Numba."""
    fast = loops("spin", np.float64)
    return None if fast is None else fast.spin


def _after_fork() -> None:
    """Begin anew in a child: threads do not survive a fork, and what they held stays held."""
    global _busy
    _workers.cache_clear()
    _busy, _here.inside = threading.Lock(), False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
