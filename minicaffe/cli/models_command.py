"""List the models that come with minicaffe; each command takes their names as MODEL.

A file of that name in the current folder comes first. With NAME, print the model's file.

example:
  minicaffe models
  minicaffe models lenet > mine.yaml
  minicaffe train lenet
"""

from __future__ import annotations

import itertools
import re
import textwrap
from pathlib import Path
from typing import Annotated

from minicaffe.cli.parser import Arg, CommandOptions
from minicaffe.core.net.zoo import models
from minicaffe.errors import SpecError, did_you_mean


class Options(CommandOptions):
    """The options."""

    name: Annotated[
        str | None, Arg("name", nargs="?"), "NAME", "a model, whose file is printed"
    ] = None


def run(args: Options) -> None:
    """List, or print one."""
    known = models()
    if args.name is None:
        width = max(map(len, known))
        for name, path in known.items():
            print(f"{name:<{width}}  {_described(path)}")
        return
    if args.name not in known:
        raise SpecError(f"there is no model {args.name!r}{did_you_mean(args.name, known)}")
    print(known[args.name].read_text(encoding="utf-8"), end="")


def _described(path: Path) -> str:
    """The first sentence of the comment that a model's file begins with, without what is in brackets."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    text = " ".join(line.removeprefix("# ") for line in comment)
    text = re.sub(r" \([^)]*\)", "", text)
    return textwrap.shorten(re.split(r"[.;] ", text)[0].rstrip("."), 100, placeholder=" ...")
