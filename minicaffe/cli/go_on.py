"""The commands that go on with a run, as one would type them: what is next, or the one that resumes it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from minicaffe.cli.parser import Options, words_of
from minicaffe.core.layers.loss import Softmax
from minicaffe.core.layers.softmax_loss import SoftmaxLoss
from minicaffe.core.solver import Solver
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.parallel.launched import count

BEGINS = {
    "weights",
    "resume",
    "run",
    "data",
    "size",
    "batch_size",
    "epochs",
    "seed",
}  # not said again


def resume_command(args: Options, folder: Path) -> str:
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
