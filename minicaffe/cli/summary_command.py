"""List a net's layers: shapes, parameters, multiply-adds of a forward pass, column buffers, memory.

example:
  minicaffe summary lenet
"""

from __future__ import annotations

import argparse

from minicaffe.cli.options import model_options, phase_option, read_model
from minicaffe.net import Net
from minicaffe.net.summary import summary


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    phase_option(parser)


def run(args: argparse.Namespace) -> int:
    """Summarise; nothing is allocated."""
    net = Net(read_model(args), args.phase, device="cpu", shapes_only=True, keep=())
    print(summary(net.graph))
    return 0
