"""Traces: the commands that ops run on the CPU, and the kernels that they launch on CUDA.

On the CPU a command is a compiled loop, which `cpu.run.run` runs, or NumPy calls: see cpu.run.by_numpy.

with trace.recording() as made:
    layer.forward()
made.rows      # the commands that ran on the CPU, in order
made.launches  # the kernels of this project that were launched, with their arguments
made.hosts     # why some of it cannot be replayed; empty if all of it can
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from minicaffe.backends import cpu
from minicaffe.backends.cpu.command import Apart, Calls, Command, name_of, place
from minicaffe.backends.launch_listener import Asked, heard
from minicaffe.backends.thread_state import state


@dataclass
class Recording:
    """What one thread ran: commands, and reasons why other work cannot be replayed."""

    rows: list[Command] = field(default_factory=list)
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    part: list[partial[Any]] | None = None  # the calls of the current command, if there are any

    def called(self, call: partial[Any]) -> None:
        """Record a NumPy call, which is a command if no loops are compiled."""
        assert "out" in call.keywords or not isinstance(call.func, np.ufunc), call
        if cpu.available():
            self.host(f"{name_of(call.func)} by NumPy")
            return
        if self.part is None:
            self.part = []
            self.rows.append(Calls([self.part]))
        self.part.append(call)

    def ran(self, row: Command) -> None:
        """Record a command; later calls belong to a new one."""
        self.rows.append(row)
        self.part = None

    def launched(self, asked: Asked) -> bool:
        """Record a kernel launch; two are equal if they do the same."""
        self.launches.append((asked.name, asked.types, asked.grid, place(asked.args)))
        return True

    def apart(self, slices: Sequence[Callable[[], None]]) -> None:
        """Run slices one after the other, and record what they do as one command."""
        calls: list[list[partial[Any]]] = [[] for _ in slices]
        before, loops = self.rows, list[list[Any]]()
        for run, self.part in zip(slices, calls, strict=True):
            self.rows = []
            run()
            loops.append(self.rows)
        self.rows = before
        self.ran(Apart(loops) if cpu.available() else Calls(calls))

    def host(self, why: str) -> None:
        """Record why the work cannot be replayed."""
        self.hosts.append(why)


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Record what this thread runs, until the end of the block; an outer recording does not see it."""
    before, made = state.trace, Recording()
    state.trace = made
    try:
        with heard(made):
            yield made
    finally:
        state.trace = before
