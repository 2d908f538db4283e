"""List a net's layers: shapes, parameters, multiply-adds of a forward pass, column buffers, memory.

example:
  minicaffe summary models/lenet.yaml
"""

from __future__ import annotations

import argparse
import math

from minicaffe.backend import mib
from minicaffe.cli.options import model_options, read_model, table
from minicaffe.net import Net


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    model_options(parser)
    parser.add_argument(
        "--phase", choices=("TRAIN", "TEST"), default="TRAIN", help="default: TRAIN"
    )


def run(args: argparse.Namespace) -> int:
    """Summarise; nothing is allocated."""
    net = Net(read_model(args), args.phase, device="cpu", shapes_only=True)
    rows, itemsize = [], net.context.dtype.itemsize
    for step in net.steps:
        tops = ", ".join(
            f"{value.name} {'x'.join(map(str, value.shape)) or 'scalar'}" for value in step.tops
        )
        params = sum(param.size for param in step.layer.params if param.owner is param)
        columns = f"{step.layer.column_elements * itemsize:,}" if step.layer.column_elements else ""
        rows.append(
            (
                step.spec.name,
                step.spec.type,
                tops,
                f"{params:,}",
                f"{step.layer.multiply_adds:,}",
                columns,
            )
        )
    print(f"{net.name or args.model}, phase {net.phase}, {net.context.dtype}")
    print(
        table(
            rows,
            ("layer", "type", "tops", "parameters", "multiply-adds", "column bytes"),
            left=(0, 1, 2),
        )
    )
    params = sum(param.size for param in net.learnable)
    blobs = sum(math.prod(v.shape) for step in net.steps for v in step.tops if v.reuses is None)
    print(f"parameters: {params:,} ({mib(params * itemsize)})")
    print(
        f"multiply-adds of a forward pass: {sum(step.layer.multiply_adds for step in net.steps):,}"
    )
    print(
        f"blobs: {mib(blobs * itemsize)}; shared work buffer: {net.context.workspace_size * itemsize:,} bytes"
    )
    return 0
