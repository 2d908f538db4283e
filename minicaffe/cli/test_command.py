"""Score weights on the test data of a model.

example:
  minicaffe test lenet_iter_10000.npz
  minicaffe test lenet --weights lenet_iter_10000.npz
"""

from __future__ import annotations

import argparse

from minicaffe.cli.data_lines import data_lines
from minicaffe.cli.filled import check_filled
from minicaffe.cli.options import (
    device_option,
    engine_options,
    engine_settings,
    model_options,
    number,
    pick_device,
    read_model,
    tell,
)
from minicaffe.cli.streams import say
from minicaffe.cli.weights import load_weights, weights_of, weights_option
from minicaffe.core.config.state import ANY
from minicaffe.core.net import Net
from minicaffe.core.solver import mean_outputs
from minicaffe.core.solver.report import banner
from minicaffe.core.solver.scores import score_suffixes
from minicaffe.tools.inference import for_test
from minicaffe.tools.training.progress import score_table


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    weights_option(parser)
    device_option(parser)
    engine_options(parser)
    parser.add_argument(
        "--batches", metavar="N", type=number(1), help="default: the whole test set once"
    )


def run(args: argparse.Namespace) -> int:
    """Test."""
    weights, spec = weights_of(args), for_test(read_model(args))
    check_filled(spec, "TEST", ANY)
    net = Net(spec, "TEST", device=pick_device(args, spec), keep=(), **engine_settings(args))
    for line in data_lines([net]):
        tell(args, line)
    for file, loaded in load_weights(net, weights):
        tell(args, f"weights: {file}: {loaded}")
    print(score_table(mean_outputs(net, args.batches), score_suffixes([net])))
    for warning in net.warnings:
        say(*banner(warning).split("\n"))
    return 0
