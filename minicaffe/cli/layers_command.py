"""Show the catalogue of layers, or what one layer does and the keys it takes.

example:
  minicaffe layers
  minicaffe layers Convolution
"""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from minicaffe.cli.options import import_files, import_option
from minicaffe.errors import SpecError, did_you_mean
from minicaffe.layers import REGISTRY
from minicaffe.spec.declare import Filler, LayerSpec
from minicaffe.spec.types import Key, describe, keys_of


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="a layer type")
    import_option(parser)


def run(args: argparse.Namespace) -> int:
    """Show."""
    import_files(args.imports)
    if args.name is None:
        width = max(map(len, REGISTRY))
        for name, cls in sorted(REGISTRY.items()):
            first, _, _ = (cls.__doc__ or "").partition("\n")
            print(f"{name:<{width}}  {first}".rstrip())
        return 0
    if args.name not in REGISTRY:
        raise SpecError(f"there is no layer type {args.name!r}{did_you_mean(args.name, REGISTRY)}")
    cls = REGISTRY[args.name]
    doc = inspect.cleandoc(cls.__doc__ or "no documentation")
    print(f"{args.name}\n\n{doc}\n\nkeys:")
    own = keys_of(cls)  # type: ignore[arg-type]
    print("\n".join(map(key_line, own.values())) or "  none of its own")
    print("\nkeys of every layer:")
    print("\n".join(map(key_line, keys_of(LayerSpec).values())))
    return 0


def key_line(key: Key) -> str:
    """A key in one line: name, type, default, documentation."""
    default = "required" if key.required else f"default {shown(key.default)}"
    return f"  {key.name}: {describe(key.type)} ({default}). {key.doc}"


def shown(value: Any) -> str:
    """A default as YAML shows it."""
    if value is None or value == ():
        return "not given"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Filler):
        return value.type
    return str(value) if isinstance(value, (int, float, str)) else "{}"
