"""Time each layer, forward and backward: medians in ms over repeated passes, and shares of the whole.

example:
  minicaffe time lenet --iterations 20
"""

from __future__ import annotations

import argparse

from minicaffe.cli.options import (
    device_option,
    engine_options,
    engine_settings,
    model_options,
    number,
    phase_of,
    phase_option,
    pick_device,
    read_model,
)
from minicaffe.core.net import Net
from minicaffe.core.net.summary import table
from minicaffe.tools.visualize.timing import measure, medians


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    device_option(parser)
    engine_options(parser)
    phase_option(parser)
    parser.add_argument(
        "--iterations", metavar="N", type=number(1), default=20, help="passes timed; default: 20"
    )


def run(args: argparse.Namespace) -> int:
    """Time."""
    spec = read_model(args)
    net = Net(spec, phase_of(args, spec), device=pick_device(args, spec), **engine_settings(args))
    for _ in range(2):
        net.forward()
        net.backward()
    found = medians(measure(net, args.iterations))
    whole = sum(map(sum, found.values()))
    rows = [
        (name, f"{forward:.3f}", f"{backward:.3f}", f"{100 * (forward + backward) / whole:.1f}")
        for name, (forward, backward) in found.items()
    ]
    sums = [sum(values) for values in zip(*found.values(), strict=True)]
    rows.append(("all", f"{sums[0]:.3f}", f"{sums[1]:.3f}", "100.0"))
    print(table(rows, ("layer", "forward ms", "backward ms", "share %")))
    print(
        f"medians of {args.iterations} passes; forward + backward {whole:.3f} ms, {1e3 / whole:.1f} iter/s"
    )
    return 0
