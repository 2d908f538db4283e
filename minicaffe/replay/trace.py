"""What ops do, noted down: the rows of a program; and the kernels that CUDA is given.

On the CPU a row is a compiled loop, which `dispatch.run` runs, or calls of NumPy, by way of `do`.

with trace.recording() as made:
    layer.forward()
made.rows      # what was run or called on the CPU, in order
made.launches  # the kernels of this project that were launched, and what with
made.hosts     # why some of it cannot be replayed; empty if all of it can
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from minicaffe import cpu
from minicaffe.backend import on_cuda
from minicaffe.listener import Asked, heard
from minicaffe.replay.command import Calls, Row, name_of, place
from minicaffe.thread_state import state


@dataclass
class Recording:
    """What one thread ran: rows, and why there was something beside them."""

    rows: list[Row | Calls] = field(default_factory=list)
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    part: list[partial[Any]] | None = None  # where calls are noted, once there are any

    def called(self, call: partial[Any]) -> None:
        """Note a call of NumPy's, which is a row where no loops are compiled."""
        assert "out" in call.keywords or not isinstance(call.func, np.ufunc), call
        if cpu.available():
            self.host(f"{name_of(call.func)} by NumPy")
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
    before, made = state.trace, Recording()
    state.trace = made
    try:
        with heard(made):
            yield made
    finally:
        state.trace = before


def host(why: str) -> None:
    """Say that something is computed here that no row carries, if this thread records.

    >>> with recording() as made:
    ...     host("this is Python")
    >>> made.hosts
    ['this is Python']
    """
    if (made := state.trace) is not None:
        made.host(why)


def active() -> bool:
    """Whether this thread records."""
    return state.trace is not None


def calls_are_rows() -> bool:
    """Whether this thread records, and can note calls of NumPy's: where no loops are compiled."""
    return active() and not cpu.available()


def row(loop: Callable[..., None], args: tuple[Any, ...], n: int, slices: int) -> Row:
    """A row, noted if this thread records: for the gate."""
    made = Row(loop, args, n, slices)
    if (recording := state.trace) is not None:
        recording.ran(made)
    return made


def do(function: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """Call a function of NumPy's, or one like it; noted if this thread records, but on CUDA.

    What it writes is `out`, an array or several, or else its first argument, and lies in memory that is there.
    What it does follows from what its arguments are, and from what they hold when it is called.

    >>> import numpy as np
    >>> x = np.ones(2)
    >>> with recording() as made:
    ...     _ = do(np.add, x, 1, out=x)
    >>> x
    array([2., 2.])
    """
    made = state.trace
    if made is not None and not any(map(on_cuda, (*args, *how.values()))):
        made.called(partial(function, *args, **how))
    return function(*args, **how)


def apart(slices: Sequence[Callable[[], None]]) -> None:
    """Run slices one after the other; what each calls is noted, if this thread records: for the gate."""
    made = state.trace
    parts: list[list[partial[Any]]] = [[] for _ in slices]
    for run, part in zip(slices, parts, strict=True):
        if made is not None:
            made.part = part
        run()
    if made is not None:
        made.ran(Calls(parts))
