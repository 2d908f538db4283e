"""The run that a Solver keeps by itself, where `minicaffe train` is not there to do it."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from minicaffe.errors import CheckpointError
from minicaffe.parallel.together import together
from minicaffe.solver import run_folder, snapshots
from minicaffe.solver.lock import Lock
from minicaffe.solver.record import Record
from minicaffe.solver.run import Run
from minicaffe.solver.together import Together
from minicaffe.spec.declare import NetSpec

F = TypeVar("F", bound=Callable[..., Any])


class Kept:
    """The run of Solver(run=...): it begins with the first iteration, and `solve` ends it."""

    def __init__(self, solver: Any, model: NetSpec, settings: Mapping[str, Any]):
        """From here on what the solver reports is recorded, too."""
        self.record, file = (
            Record(solver.report.failed, []),
            model.path or model.layers[0].mark.file,
        )
        given: dict[str, Any] = {"model": str(file), "command": [*sys.argv], "imports": []}
        given["seed_asked"] = settings.get("random_seed")
        self.run = Run(self.record, snapshots.name(model), solver.run, given)
        self.began = self.inside = False
        solver._record_folder = solver.run
        if solver.communicator.rank == 0:
            solver.report = Together(solver.report, self.record)

    def enter(self, solver: Any) -> None:
        """Begin, or go on with, the record. Raises CheckpointError."""
        if self.began:
            self.record.again()
            return
        if solver.iteration:
            self.run.snapshot = solver._restored
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(self.run)
                self.run.place(solver)
                self.run.begin(solver)
                stack.pop_all()
        finally:
            self.began = self.record.solver is not None
        assert self.run.folder is not None and self.run.lock is not None
        self.at = [solver.iteration]
        weakref.finalize(solver, _leave, self.run.folder.absolute(), self.run.lock, self.at)

    def leave(self, solver: Any, error: BaseException | None, ends: bool) -> None:
        """What was entered is over: with an error, or the run's end."""
        self.at[:] = [solver.iteration]
        if error is not None or ends:
            self.run.__exit__(type(error) if error else None, error, None)


def _leave(folder: Path, lock: Lock, at: list[int]) -> None:
    """A solver has gone: let its run, if it has not ended, say that it was stopped."""
    with contextlib.suppress(CheckpointError):  # its folder has gone, too
        about = run_folder.about(folder)
        if about["state"] == "running":
            about |= {"state": "stopped", "iteration": at[0]}
            run_folder.write(folder, about)
    lock.release()


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
