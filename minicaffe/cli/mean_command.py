"""Compute the mean image of a data set, as Caffe's compute_image_mean: print the mean of each channel.

-o writes the mean image, for `transform: {mean_file: ...}`. All pictures must have the same shape
(--resize); only one at a time is in memory.

example:
  minicaffe mean mnist -o mean.npy
"""

from __future__ import annotations

import os
from typing import Annotated

import numpy as np

from minicaffe.cli import sources
from minicaffe.cli.parser import Arg
from minicaffe.cli.streams import say
from minicaffe.errors import DataError
from minicaffe.interop.caffe.convert_weights import write_blob
from minicaffe.tools.data.convert import by, mean_image

FORMATS = (".npy", ".binaryproto")


class Options(sources.Sourced):
    """The options."""

    output: Annotated[
        str | None,
        Arg("-o", "--output"),
        "where to write the mean image, float32: .npy (c, h, w) or Caffe's .binaryproto (1, c, h, w)",
    ] = None


def run(args: Options) -> None:
    """Compute."""
    if args.output is not None and os.path.splitext(args.output)[1].lower() not in FORMATS:
        raise DataError(f"-o {args.output}: expected a name that ends in {' or '.join(FORMATS)}")
    reader = sources.opened(args)
    mean = mean_image(reader, sources.shown(range(len(reader))))
    order = (" (blue, green, red)" if reader.blue_first else " (red, green, blue)") * (
        len(mean) == 3
    )
    told = reader.warning or reader.origin
    say(f"{len(reader)} {reader.unit} of {by(mean.shape)}, {args.split}: {told}")
    print(f"mean of each channel: {', '.join(f'{m:.3f}' for m in mean.mean(axis=(1, 2)))}{order}")
    if args.output is not None:
        axes = () if args.output.lower().endswith(".npy") else (1,)
        write_blob(args.output, mean.reshape(*axes, *mean.shape).astype(np.float32))
        say(f"mean image: {args.output}")
