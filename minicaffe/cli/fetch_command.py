"""Download a data set into $MINICAFFE_DATA or data/, resume, verify, install.

example:
  minicaffe fetch mnist
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minicaffe.data.fetch import data_folder, fetch
from minicaffe.data.known import NAMES


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", metavar="NAME", help=" or ".join(NAMES))
    parser.add_argument(
        "--folder",
        metavar="PATH",
        type=Path,
        help="where data sets go; default: $MINICAFFE_DATA or data",
    )


def run(args: argparse.Namespace) -> int:
    """Download."""
    print(f"{args.name}: {fetch(args.name, args.folder or data_folder())}")
    return 0
