"""Score weights on the test data of a model.

example:
  minicaffe test lenet_iter_10000.npz
  minicaffe test lenet --weights lenet_iter_10000.npz
"""

from __future__ import annotations

from typing import Annotated

from minicaffe.cli.data_lines import check_filled, data_lines
from minicaffe.cli.options import Computed, Model
from minicaffe.cli.parser import number
from minicaffe.cli.streams import say
from minicaffe.cli.weights import Weighted, load_weights, weights_of
from minicaffe.core.config.state import ANY
from minicaffe.core.net import Net
from minicaffe.core.solver import mean_outputs
from minicaffe.core.solver.report import banner
from minicaffe.core.solver.scores import score_suffixes
from minicaffe.tools.inference import for_test
from minicaffe.tools.training.progress import score_table


class Options(Model, Weighted, Computed):
    """The options."""

    batches: Annotated[int | None, number(1), "default: the whole test set once"] = None


def run(args: Options) -> None:
    """Test."""
    weights, spec = weights_of(args), for_test(args.read_model())
    check_filled(spec, "TEST", ANY)
    net = Net(spec, "TEST", device=args.pick_device(spec), keep=(), **args.engine_settings())
    for line in data_lines([net]):
        args.tell(line)
    for file, loaded in load_weights(net, weights):
        args.tell(f"weights: {file}: {loaded}")
    print(score_table(mean_outputs(net, args.batches), score_suffixes([net])))
    for warning in net.warnings:
        say(*banner(warning).split("\n"))
