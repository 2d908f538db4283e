"""Draw a net: its layers as boxes, in ranks, with keys, parameters and shapes.

Layers that work in place are in the box of the layer before. SVG and DOT need no extra, PNG needs the extra
image; one command can write several files. Without an option it writes an SVG named after MODEL. If you point
at a box of an SVG, it shows all keys and shapes of its layers. Shapes that are not known, because data are
missing or a layer's type is not registered, are left out. The file name - means stdout.

example:
  minicaffe draw lenet
  minicaffe draw googlenet --phase TEST -o googlenet.png
  minicaffe draw lenet --direction LR --svg lenet.svg --dot lenet.dot
"""

from __future__ import annotations

import os
import sys
from operator import methodcaller
from pathlib import Path
from typing import Annotated

from minicaffe.cli.known import Shaped, read_kept, steps_of
from minicaffe.cli.options import Model, Phased
from minicaffe.cli.parser import Arg
from minicaffe.errors import MinicaffeError, did_you_mean, note
from minicaffe.storage import checkpoint
from minicaffe.tools.visualize import drawing
from minicaffe.tools.visualize import notebook as picture
from minicaffe.tools.visualize.drawing.layout import DIRECTIONS

ENDINGS = {".svg": "svg", ".png": "png", ".dot": "dot", ".gv": "dot"}


class Options(Model, Phased, Shaped):
    """The options."""

    svg: Annotated[str | None, "write SVG to FILE"] = None
    png: Annotated[str | None, "write PNG to FILE"] = None
    dot: Annotated[str | None, "write DOT to FILE"] = None
    output: Annotated[
        str | None,
        Arg("-o", "--output"),
        f"write FILE in the format of its ending: {', '.join(ENDINGS)}",
    ] = None
    direction: Annotated[
        str, Arg(choices=DIRECTIONS), "from top to bottom or from left to right; default: TB"
    ] = "TB"


def run(args: Options) -> None:
    """Draw; nothing is allocated."""
    files = _files(args)
    spec = read_kept(args)
    steps = steps_of(args, spec)
    graph = picture.boxes_of(spec.name, steps)
    laid = drawing.layout(graph, args.direction)
    made = {
        "svg": lambda: drawing.svg(laid, alone=True).encode(),
        "png": lambda: drawing.png(laid),
        "dot": lambda: drawing.dot(graph, args.direction).encode(),
    }
    pictures = [(path, made[kind]()) for path, kind in files]
    for path, data in pictures:
        if path == "-":
            sys.stdout.buffer.write(data)
            continue
        checkpoint.replace(path, methodcaller("write", data))
        note(f"{path}: {len(steps)} layers in {len(graph.nodes)} boxes")


def _files(args: Options) -> list[tuple[str, str]]:
    """What is to be written: names and formats. Raises MinicaffeError."""
    kinds = [("svg", args.svg), ("png", args.png), ("dot", args.dot)]
    files = [(path, kind) for kind, path in kinds if path is not None]
    if args.output is not None:
        ending = os.path.splitext(args.output)[1].lower()
        if ending not in ENDINGS:
            hint = did_you_mean(ending, ENDINGS) or "; --svg, --png and --dot take any name"
            raise MinicaffeError(
                f"{args.output}: expected a name that ends in {', '.join(ENDINGS)}{hint}"
            )
        files.append((args.output, ENDINGS[ending]))
    paths = [path for path, _ in files]
    for path in paths:
        if paths.count(path) > 1:
            raise MinicaffeError(f"{path}: is asked for twice, which would leave one of them")
    return files or [(f"{Path(args.model).stem}.svg", "svg")]
