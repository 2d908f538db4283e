"""The CPU's threads: one primitive that runs a function over slices of a batch."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.errors import MinicaffeError
from minicaffe.ops import record
from minicaffe.ops.crew import CompiledCrew, Crew, inside
from minicaffe.ops.loops import loops
from minicaffe.ops.script import Script
from minicaffe.ops.table import Table

VARIABLE = "MINICAFFE_NUM_THREADS"
MOST = 1024  # threads one may ask for
LINE = 16  # entries that pieces of work of a size that is known are apart, or a multiple: a line of the cache
FEW = 8  # samples that it pays to give to a thread that is there, however little work they are
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
UNCOPIED = (
    "SkylakeX",
    "Cooperlake",
    "SapphireRapids",
)  # OpenBLAS's names of what it has such loops for


class _Here(threading.local):
    """What a thread was told by `at_most`."""

    most: int | None = None
    each: int | None = None


_here = _Here()
_performing = threading.Lock()  # by whose script the crew is taken: two would wait for each other
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

    >>> with at_most(1):
    ...     len(in_slices(lambda first, last, work: None, 5))
    1
    """
    before = _here.most, _here.each
    _here.most, _here.each = most, each
    try:
        yield
    finally:
        _here.most, _here.each = before


def in_slices(
    part: Callable[..., None],
    n: int,
    work: Any = None,
    grain: int = 1,
    worth: int = 1,
    noted: bool = False,
) -> list[Any]:
    """Run part(first, last, work) over slices of 0..n, one a thread; gives the pieces of `work` used.

    There are min(n, share(work)) slices, of at least `grain` units if there is more than one. To wake a
    thread and to wait for Python's lock takes longer than a little work: where n is less than what is `worth`
    that, this thread runs all of them. Each gets an equal piece of the flat buffer `work`. They are a
    function of n, grain and the number of threads alone, so that sums over them are always taken in the same
    order. Within a slice, another call runs as one slice: what is split once is not split again. So does one
    whose work is on CUDA. The first call that needs more than one thread holds BLAS to one, for good. `noted`
    says that all a part does to arrays it does by `record.do`: so it can be replayed, where no loops are
    compiled.

    >>> parts = []
    >>> len(in_slices(lambda first, last, work: parts.append(last - first), 5)) == min(count(), 5)
    True
    >>> sum(parts)
    5
    """
    if inside.get():
        if n:
            part(0, n, work)
        return [work] * min(n, 1)
    recorded = noted and record.calls_are_rows()
    if not (on_cuda(work) or recorded):
        record.host(getattr(part, "__qualname__", repr(part)))
    slices = min(n, max(1, min(n // grain, share(work))))
    apart = 0 if work is None or not slices else work.size // slices
    size = apart
    if (each := _here.each) is not None:
        apart -= apart % LINE
        size = min(apart, each)
    pieces = [None if work is None else work[i * apart :][:size] for i in range(slices)]
    if slices == 1:
        part(0, n, pieces[0])
    if slices <= 1:
        return pieces
    calls = [
        functools.partial(part, n * i // slices, n * (i + 1) // slices, piece)
        for i, piece in enumerate(pieces)
    ]
    everybody = crew(count())  # from now on BLAS has one thread
    if recorded or n < worth:
        _alone(calls)
        return pieces
    for error in everybody.run(calls):
        if error:
            raise error
    return pieces


def _alone(calls: Sequence[Callable[[], None]]) -> None:
    """Run slices one after the other in this thread."""
    token = inside.set(True)
    try:
        record.apart(calls)
    finally:
        inside.reset(token)


def run(loop: Callable[..., None], n: int, *args: Any, grain: int = 1) -> int:
    """Run a compiled loop(*args, first, last) over slices of 0..n, one a thread; gives how many there are.

    A slice has at least `grain` units, if there is more than one. Of an argument Piece(work) each slice gets
    the piece that is its own, all of one size, in the order of the slices. Recorded, if this thread records.
    """
    most = 1 if inside.get() else share(None)
    slices = min(n, max(1, min(n // grain, most)))
    if slices:
        walk(Table([record.row(loop, args, n, slices)]))
    return slices


def walk(table: Table) -> None:
    """Run the rows of a table, side by side if this is no slice itself."""
    walkers = 1 if inside.get() else min(table.walkers, count())
    cast(CompiledCrew, crew(count())).walk(table.where, table.length, walkers)


def perform(script: Script) -> None:
    """Make the calls of a script, side by side if this is no slice itself, and no other thread makes some."""
    most = 1 if inside.get() else min(script.walkers, count())
    if most < script.walkers or most == 1 or not _performing.acquire(blocking=False):
        token = inside.set(True)
        try:
            script.alone()
        finally:
            inside.reset(token)
        return
    try:
        script.run(crew(count()).run)
    finally:
        _performing.release()


def share(work: Any) -> int:
    """Among how many threads `in_slices` shares a buffer."""
    if on_cuda(work):
        return 1
    most = _here.most
    return count() if most is None else min(count(), most)


@functools.cache
def crew(threads: int) -> Crew:
    """So many threads, the caller's among them; from now on BLAS has one thread in each."""
    if (controller := _controller()) is not None:
        _held.append(controller.limit(limits=1, user_api="blas"))
    try:
        replay = loops("replay", np.float64)
        return CompiledCrew(threads, replay) if replay else Crew(threads)
    except RuntimeError as error:  # the system has no more
        raise MinicaffeError(f"{threads} threads: {error}; ask for fewer with {VARIABLE}") from None


@functools.cache
def blas_copies() -> bool:
    """Whether NumPy's BLAS copies even small matrices before it multiplies: OpenBLAS with AVX-512 does not."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        from numpy.linalg import _umath_linalg

        core = ctypes.CDLL(_umath_linalg.__file__).scipy_openblas_get_corename64_
        core.restype = ctypes.c_char_p
        return core().decode() not in UNCOPIED
    return True


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


def _forget() -> None:
    global _performing
    _performing = threading.Lock()
    crew.cache_clear()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork, and what they held stays held
    os.register_at_fork(after_in_child=_forget)
