"""Time each layer, forward and backward: medians in ms over repeated passes, and shares of the whole.

example:
  minicaffe time lenet --iterations 20
"""

from __future__ import annotations

from typing import Annotated

from minicaffe.cli.options import Computed, Model, Phased
from minicaffe.cli.parser import number
from minicaffe.core.net import Net
from minicaffe.core.net.summary import table
from minicaffe.tools.visualize.timing import measure, medians


class Options(Model, Computed, Phased):
    """The options."""

    iterations: Annotated[int, number(1), "passes timed; default: 20"] = 20


def run(args: Options) -> None:
    """Time."""
    spec = args.read_model()
    net = Net(spec, args.phase_of(spec), device=args.pick_device(spec), **args.engine_settings())
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
