"""What ops do, noted down: the rows of a program; and the kernels that CUDA is given.

On the CPU a row is a compiled loop, which the gate `threads.run` runs, or calls of NumPy's, by way of `do`.

with record.recording() as made:
    layer.forward()
made.rows      # what was run or called on the CPU, in order
made.launches  # the kernels of this project that were launched, and what with
made.hosts     # why some of it cannot be replayed; empty if all of it can
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.kernels import Asked, heard
from minicaffe.ops import loops

_here = threading.local()


class Piece:
    """An argument of a loop: a flat buffer, of which each slice gets an equal piece of its own."""

    def __init__(self, work: Any):
        self.work = work


@dataclass(frozen=True, eq=False)
class Row:
    """A call of loop(*args, first, last) over slices of 0..n; keeps alive what its arguments point to.

    Rows are equal if they do the same: arrays that lie at one place are the same, whatever they hold.
    """

    loop: Callable[..., None]
    args: tuple[Any, ...]
    n: int
    slices: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        mine, theirs = ((row.loop, row.n, row.slices, place(row.args)) for row in (self, other))
        return mine == theirs

    @property
    def name(self) -> str:
        """The loop's file and name.

        >>> Row(print, (), 1, 1).name
        'builtins.print'
        """
        return f"{self.loop.__module__.rpartition('.')[2]}.{self.loop.__name__}"

    @property
    def bytes(self) -> int:
        """The size of all arrays among the arguments, each once: what is read or written at least.

        >>> Row(print, (np.zeros(3), (np.ones(2), 5)), 1, 1).bytes
        40
        """
        return sum({id(array): array.nbytes for array in arrays(self.args)}.values())


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls of NumPy's functions: of each slice those that its thread makes, in their order.

    Equal if they do the same, as rows are.
    """

    parts: list[list[partial[Any]]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calls) and self._places() == other._places()

    def _places(self) -> list[Any]:
        return [[_place_of(call) for call in part] for part in self.parts]

    @property
    def slices(self) -> int:
        """Among how many threads they are shared."""
        return len(self.parts)

    @property
    def name(self) -> str:
        """The functions, each once.

        >>> Calls([[partial(np.add, 1, 2), partial(np.exp, 0), partial(np.add, 0, 0)]]).name
        'add, exp'
        """
        every = (call.func for part in self.parts for call in part)
        return ", ".join(dict.fromkeys(_name(function) for function in every))

    @property
    def bytes(self) -> int:
        """The size of all arrays among the arguments, each once."""
        found = [array for part in self.parts for call in part for array in touched(call)]
        return sum({place(array)[:2]: array.nbytes for array in found}.values())


@dataclass
class Recording:
    """What one thread ran: rows, and why there was something beside them."""

    rows: list[Row | Calls] = field(default_factory=list)
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    part: list[partial[Any]] | None = None  # where calls are noted, once there are any

    def called(self, call: partial[Any]) -> None:
        """Note a call of NumPy's, which is a row where no loops are compiled."""
        if loops.available():
            self.host(f"{_name(call.func)} by NumPy")
            return
        if self.part is None:
            self.part = []
            self.rows.append(Calls([self.part]))
        self.part.append(call)

    def ran(self, row: Row | Calls) -> None:
        """Note a row; calls from now on are another."""
        self.rows.append(row)
        self.part = None

    def launched(self, asked: Asked) -> bool:
        """Note what CUDA is to do now: two are equal if they do the same."""
        self.launches.append((asked.name, asked.types, asked.grid, place(asked.args)))
        return True

    def host(self, why: str) -> None:
        """Note why it cannot be replayed."""
        self.hosts.append(why)


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Note down what this thread runs, until the end of the block; an outer recording does not see it."""
    before, made = getattr(_here, "made", None), Recording()
    _here.made = made
    try:
        with heard(made):
            yield made
    finally:
        _here.made = before


def host(why: str) -> None:
    """Say that something is computed here that no row carries, if this thread records.

    >>> with recording() as made:
    ...     host("this is Python")
    >>> made.hosts
    ['this is Python']
    """
    if (made := getattr(_here, "made", None)) is not None:
        made.host(why)


def active() -> bool:
    """Whether this thread records."""
    return getattr(_here, "made", None) is not None


def calls_are_rows() -> bool:
    """Whether this thread records, and can note calls of NumPy's: where no loops are compiled."""
    return active() and not loops.available()


