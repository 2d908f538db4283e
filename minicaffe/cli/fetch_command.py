"""Download a data set or published weights into $MINICAFFE_DATA or data/, verify, install.

Weights go by their own name, or by that of the model that they fit. Their file is installed only if it has the
digest that was published. Without NAME, all that can be fetched is listed.

example:
  minicaffe fetch mnist
  minicaffe fetch squeezenet
  minicaffe test squeezenet --weights squeezenet --stage lmdb
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from minicaffe.cli.parser import Arg, CommandOptions
from minicaffe.cli.streams import say
from minicaffe.core.net.summary import table
from minicaffe.errors import DataError, MinicaffeError, did_you_mean
from minicaffe.tools.data.fetch import ABOUT, NAMES, data_folder, fetch
from minicaffe.tools.data.weights import NAMES as WEIGHT_NAMES
from minicaffe.tools.data.weights import WEIGHTS, fetch_weights, lookup


class Options(CommandOptions):
    """The options."""

    name: Annotated[
        str | None,
        Arg("name", nargs="?"),
        "NAME",
        f"{', '.join(NAMES)}; or weights, or a model that some fit",
    ] = None
    folder: Annotated[
        Path | None,
        Path,
        "PATH",
        "where data sets go, and weights/ in it; default: $MINICAFFE_DATA or data",
    ] = None
    list: Annotated[bool, "list what can be fetched, with licences and accuracies"] = False


def run(args: Options) -> None:
    """Download, or list."""
    if args.list and args.name is not None:
        raise MinicaffeError(f"--list goes without NAME, got {args.name!r}")
    if args.name is None:
        print(listing())
        return
    folder = args.folder or data_folder()
    weights = None if args.name in NAMES else lookup(args.name)
    if args.name in NAMES:
        say(f"{args.name}: {fetch(args.name, folder)}")
    elif weights is not None:
        name, row = weights
        say(f"{name}: {fetch_weights(name, folder)} ({row.licence})")
    else:
        raise DataError(
            f"cannot fetch {args.name!r}: expected {', '.join(NAMES)}, or weights by name"
            f"{did_you_mean(args.name, (*NAMES, *WEIGHT_NAMES))} (minicaffe fetch --list lists them)"
        )


def listing() -> str:
    """All that can be fetched."""
    sets = [(name, *ABOUT[name]) for name in NAMES]
    rows = [(name, row.model or "-", row.licence, row.accuracy) for name, row in WEIGHTS.items()]
    weights = table(rows, ("weights", "model", "licence", "accuracy"), (0, 1, 2, 3))
    return f"{table(sets, ('data set', 'content', 'licence'), (0, 1, 2))}\n\n{weights}"
