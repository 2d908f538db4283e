"""The commands that go on with a run, as one would type them: what is next, or the one that resumes it."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

from minicaffe.core.layers.loss import Softmax
from minicaffe.core.layers.softmax_loss import SoftmaxLoss
from minicaffe.core.ops import conv
from minicaffe.core.solver import Solver
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.parallel.launched import count


def resume_command(args: argparse.Namespace, folder: Path) -> str:
    """The command that goes on in a run's folder from the snapshot just taken."""
    launched = ["mpiexec", "-n", str(count())] if count() > 1 else []
    words = [
        *launched,
        *program(),
        "train",
        *([args.model] if args.model != str(folder) else []),
        "--resume",
        str(folder),
    ]
    given = {
        "--device": args.device,
        "--threads": args.threads,
        "--level": args.level,
        "--stage": args.stage or None,
        "--max-iter": args.max_iter,
        "--dtype": args.dtype,
        "--precision": args.precision,
        "--conv-engine": None if args.conv_engine == "auto" else args.conv_engine,
        "--workspace": None if args.workspace << 20 == conv.CAP else args.workspace,
        "--snapshot-prefix": args.snapshot_prefix,
        "--snapshot-keep": args.snapshot_keep,
        "--reduce-dtype": args.reduce_dtype,
    }
    for option, value in given.items():
        words += [option, str(value)] if value is not None else []
    words += ["--deterministic"] if args.deterministic else []
    for option in ("--no-graph", "--batch-per-rank", "--scale-lr"):
        words += [option] if getattr(args, option[2:].replace("-", "_")) else []
    for option in ("--quiet", "--json", "--tensorboard", "--report"):
        words += [option] if getattr(args, option[2:]) else []
    for option, values in (("--set", args.settings), ("--import", args.imports)):
        words += [word for value in values for word in (option, value)]
    return shlex.join(words)


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
