"""Show the catalogue of layers, or what one layer does and the keys it takes.

example:
  minicaffe layers
  minicaffe layers Convolution
"""

from __future__ import annotations

from typing import Annotated

from minicaffe.cli import catalogue
from minicaffe.cli.options import Imports
from minicaffe.cli.parser import Arg
from minicaffe.core.layers import REGISTRY
from minicaffe.errors import SpecError, did_you_mean


class Options(Imports):
    """The options."""

    name: Annotated[str | None, Arg("name", nargs="?"), "NAME", "a layer type"] = None
    markdown: Annotated[bool, "all layers as one page, which docs/layers.md is"] = False


def run(args: Options) -> None:
    """Show."""
    args.import_files()
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
