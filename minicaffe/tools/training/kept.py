"""The run that a Solver keeps by itself, where `minicaffe train` is not there to do it."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.solver import snapshots
from minicaffe.errors import CheckpointError
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.composite_report import Together
from minicaffe.tools.training.lock import Lock
from minicaffe.tools.training.record import Record
from minicaffe.tools.training.run import Run


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
            self.run.snapshot = solver._saving.restored
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
