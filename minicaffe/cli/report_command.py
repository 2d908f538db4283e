"""Write a run as one page that opens from disk: curves, net, time of each layer, filters, mistakes.

For several runs, it draws their curves over each other, and lists what differs between them.

example:
  minicaffe report runs/lenet-20261122-1200
  minicaffe report runs/lenet-a runs/lenet-b -o both.html
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from minicaffe.backends import device as backend
from minicaffe.cli.options import device_option, import_files, import_option, number, tell
from minicaffe.cli.streams import say
from minicaffe.tools.report import write
from minicaffe.tools.report.sections import left_out
from minicaffe.tools.report.study import Limits


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a run's folder")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE",
        help="default: report.html in the run's folder; of several runs, here",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=number(0),
        default=20,
        help="spent on the test data at the most, one batch at least; default: 20",
    )
    import_option(parser)
    device_option(parser)


def run(args: argparse.Namespace) -> int:
    """Report."""
    import_files(args.imports)
    folder = Path(args.runs[0]) if len(args.runs) == 1 else Path()
    output = args.output or folder / "report.html"
    limits = Limits(seconds=args.seconds)
    found = write(args.runs, output, device=backend.device(args.device), limits=limits)
    for why, titles in left_out(found["sections"]).items():
        tell(args, f"left out: {', '.join(titles)}: {why}")
    say(f"{output}: {os.path.getsize(output) / 2**20:.1f} MiB")
    return 0
