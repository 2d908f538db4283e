"""Time each layer, forward and backward: medians in ms over repeated passes, and shares of the whole.

example:
  minicaffe time models/lenet.yaml --iterations 20
"""

from __future__ import annotations

import argparse
import statistics

from minicaffe.cli.options import (
    device_option,
    engine_options,
    engine_settings,
    model_options,
    number,
    phase_option,
    pick_device,
    read_model,
)
from minicaffe.net import Net
from minicaffe.net.run import backward, forward
from minicaffe.net.summary import table


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
    net = Net(spec, args.phase, device=pick_device(args, spec), **engine_settings(args))
    for _ in range(2):
        net.forward()
        net.backward()
    times = measure(net, args.iterations)
    medians = {name: tuple(map(statistics.median, both)) for name, both in times.items()}
    whole = sum(map(sum, medians.values()))
    rows = [
        (name, f"{forward:.3f}", f"{backward:.3f}", f"{100 * (forward + backward) / whole:.1f}")
        for name, (forward, backward) in medians.items()
    ]
    sums = [sum(values) for values in zip(*medians.values(), strict=True)]
    rows.append(("all", f"{sums[0]:.3f}", f"{sums[1]:.3f}", "100.0"))
    print(table(rows, ("layer", "forward ms", "backward ms", "share %")))
    print(
        f"medians of {args.iterations} passes; forward + backward {whole:.3f} ms, {1e3 / whole:.1f} iter/s"
    )
    return 0


def measure(net: Net, passes: int) -> dict[str, tuple[list[float], list[float]]]:
    """The ms of every layer in so many forward and backward passes."""
    times: dict[str, tuple[list[float], list[float]]] = {
        step.spec.name: ([], []) for step in net.steps
    }
    for _ in range(passes):
        for step in net.steps:
            stop = net.device.timer()
            forward(step, net.graph, net.memory)
            times[step.spec.name][0].append(stop())
        net.context.passes += 1
        written: set[int] = set()
        for step in reversed(net.steps):
            stop = net.device.timer()
            backward(step, net.device, written, net.memory.scratch, net.loss_scale)
            times[step.spec.name][1].append(stop())
    return times
