"""The folder that a run leaves, kept while a Solver trains: by `train`, and by Solver(run=...)."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net.model import text
from minicaffe.core.net.sources import with_classes
from minicaffe.core.solver import snapshots
from minicaffe.core.solver.scores import score_suffixes
from minicaffe.errors import CheckpointError, MinicaffeError, TrainingError
from minicaffe.storage import checkpoint
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training import resume
from minicaffe.tools.training.folder import LOCK, Lock, RunRecord, now
from minicaffe.tools.training.log_file import json_line
from minicaffe.tools.training.progress import Together
from minicaffe.tools.training.record import Record
from minicaffe.tools.training.speed import facts


def model_text(solver: Any, folder: Path) -> str:
    """The text of model.yaml: the net and solver as they are, but where snapshots go."""
    net = with_classes(solver.net.spec, solver.net.layers.values())
    dtype = solver.net.context.dtype.name
    prefix = net.solver.snapshot_prefix if net.solver is not None else None
    rule = dataclasses.replace(solver.spec, snapshot_prefix=prefix)
    as_it_is = {"solver": rule, "dtype": dtype, "precision": solver.net.precision}
    return text(dataclasses.replace(net, **as_it_is), folder)


class Run:
    """A run that begins, or goes on from `snapshot`; in `begun` what its folder holds, if it is one.

    While it is entered, nobody else trains in its folder. Raises CheckpointError.
    """

    def __init__(
        self,
        record: Record,
        name: str,
        folder: Path | None,
        given: Mapping[str, Any],
        snapshot: Path | None = None,
        from_newest: bool = False,
    ):
        """`folder` is a new one if it is None; `from_newest` goes on from what is found in it.

        `given` is what run.json says of how it was asked for: `model`, `command`, `imports`, `seed_asked`.
        """
        self.record, self.name, self.folder, self.given = record, name, folder, given
        self.snapshot, self.from_newest = snapshot, from_newest
        self.begun: RunRecord | None = None
        self.lock: Lock | None = None
        self.made: Path | None = None
        self.at_end: list[Callable[[], None]] = []  # done when the record is whole

    def __enter__(self) -> Run:
        if self.folder is not None and run_folder.is_run(self.folder):
            self.lock = Lock(self.folder)
            try:
                self._join(run_folder.read(self.folder))
            except BaseException:
                self.lock.release()
                raise
        return self

    def _join(self, begun: RunRecord) -> None:
        """Go on in a run's folder. Raises CheckpointError if another run would be lost by that."""
        newest = begun.newest
        if self.from_newest and self.snapshot is None:
            self.snapshot = newest
        homes = begun.folder.resolve(), Path(begun.prefix).parent.resolve()
        own = self.snapshot is not None and (
            self.snapshot == newest or self.snapshot.parent.resolve() in homes
        )
        if newest is not None and not own:
            raise CheckpointError(
                f"{begun.folder}: holds another run, with snapshots; go on with that by --resume "
                f"{begun.folder}, or choose another folder with --run"
            )
        self.begun, self.name = begun, begun.about["name"]

    def seed(self) -> int | None:
        """The seed that the command asks for, or the one that began the run did."""
        asked: int | None = self.given["seed_asked"]
        return asked if self.begun is None else self.begun.about.get("seed_asked")

    def place(self, solver: Any) -> Path:
        """Give the solver, before it is restored, its folder, and make that if it is not there."""
        if self.folder is None:
            self.folder = self.made = run_folder.fresh(self.name)
        elif not self.folder.exists():
            self.made = self.folder
        run_folder.make(self.folder)
        if self.lock is None:
            self.lock = Lock(self.folder)
            if run_folder.is_run(self.folder):  # another process made it meanwhile
                self._join(run_folder.read(self.folder))
        solver._record_folder, solver._saving.prefix = self.folder, self._prefix(solver)
        snapshots.check(solver._saving.prefix, solver.spec.snapshot_format, solver.net.layers)
        run_folder.clean(self.folder, solver._saving.prefix)
        return self.folder

    def begin(self, solver: Any) -> None:
        """The solver, restored, is about to train: the record begins."""
        assert self.folder is not None
        about = {"name": self.name, **facts(solver), **self.given, "seed_asked": self.seed()}
        about |= {"started": now(), "resumed": None}
        about["resumed_from"] = self.snapshot and run_folder.seen_from(self.folder, self.snapshot)
        about["snapshot_prefix"] = run_folder.seen_from(self.folder, solver._saving.prefix)
        about["tests_on"] = list(score_suffixes(solver.test_nets, solver.net))
        lines = []
        if self.snapshot is not None and self.begun is not None:
            name = run_folder.seen_from(self.folder, self.snapshot)
            lines = resume.cut(self.begun.lines, name, solver.iteration, solver._test_due())
            old = self.begun.about
            about |= {key: old[key] for key in ("model", "cwd", "started")}
            about["resumed"] = now()
            before, several = old.get("batch"), max(old.get("ranks", 1), about["ranks"]) > 1
            if several and before not in (None, about["batch"]):
                solver.report.event(f"a batch of {about['batch']} samples; before it was {before}")
        data = "".join(f"{json_line(line)}\n" for line in lines).encode()
        checkpoint.replace(self.folder / run_folder.LOG, lambda file: file.write(data))
        seconds = float(lines[-1]["seconds"] or 0.0) if lines else 0.0
        resume.forget(self.folder, self.snapshot)
        given = about, model_text(solver, self.folder), seconds, self.lock
        self.record.begin(solver, self.folder, *given)

    def _prefix(self, solver: Any) -> str:
        """What snapshots' names begin with: what the model or the command says, else the run's own."""
        if solver.spec.snapshot_prefix is not None:
            return solver.spec.snapshot_prefix
        if self.begun is None:
            assert self.folder is not None
            return str(self.folder / self.name)
        return self.begun.prefix

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if self.record.solver is not None:
                self._end(error)
                for end in self.at_end:
                    end()
            elif self.made is not None:  # and nothing came of it
                with contextlib.suppress(OSError):
                    (self.made / LOCK).unlink()
                    self.made.rmdir()
        finally:
            if self.lock is not None:
                self.lock.release()

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self.record.end("stopped" if self.record.solver.stopped else "finished")
            return
        if isinstance(error, KeyboardInterrupt):
            self.record.event("stopped at once, without a snapshot")
            state = "stopped"
        else:
            told = isinstance(error, MinicaffeError)
            self.record.event(str(error) if told else f"{type(error).__name__}: {error}")
            state = "diverged" if isinstance(error, TrainingError) else "failed"
        try:
            self.record.end(state)
        except CheckpointError as lacking:
            self.record.tell(str(lacking))  # beside the error that ended training


class Kept:
    """The run of Solver(run=...): it begins with the first iteration, and `solve` ends it."""

    def __init__(self, solver: Any, model: NetSpec, settings: Mapping[str, Any]):
        """From here on what the solver reports is recorded, too."""
        self.record = Record(solver.report.failed, [])
        file, seed = model.path or model.layers[0].mark.file, settings.get("random_seed")
        given = {"model": str(file), "command": [*sys.argv], "imports": [], "seed_asked": seed}
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
            self.run.__exit__(None, error, None)


def _leave(folder: Path, lock: Lock, at: list[int]) -> None:
    """A solver has gone: let its run, if it has not ended, say that it was stopped."""
    with contextlib.suppress(CheckpointError):  # its folder has gone, too
        about = run_folder.about(folder)
        if about["state"] == "running":
            about |= {"state": "stopped", "iteration": at[0]}
            run_folder.write(folder, about)
    lock.release()
