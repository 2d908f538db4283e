"""The CPU's threads: how many, BLAS held to one in each, and compiled loops that run on them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import re
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.backends.cpu import Piece, Tail, available, loops
from minicaffe.backends.cpu.command import Apart, LoopCommand
from minicaffe.backends.cpu.thread_pool import CompiledCrew, Crew
from minicaffe.backends.device import on_cuda
from minicaffe.backends.thread_state import inside, state
from minicaffe.errors import MinicaffeError, ShapeError

VARIABLE = "MINICAFFE_NUM_THREADS"
VARIABLES_OF_BLAS = "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
THREADS_OF_BLAS = [  # what asks for its threads, and what sets them: in NumPy's wheels, and elsewhere
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
]
MOST = 1024  # threads one may ask for
FEW = 8  # samples that it pays to give to a thread that is there, however little work they are
ROW = 6  # words of a command
ENOUGH = 4  # units for each thread from which on one thread with a unit more matters little
GRAIN = 2**13  # entries that a thread is worth waking for
HEAD = object.__basicsize__  # bytes; then an array's address, says NumPy's C interface
_word_at = ctypes.c_ssize_t.from_address  # a tenth of what array.ctypes.data takes
BEGIN, END = object(), object()
_entries: dict[Any, Any] = {}  # of loops, for arguments of some kinds
_making = threading.RLock()


def of_blas(name: str) -> Any:
    """A function of the library by which NumPy multiplies matrices, called with the GIL held, or None."""
    linked = vars(np)["_core"]._multiarray_umath.__file__  # what it is linked with is searched, too
    libraries = Path(np.__file__).parents[1].glob("numpy.libs/*openblas*")  # but not on Windows
    for file in (linked, *map(str, libraries)):
        with contextlib.suppress(OSError, AttributeError):
            return getattr(ctypes.PyDLL(file), name)
    return None


_pairs = (tuple(map(of_blas, names)) for names in THREADS_OF_BLAS)
blas_has, set_blas = next((pair for pair in _pairs if None not in pair), (lambda: 1, None))


class OneThread:
    """Within it BLAS has one thread: who enters first sets that, and the number of before when it leaves."""

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before = blas_has()
        if self.before > 1:
            set_blas(1)

    def __exit__(self, *error: object) -> None:
        if self.before > 1:
            set_blas(self.before)


@functools.cache
def count() -> int:
    """Threads to use: $MINICAFFE_NUM_THREADS, else the processors this process may run on.

    One where BLAS cannot be held to one thread, since threads of both kinds would fight for the cores.
    Raises MinicaffeError if the variable is no number from 1 to MOST. It is asked once.
    """
    if asked := os.environ.get(VARIABLE):
        if not re.fullmatch("0*[1-9][0-9]{,3}", asked) or int(asked) > MOST:
            problem = f"expected an integer from 1 to {MOST}, got {asked!r:.60}"
            raise MinicaffeError(f"{VARIABLE}: {problem}")
        cores = int(asked)
    elif hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    is_alone = any(os.environ.get(name) == "1" for name in VARIABLES_OF_BLAS)
    return cores if set_blas or is_alone else 1


@contextlib.contextmanager
def at_most(most: int, each: int | None = None) -> Iterator[None]:
    """Let this thread's `in_slices` use so many threads at most, each with `each` elements of work or fewer.

    >>> from minicaffe.backends.cpu.slices import in_slices
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
    """So many threads, the caller's among them."""
    return _crew(threads, available())


@functools.cache
def _crew(threads: int, compiled: bool) -> Crew:
    """The same, which walk through compiled loops, or not."""
    try:
        replay = loops("thread_pool_loops", np.float64) if compiled else None
        return CompiledCrew(threads, replay) if replay else Crew(threads)
    except RuntimeError as error:  # the system has no more
        raise MinicaffeError(f"{threads} threads: {error}; ask for fewer with {VARIABLE}") from None


@functools.lru_cache(maxsize=4096)
def evenly(units: int, threads: int) -> bool:
    """Whether `units` split over threads into slices of nearly one size.

    >>> evenly(3, 2), evenly(4, 2), evenly(9, 2)
    (False, True, True)
    """
    return units % threads == 0 or units >= ENOUGH * threads


@functools.lru_cache(maxsize=4096)
def even_parts(units: int, threads: int, most: int, least: int = 1) -> int:
    """Returns into how many parts to cut each unit, `least` to `most`, so that threads have equally much.

    >>> even_parts(1, 2, 16), even_parts(8, 2, 16), even_parts(3, 2, 1), even_parts(1, 2, 3, least=3)
    (2, 1, 1, 3)
    """
    most = max(least, most)
    return next((parts for parts in range(least, most) if evenly(units * parts, threads)), most)


