"""Where `train` keeps a run: a new folder, or that of a run which goes on; and the record it leaves there."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from minicaffe.cli.go_on import program
from minicaffe.errors import CheckpointError, MinicaffeError, SpecError, TrainingError
from minicaffe.net.model import text
from minicaffe.net.sources import with_classes
from minicaffe.solver import Solver, resume, run_folder, snapshots
from minicaffe.solver.facts import facts
from minicaffe.solver.lock import LOCK, Lock, now
from minicaffe.solver.record import Record
from minicaffe.solver.run_folder import RunRecord
from minicaffe.spec.declare import NetSpec

NEWEST = "the newest snapshot"


def options(parser: argparse.ArgumentParser, start: Any) -> None:
    """--run, --snapshot-prefix, and --resume, which goes into the group `start`."""
    start.add_argument(
        "--resume",
        metavar="RUN",
        nargs="?",
        const=NEWEST,
        help="go on from the newest snapshot in a run's folder, or from a snapshot; without RUN from the"
        " newest of this model, or in the folder of --run",
    )
    parser.add_argument(
        "--run",
        metavar="DIR",
        help=f"the run's folder; default: {run_folder.RUNS}/NAME-DATE, or that of the run which goes on",
    )
    parser.add_argument(
        "--snapshot-prefix",
        metavar="PATH",
        help="snapshots are PATH_iter_N.npz or, of a prototxt, .solverstate; default: the model's"
        " snapshot_prefix, else NAME in the run's folder",
    )


def model_of_run(args: argparse.Namespace) -> None:
    """Without MODEL take that of the run, or of the snapshot, which goes on. Raises MinicaffeError.

    With the folder of a run as MODEL that run goes on, if any is to. What Python files it was begun with must
    be said again: nothing that a folder names is executed unasked.
    """
    if args.model is None:
        if args.resume in (None, NEWEST):
            raise SpecError(
                "no MODEL: give its file, or --resume RUN, whose folder holds the model"
            )
        args.model = str(resume.model_of(args.resume))
    if run_folder.is_run(args.model):
        if (imports := run_folder.about(args.model)["imports"]) and not args.imports:
            again = shlex.join(word for file in imports for word in ("--import", file))
            raise SpecError(f"{args.model}: was begun with Python files; give them again: {again}")
        if args.resume == NEWEST and args.run is None:
            args.resume = args.model


def model_text(solver: Solver, folder: Path) -> str:
    """The text of model.yaml: the net and solver as they are, but where snapshots go."""
    net = with_classes(solver.net.spec, solver.net.layers.values())
    dtype = solver.net.context.dtype.name
    prefix = net.solver.snapshot_prefix if net.solver is not None else None
    rule = dataclasses.replace(solver.spec, snapshot_prefix=prefix)
    return text(dataclasses.replace(net, solver=rule, dtype=dtype), folder)


class Run:
    """A run that begins, or goes on from `snapshot`; in `begun` what its folder holds, if it is one.

    While it is entered, nobody else trains in its folder. Raises CheckpointError.
    """

    def __init__(self, args: argparse.Namespace, spec: NetSpec, record: Record):
        self.args, self.record = args, record
        self.name = snapshots.name(spec)
        if run_folder.is_run(args.model):
            self.name = run_folder.about(args.model)["name"]
        self.folder = Path(args.run) if args.run is not None else None  # None: a new one
        self.snapshot: Path | None = None
        self.begun: RunRecord | None = None
        self.lock: Lock | None = None
        self.made: Path | None = None
        self.at_end: list[Callable[[], None]] = []  # done when the record is whole
        given = args.snapshot_prefix or (spec.solver.snapshot_prefix if spec.solver else None)
        if args.resume == NEWEST:
            if self.folder is None:
                self.folder, self.snapshot = resume.newest(args.model, self.name, given)
        elif args.resume is not None:
            self._go_on_from(args.resume)

    def _go_on_from(self, path: str) -> None:
        """From a run's folder, or a snapshot."""
        if os.path.isdir(path):
            record = RunRecord(Path(path), run_folder.about(path))
            self.folder, self.snapshot = self.folder or record.folder, record.newest
            if self.snapshot is None:
                raise CheckpointError(
                    f"{path}: this run has no snapshot to go on from; begin it anew with --run {path}"
                )
            return
        self.snapshot = resume.with_state(path)
        self.folder = self.folder or resume.run_of(self.snapshot)

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
        if self.args.resume == NEWEST and self.snapshot is None:
            self.snapshot = newest
        own = self.snapshot is not None and (
            self.snapshot == newest
            or self.snapshot.parent.resolve()
            in (begun.folder.resolve(), Path(begun.prefix).parent.resolve())
        )
        if newest is not None and not own:
            raise CheckpointError(
                f"{begun.folder}: holds another run, with snapshots; go on with that by --resume "
                f"{begun.folder}, or choose another folder with --run"
            )
        self.begun, self.name = begun, begun.about["name"]

    def seed(self) -> int | None:
        """The seed that the command asks for, or the one that began the run did."""
        asked: int | None = self.args.seed
        return asked if self.begun is None else self.begun.about.get("seed_asked")

    def place(self, solver: Solver) -> Path:
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
        solver.record_folder, solver.prefix = self.folder, self._prefix(solver)
        snapshots.check(solver.prefix, solver.spec.snapshot_format, solver.net.layers)
        run_folder.clean(self.folder, solver.prefix)
        return self.folder

    def begin(self, solver: Solver) -> None:
        """The solver, restored, is about to train: the record begins."""
        assert self.folder is not None
        about = {"name": self.name, **facts(solver), "model": self.args.model}
        about["command"] = [*program(), *self.args.words]
        about["seed_asked"] = self.seed()
        about |= {"imports": self.args.imports, "started": now(), "resumed": None}
        about["resumed_from"] = self.snapshot and run_folder.seen_from(self.folder, self.snapshot)
        about["snapshot_prefix"] = run_folder.seen_from(self.folder, solver.prefix)
        lines = []
        if self.snapshot is not None and self.begun is not None:
            name = run_folder.seen_from(self.folder, self.snapshot)
            lines = resume.cut(self.begun.lines, name, solver.iteration, solver.test_due())
            old = self.begun.about
            about |= {key: old[key] for key in ("model", "cwd", "started")}
            about["resumed"] = now()
            before, several = old.get("batch"), max(old.get("ranks", 1), about["ranks"]) > 1
            if several and before not in (None, about["batch"]):
                solver.report.event(f"a batch of {about['batch']} samples; before it was {before}")
        seconds = resume.rewrite(self.folder, lines)
        resume.forget(self.folder, self.snapshot)
        given = about, model_text(solver, self.folder), seconds, self.lock
        self.record.begin(solver, self.folder, *given)

    def _prefix(self, solver: Solver) -> str:
        """What snapshots' names begin with: what the model or the command says, else the run's own."""
        if solver.spec.snapshot_prefix is not None:
            return solver.spec.snapshot_prefix
        if self.begun is None:
            assert self.folder is not None
            return str(self.folder / self.name)
        return self.begun.prefix

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
