"""Compute a training step again, and show what each blob, parameter and gradient holds.

For a run's folder or a diverged.npz, it is the iteration at which training stopped, computed from the saved
batch and state, without the data set. For a snapshot, it is the iteration after it.

example:
  minicaffe replay runs/lenet-20260101-120000
  minicaffe replay lenet_diverged.npz
  minicaffe replay lenet_iter_500.npz --device cpu
"""

from __future__ import annotations

import argparse

from minicaffe.backends import device as backend
from minicaffe.cli.options import (
    device_option,
    engine_options,
    engine_settings,
    import_files,
    import_option,
    tell,
)
from minicaffe.cli.streams import say
from minicaffe.tools.training.replay_step import Replay


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "file", metavar="RUN", help="a run's folder, its diverged.npz, or a snapshot in .npz"
    )
    device_option(parser)
    engine_options(parser)
    import_option(parser)


def run(args: argparse.Namespace) -> int:
    """Replay."""
    import_files(args.imports)
    device = backend.device(args.device)
    replay = Replay(args.file, device=device, **engine_settings(args))
    tell(args, f"device: {replay.solver.device}")
    replay.run()
    say(*replay.lines())
    return 0