def run(loop: Callable[..., None], n: int, *args: Any, grain: int = 1) -> int:
    """Run a compiled loop(*args, first, last) over slices of 0..n, one per thread; returns their number.

    A slice has at least `grain` units, if there is more than one. An argument Piece(work) is divided into
    pieces of one size, one per slice, in order. The call is recorded, if this thread records.
    """
    slices = min(n, max(1, min(n // grain, 1 if inside.get() else share())))
    if slices:
        row = LoopCommand(loop, args, n, slices)
        if state.trace is not None:
            state.trace.ran(row)
        walk(Table([row]))
    return slices


def run_flat(loop: Callable[..., None], out: Any, *args: Any) -> None:
    """Run a compiled element-wise loop over all of `out`: arrays go flat, numbers as they are."""
    sizes = {arg.size for arg in args if isinstance(arg, np.ndarray)}
    if sizes != {out.size}:  # a loop does not look where an array ends
        raise ShapeError(f"arrays of {sorted(sizes | {out.size})} elements do not go together")
    if not out.flags.c_contiguous:  # what is flat of it would be a copy
        raise TypeError(f"an array of shape {out.shape} with gaps has no place in a row")
    flat = [arg.reshape(-1) if isinstance(arg, np.ndarray) else arg for arg in (*args, out)]
    run(loop, out.size, *flat, grain=GRAIN)


class Table:
    """Commands as (entry, address of its words, n, slices, its first thread, whether threads synchronise after
    it), for `thread_pool_loops.lead`. It keeps their arguments alive. Neighbours of one slice each, which one
    thread runs, and those of a command `Apart`, have no synchronisation between them.
    """

    def __init__(self, rows: Sequence[LoopCommand | Apart]):
        self.rows = tuple([row for row in rows if row.slices])  # a generator would keep more memory
        self.walkers = max([row.slices for row in self.rows], default=0)
        # Of each a loop, its first thread, and whether threads synchronise after it
        calls: list[tuple[LoopCommand, int, bool]] = []
        for row, then in itertools.zip_longest(self.rows, self.rows[1:]):
            if isinstance(row, Apart):
                calls += [(one, t, False) for t, part in enumerate(row.parts) for one in part]
                calls[-1] = (*calls[-1][:2], True)
            else:
                alone = isinstance(then, LoopCommand) and row.slices == then.slices == 1
                calls.append((row, 0, not alone))
        self.length = len(calls)
        words, self._words = array("q"), array("q")
        for one, thread, meets in calls:
            start = len(words)
            kinds = bind(one.args, one.slices, words)
            self._words.extend((address(one.loop, kinds), start, one.n, one.slices, thread, meets))
        self._words.extend(words)
        self.where = self._words.buffer_info()[0]
        for i in range(1, ROW * self.length, ROW):
            self._words[i] = self.where + 8 * (ROW * self.length + self._words[i])


def walk(table: Table) -> None:
    """Run the commands of a table, with several threads unless this is within a slice."""
    walkers = 1 if inside.get() else min(table.walkers, count())
    everybody: Any = _crew(count(), available())  # the pool of compiled loops
    everybody.lead(everybody.where, table.where, table.length, walkers)


def address(loop: Callable[..., None], kinds: tuple[Any, ...]) -> int:
    """The address of a loop's entry for arguments of these kinds (see `call_abi`)."""
    key = loop, kinds
    if key not in _entries:
        with _making:
            if key not in _entries:
                call_abi: Any = loops("call_abi", "f")
                _entries[key] = call_abi.entry(loop, nested(kinds))
    return int(_entries[key].address)


def bind(args: tuple[Any, ...], slices: int, words: array[int]) -> tuple[Any, ...]:
    """Append arguments as words; returns their kinds, a tuple's between BEGIN and END. Raises TypeError.

    >>> words = array("q")
    >>> nested(bind((3, True, (np.float32(1), 2.0)), 1, words))
    (<class 'int'>, <class 'bool'>, ('f', <class 'float'>))
    >>> words.tolist() == [3, 1, 0x3F800000, 1 << 62]
    True
    """
    kinds: list[Any] = []
    todo = [*reversed(args)]
    while todo:  # in one loop: it is called for each call of a compiled one
        arg = todo.pop()
        kind: Any = type(arg)
        if kind is np.ndarray:
            if not arg.flags.c_contiguous:
                raise TypeError(f"an array of shape {arg.shape} with gaps has no place in a row")
            words.append(_word_at(id(arg) + HEAD).value)
            words.extend(arg.shape)
            kind = arg.dtype.char, arg.ndim
        elif kind is int or kind is bool:
            words.append(arg)
        elif isinstance(arg, tuple):
            kind = BEGIN
            todo += [END, *reversed(arg)]
        elif kind is Piece:
            words.append(_word_at(id(arg.work) + HEAD).value)
            words.append(arg.work.size // slices)
            kind = arg.work.dtype.char, -1
        elif kind is Tail:
            words.extend((_begun(arg, slices), arg.words.buffer_info()[0], arg.size))
        elif kind is float or isinstance(arg, np.generic):
            value = np.asarray(arg)
            words.frombytes(value.tobytes().ljust(8, b"\0"))
            kind = kind if kind is float else value.dtype.char
        elif arg is END:
            kind = END
        else:
            raise TypeError(f"{kind.__name__} has no place in a row: {arg!r:.60}")
        kinds.append(kind)
    return tuple(kinds)


def nested(kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """The kinds of arguments, those of a tuple's entries in a tuple."""
    open_ones: list[list[Any]] = [[]]
    for kind in kinds:
        if kind is BEGIN:
            open_ones.append([])
        elif kind is END:
            entries = tuple(open_ones.pop())
            open_ones[-1].append(entries)
        else:
            open_ones[-1].append(kind)
    return tuple(open_ones[0])


def _begun(tail: Tail, slices: int) -> int:
    """The address of a tail's entry, 0 if it has none. Its words are laid out once, and stay there."""
    words = array("q")
    kinds = bind(tail.args, slices, words)
    if tail.words is None:
        tail.words = words
    return address(tail.loop, kinds) if tail.loop else 0


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_crew.cache_clear)
