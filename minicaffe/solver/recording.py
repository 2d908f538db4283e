"""The recorder of a run, if a Solver has one: entered before it steps, and left behind that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from minicaffe.communicator import together

F = TypeVar("F", bound=Callable[..., Any])


class Recorder(Protocol):
    """What is told that a Solver begins to step, and that it has ended."""

    inside: bool  # whether it is entered

    def enter(self, solver: Any) -> None:
        """The solver begins, or goes on. Raises CheckpointError if nothing can be recorded."""

    def leave(self, solver: Any, error: BaseException | None, ends: bool) -> None:
        """What was entered is over: with an error, or the run's end."""


def recorded(ends: bool) -> Callable[[F], F]:
    """Have what a method of a Solver does be recorded in the folder of its run, if it keeps one.

    With `ends` the run ends with it. Of several ranks the first does so.
    """

    def around(method: F) -> F:
        @functools.wraps(method)
        def inner(solver: Any, *args: Any, **kwargs: Any) -> Any:
            kept = solver._kept
            if kept is None or kept.inside:
                return method(solver, *args, **kwargs)
            first, error = solver.communicator.rank == 0, None
            together(solver.communicator, lambda: kept.enter(solver) if first else None)
            kept.inside = True
            try:
                return method(solver, *args, **kwargs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                kept.inside = False
                if first:
                    kept.leave(solver, error, ends)

        return cast(F, inner)

    return around
