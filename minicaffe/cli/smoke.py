"""`train --smoke`: two iterations of all that a training does, in a folder that is removed afterwards."""

from __future__ import annotations

import os
import tempfile

from minicaffe.cli.parser import CommandOptions, words_of
from minicaffe.errors import SpecError, note
from minicaffe.tools.parallel import world

FEW = 2  # iterations, and batches of a test
OWN = ("smoke", "epochs", "max_iter", "run", "snapshot_prefix")  # options that it sets


def run(args: CommandOptions) -> int:
    """Train, test, save, resume and report, each as its own command; the exit code of the first that fails."""
    from minicaffe.cli import main

    if world().size > 1:
        raise SpecError("--smoke: is for one process, not for several ranks")
    if args.resume is not None:
        raise SpecError("--smoke: begins a run and resumes it by itself, without --resume")
    words = ["train", *([args.model] if args.model is not None else []), *words_of(args, OWN)]
    with tempfile.TemporaryDirectory(prefix="minicaffe-") as home:
        folder = os.path.join(home, "run")
        few = [f"solver.snapshot={FEW // 2}", "solver.display=1", f"solver.test_interval={FEW}"]
        few += [
            f"solver.test_iter={FEW}",
            f"solver.snapshot_prefix={os.path.join(folder, 'smoke')}",
        ]
        settings = [word for one in few for word in ("--set", one)]
        device = ["--device", args.device] if args.device else []
        again = [word for file in args.imports for word in ("--import", file)]
        settings += ["--run", folder]
        steps = {
            "train, test, snapshot": [*words, *settings, "--max-iter", str(FEW)],
            "resume": ["train", "--resume", folder, "--max-iter", str(2 * FEW), *device, *again],
            "test": ["test", folder, "--batches", str(FEW), *device, *again],
            "report": ["report", folder, "--seconds", "1", *device, *again],
        }
        for name, step in steps.items():
            note(f"smoke: {name}")
            if code := main(step):
                note(f"minicaffe: --smoke: {name} did not succeed")
                return code
    note("smoke: all of it works; nothing was kept")
    return 0
