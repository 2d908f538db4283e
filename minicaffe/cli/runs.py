"""Where `train` keeps a run: a new folder, or that of a run which goes on; and the commands that do that."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from minicaffe.cli.parser import CommandOptions, words_of
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.layers.loss import Softmax
from minicaffe.core.layers.softmax_loss import SoftmaxLoss
from minicaffe.core.solver import Solver, snapshots
from minicaffe.errors import SpecError
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.parallel import count
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training import resume
from minicaffe.tools.training.record import Record
from minicaffe.tools.training.run import Run

NEWEST = "the newest snapshot"
# said when a run begins, and not again
BEGINS = {"weights", "resume", "run", "data", "size", "batch_size", "epochs", "seed"}


def model_of_run(args: CommandOptions) -> None:
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


def run_of(args: CommandOptions, spec: NetSpec, record: Record) -> Run:
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


def resume_command(args: CommandOptions, folder: Path) -> str:
    """The command that goes on in a run's folder from the snapshot just taken."""
    launched = ["mpiexec", "-n", str(count())] if count() > 1 else []
    model = [args.model] if args.model != str(folder) else []
    words = [*launched, *program(), "train", *model, "--resume", str(folder)]
    return shlex.join([*words, *words_of(args, BEGINS)])


def next_commands(folder: Path, solver: Solver) -> list[str]:
    """What one does with a run that has ended, a line each, for one to copy."""
    command, run = shlex.join(program()), shlex.quote(str(folder))
    layers = solver.net.layers.values()
    types = {step.spec.type for step in solver.net.steps}
    answers = any(isinstance(one, (Softmax, SoftmaxLoss)) for one in layers)
    answers |= not types.isdisjoint(("SigmoidCrossEntropyLoss", "MultiBoxLoss"))
    told = [f"to look at it: {command} report {run}"]
    if (
        answers
        and any(isinstance(one, Pictures) for one in layers)
        and solver._saving.saved is not None
    ):
        told.append(f"to use it: {command} predict {run} PICTURE...")
    return told


def program() -> list[str]:
    """How this program was started, as one would type it again."""
    typed = sys.argv[0]
    if os.path.basename(os.path.dirname(typed)) == "minicaffe" and typed.endswith("__main__.py"):
        return [sys.executable, "-m", "minicaffe"]
    found = shutil.which("minicaffe")
    if os.path.basename(typed) != "minicaffe" or not os.path.exists(typed):
        return ["minicaffe"]
    if found and os.path.samefile(found, typed):
        return ["minicaffe"]
    return [typed]
