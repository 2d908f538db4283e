"""Print the model file that trains a model on your own data, as `minicaffe train MODEL --data` does.

The classes, the number of outputs, the size of pictures, the batch and the schedule are decided by what
stands at SOURCE and by MODEL. What was decided is said in the comments at the head of the file.

example:
  minicaffe new small --data photos/ > mine.yaml
  minicaffe new squeezenet --data photos/ --weights squeezenet > mine.yaml
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any

from minicaffe.backends.cpu import threads
from minicaffe.cli.options import Imports
from minicaffe.cli.own_data import DATA, OwnData, adapted
from minicaffe.cli.parser import Arg, number
from minicaffe.cli.streams import say
from minicaffe.cli.weights import WEIGHTS, named
from minicaffe.tools.own_data import EPOCHS


class Options(OwnData, Imports):
    """The options."""

    model: Annotated[
        str,
        Arg("model"),
        "MODEL",
        "a name that `minicaffe models` lists, a model file, YAML or .prototxt, or a snapshot",
    ]
    data: Annotated[Any, Arg(required=True), "SOURCE", DATA]
    weights: Annotated[str | None, f"what training is to begin with: {WEIGHTS}"] = None
    epochs: Annotated[
        int | None, number(1), Arg(one_of="length"), f"passes over the pictures; default: {EPOCHS}"
    ] = None
    max_iter: Annotated[int | None, number(0), Arg(one_of="length"), "iterations instead"] = None


def run(args: Options) -> None:
    """Print the file."""
    threads.count()
    args.import_files()
    args.weights = named(args) or None
    made = adapted(args, None)
    command = shlex.join(["minicaffe", *args.words])
    say(*(f"# {line}" for line in (f"Made by: {command}", *made.lines)))
    print(made.text, end="")
