"""Write a run as one page that opens from disk: curves, net, time of each layer, filters, mistakes.

For several runs, it draws their curves over each other, and lists what differs between them.

example:
  minicaffe report runs/lenet-20261122-1200
  minicaffe report runs/lenet-a runs/lenet-b -o both.html
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from minicaffe.backends import device as backend
from minicaffe.cli.options import Imports, OnDevice
from minicaffe.cli.parser import Arg, number
from minicaffe.cli.streams import say
from minicaffe.tools.report import write
from minicaffe.tools.report.sections import left_out
from minicaffe.tools.report.study import Limits


class Options(Imports, OnDevice):
    """The options."""

    runs: Annotated[Sequence[str], Arg("runs", nargs="+"), "RUN", "a run's folder"]
    output: Annotated[
        str | None, Arg("-o"), "default: report.html in the run's folder; of several runs, here"
    ] = None
    seconds: Annotated[
        int, number(0), "spent on the test data at the most, one batch at least; default: 20"
    ] = 20


def run(args: Options) -> None:
    """Report."""
    args.import_files()
    folder = Path(args.runs[0]) if len(args.runs) == 1 else Path()
    output = args.output or folder / "report.html"
    limits = Limits(seconds=args.seconds)
    found = write(args.runs, output, device=backend.device(args.device), limits=limits)
    for why, titles in left_out(found["sections"]).items():
        args.tell(f"left out: {', '.join(titles)}: {why}")
    say(f"{output}: {os.path.getsize(output) / 2**20:.1f} MiB")
