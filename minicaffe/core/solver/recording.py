"""The recorder of a run, if a Solver has one: entered before it steps, and left after that."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from minicaffe.core.communicator import together

F = TypeVar("F", bound=Callable[..., Any])


def recorded(ends: bool) -> Callable[[F], F]:
    """Record a method of a Solver in the folder of its run, if it has one.

    With `ends` the run ends with it. Only rank 0 records.
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
