"""What the gate `threads.run` runs, noted down: the rows of a program; and the kernels that CUDA is given.

with record.recording() as made:
    layer.forward()
made.rows      # what was run on the CPU, in order
made.launches  # the kernels of this project that were launched, and what with
made.hosts     # why some of it cannot be replayed; empty if all of it can
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minicaffe.backend import on_cuda
from minicaffe.kernels import Asked, heard

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


@dataclass
class Recording:
    """What one thread ran: rows, and why there was something beside them."""

    rows: list[Row] = field(default_factory=list)
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)

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


def row(loop: Callable[..., None], args: tuple[Any, ...], n: int, slices: int) -> Row:
    """A row, noted if this thread records: for the gate."""
    made = Row(loop, args, n, slices)
    if (recording := getattr(_here, "made", None)) is not None:
        recording.rows.append(made)
    return made


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