def row(loop: Callable[..., None], args: tuple[Any, ...], n: int, slices: int) -> Row:
    """A row, noted if this thread records: for the gate."""
    made = Row(loop, args, n, slices)
    if (recording := getattr(_here, "made", None)) is not None:
        recording.ran(made)
    return made


def do(function: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """Call a function of NumPy's, or one like it; noted if this thread records, but on CUDA.

    What it writes is `out`, an array or several, or else its first argument, and lies in memory that is there.
    What it does follows from what its arguments are, and from what they hold when it is called.

    >>> x = np.ones(2)
    >>> with recording() as made:
    ...     do(np.add, x, 1, out=x)
    array([2., 2.])
    """
    made: Recording | None = getattr(_here, "made", None)
    if made is not None and not any(map(on_cuda, args)):
        made.called(partial(function, *args, **how))
    return function(*args, **how)


def apart(slices: Sequence[Callable[[], None]]) -> None:
    """Run slices one after the other; what each calls is noted, if this thread records: for the gate."""
    made: Recording | None = getattr(_here, "made", None)
    parts: list[list[partial[Any]]] = [[] for _ in slices]
    for run, part in zip(slices, parts, strict=True):
        if made is not None:
            made.part = part
        run()
    if made is not None:
        made.ran(Calls(parts))


def touched(call: partial[Any]) -> Iterator[np.ndarray]:
    """All arrays that a call reads or writes."""
    yield from arrays((*call.args, *call.keywords.values()))


def written(call: partial[Any]) -> Iterator[np.ndarray]:
    """The arrays that a call writes.

    >>> x, y = np.zeros(1), np.zeros(2)
    >>> calls = partial(np.add, x, x, out=y), partial(np.copyto, x, y)
    >>> [array.size for call in calls for array in written(call)]
    [2, 1]
    """
    out = call.keywords.get("out")
    yield from arrays((call.args[0],) if out is None else (out,))


def _name(function: Any) -> str:
    """What a function is called; of a ufunc's method, with the ufunc."""
    of = getattr(function, "__self__", None)
    lead = f"{of.__name__}." if isinstance(of, np.ufunc) else ""
    return lead + str(getattr(function, "__name__", function)).strip("_")


def _place_of(call: partial[Any]) -> Any:
    how = tuple((name, place(value)) for name, value in sorted(call.keywords.items()))
    return call.func, place(call.args), how


def arrays(args: Any) -> Iterator[np.ndarray]:
    """All arrays among arguments.

    >>> [array.size for array in arrays((np.zeros(2), 3, (Piece(np.zeros(4)),)))]
    [2, 4]
    """
    for arg in args:
        if isinstance(arg, tuple):
            yield from arrays(arg)
        elif isinstance(arg, Piece):
            yield arg.work
        elif isinstance(arg, np.ndarray):
            yield arg


def place(arg: Any) -> Any:
    """What an argument is: of an array where it lies, its shape and type, of a number its bits.

    >>> x = np.zeros(2)
    >>> place((x, 1)) == place((x[:], 1)), place(x) == place(x.copy()), place(1) == place(True)
    (True, False, False)
    """
    if isinstance(arg, tuple):
        return tuple(map(place, arg))
    if isinstance(arg, Piece):
        return Piece, place(arg.work)
    if isinstance(arg, np.ndarray) and arg.dtype.names:  # a struct, given by value
        return arg.dtype, arg.tobytes()
    if isinstance(arg, np.ndarray):
        return arg.__array_interface__["data"][0], arg.shape, arg.strides, arg.dtype
    if isinstance(arg, np.generic):
        return type(arg), arg.tobytes()
    if on_cuda(arg):
        return arg.data.ptr, arg.shape, arg.strides, arg.dtype
    return type(arg), arg
