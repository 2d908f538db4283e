"""List a net's layers: shapes, parameters, multiply-adds of a forward pass, column buffers, memory.

example:
  minicaffe summary lenet
"""

from __future__ import annotations

import argparse

from minicaffe.cli.known import read_kept, shape_option, shapes_of
from minicaffe.cli.options import model_options, phase_option
from minicaffe.core.net.summary import summary


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    phase_option(parser)
    shape_option(parser)


def run(args: argparse.Namespace) -> int:
    """Summarise; nothing is allocated."""
    print(summary(shapes_of(args, read_kept(args), keep=()).graph))
    return 0
