"""Where `train` keeps a run: a new folder, or that of a run which goes on; and the record it leaves there."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from minicaffe.cli.go_on import program
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.solver import snapshots
from minicaffe.errors import SpecError
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training import resume
from minicaffe.tools.training.record import Record
from minicaffe.tools.training.run import Run

NEWEST = "the newest snapshot"


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


def run_of(args: argparse.Namespace, spec: NetSpec, record: Record) -> Run:
    """The run that the command begins, or goes on with. Raises CheckpointError."""
    name, snapshot = snapshots.name(spec), None
    if run_folder.is_run(args.model):
        name = run_folder.about(args.model)["name"]
    folder = Path(args.run) if args.run is not None else None
    if args.resume == NEWEST and folder is None:
        prefix = args.snapshot_prefix or (spec.solver.snapshot_prefix if spec.solver else None)
        folder, snapshot = resume.newest(args.model, name, prefix)
    elif args.resume not in (None, NEWEST):
        begun, snapshot = _go_on_from(args.resume)
        folder = folder or begun
    if snapshot is not None:
        run_folder.warn_of_old_reading(str(snapshot))
    given = {"model": args.model, "command": [*program(), *args.words]}
    given |= {"imports": args.imports, "seed_asked": args.seed}
    return Run(record, name, folder, given, snapshot, from_newest=args.resume == NEWEST)


def _go_on_from(path: str) -> tuple[Path | None, Path]:
    """The folder of the run, if it is known, and the snapshot that a run's folder or a snapshot stands for."""
    if not os.path.isdir(path):
        file = resume.with_state(path)
        return resume.run_of(file), file
    return Path(path), run_folder.to_go_on_from(path)
