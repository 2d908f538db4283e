"""Show the catalogue of layers, or what one layer does and the keys it takes.

example:
  minicaffe layers
  minicaffe layers Convolution
"""

from __future__ import annotations

import argparse

from minicaffe.cli import catalogue
from minicaffe.cli.options import import_files, import_option
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import SpecError, did_you_mean


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a layer type")
    parser.add_argument(
        "--markdown", action="store_true", help="all layers as one page, which docs/layers.md is"
    )
    import_option(parser)


def run(args: argparse.Namespace) -> int:
    """Show."""
    import_files(args.imports)
    if args.name is not None and args.name not in REGISTRY:
        raise SpecError(f"there is no layer type {args.name!r}{did_you_mean(args.name, REGISTRY)}")
    if args.name is not None:
        print(catalogue.text(args.name, REGISTRY[args.name]))
    elif args.markdown:
        print(catalogue.page(REGISTRY), end="")
    else:
        width = max(map(len, REGISTRY))
        for fork, names in catalogue.by_fork(REGISTRY).items():
            if fork:
                print(f"\nof Caffe's forks, {fork}:")
            for name in names:
                first, _, _ = (REGISTRY[name].__doc__ or "").partition("\n")
                print(f"{name:<{width}}  {first.partition(' Source: ')[0]}".rstrip())
    return 0
