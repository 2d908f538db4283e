"""Compute a training step again, and show what each blob, parameter and gradient holds.

For a run's folder or a diverged.npz, it is the iteration at which training stopped, computed from the saved
batch and state, without the data set. For a snapshot, it is the iteration after it.

example:
  minicaffe replay runs/lenet-20260101-120000
  minicaffe replay lenet_diverged.npz
  minicaffe replay lenet_iter_500.npz --device cpu
"""

from __future__ import annotations

from typing import Annotated

from minicaffe.backends import device as backend
from minicaffe.cli.options import Computed, Imports
from minicaffe.cli.parser import Arg
from minicaffe.cli.streams import say
from minicaffe.tools.training.replay_step import Replay


class Options(Computed, Imports):
    """The options."""

    file: Annotated[
        str, Arg("file"), "RUN", "a run's folder, its diverged.npz, or a snapshot in .npz"
    ]


def run(args: Options) -> None:
    """Replay."""
    args.import_files()
    device = backend.device(args.device)
    replay = Replay(args.file, device=device, **args.engine_settings())
    args.tell(f"device: {replay.solver.device}")
    replay.run()
    say(*replay.lines())
