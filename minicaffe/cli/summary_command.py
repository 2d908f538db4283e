"""List a net's layers: shapes, parameters, multiply-adds of a forward pass, column buffers, memory.

example:
  minicaffe summary lenet
"""

from __future__ import annotations

from minicaffe.cli.known import Shaped, read_kept, shapes_of
from minicaffe.cli.options import Model, Phased
from minicaffe.core.net.summary import summary


class Options(Model, Phased, Shaped):
    """The options."""


def run(args: Options) -> None:
    """Summarise; nothing is allocated."""
    print(summary(shapes_of(args, read_kept(args), keep=()).graph))
