"""List a net's layers: shapes, parameters, multiply-adds of a forward pass, column buffers, memory.

example:
  minicaffe summary lenet
"""

from __future__ import annotations

import argparse

from minicaffe.cli.known import read_known
from minicaffe.cli.options import model_options, phase_of, phase_option
from minicaffe.net import Net
from minicaffe.net.summary import summary


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    phase_option(parser)


def run(args: argparse.Namespace) -> int:
    """Summarise; nothing is allocated."""
    spec = read_known(args)
    net = Net(spec, phase_of(args, spec), device="cpu", shapes_only=True, keep=())
    print(summary(net.graph))
    return 0
