"""A model for one's own data, as the command new prints it and `train --data` trains it."""

import argparse
import dataclasses
import os
import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

from minicaffe.backends import device as backend
from minicaffe.backends.dispatch import threads
from minicaffe.cli.options import WEIGHTS, Force, Imports, named
from minicaffe.cli.parser import Arg, CommandOptions, Size, number, size_of
from minicaffe.core.communicator import Communicator, device_of
from minicaffe.core.config.declare import NetSpec, State
from minicaffe.errors import note, printable
from minicaffe.storage import checkpoint
from minicaffe.tools.inference import reads_data
from minicaffe.tools.own_data import EPOCHS, LARGEST_BATCH, Adapted, adapt, fitting
from minicaffe.tools.training.folder import RUNS, numbered

AUTO = "auto"
DATA = (
    "your own data: a folder with a folder of pictures for each class, a list, a table (.csv),"
    " arrays (.npz), an LMDB: docs/own-data.md"
)


def _batch(word: str) -> int | str:
    if word == AUTO:
        return AUTO
    if not re.fullmatch("[1-9][0-9]{0,6}", word):
        raise argparse.ArgumentTypeError(f"expected a number or {AUTO}, got {word!r:.60}")
    return int(word)


class OwnData(CommandOptions):
    """--data, and what goes with it."""

    data: Annotated[Any, "SOURCE", DATA] = None
    size: Annotated[
        Size | None,
        size_of,
        "WxH",
        "with --data: the size of the pictures that the net sees; default: the model's",
    ] = None
    batch_size: Annotated[
        int | str | None,
        _batch,
        "N",
        "pictures in a batch; auto: as many as the memory takes, a power of two up to 256; default: the"
        " model's, with --data 32 or fewer",
    ] = None
    skip_damaged: Annotated[
        bool, "with --data: go on without pictures that cannot be read, and tell how many there are"
    ] = False


def adapted(args: CommandOptions, device: backend.Device | None) -> Adapted:
    """The model for the data of --data, as the options have it."""
    options = {key: getattr(args, key) for key in ("weights", "epochs", "max_iter", "size")}
    auto = args.batch_size == AUTO
    options |= {"most": LARGEST_BATCH} if auto else {"batch_size": args.batch_size}
    return adapt(args.model, args.data, device=device, skip_damaged=args.skip_damaged, **options)


def of_own_data(args: CommandOptions, communicator: Communicator) -> NetSpec:
    """The model that `train --data` trains; prints what was decided; the run's folder has the data's name."""
    args.begin()
    model = adapted(args, device_of(args.device, communicator))
    rows = list(model.lines)
    if sys.stderr.isatty():  # in several lines each, if it has fewer columns
        width = max(shutil.get_terminal_size().columns, 40)
        wrap = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False).wrap
        rows = [row for line in rows for row in wrap(line)]
    for row in rows:
        args.tell(row)
    spec = args.state_of(model.spec(*args.settings))
    names = numbered(Path(os.path.abspath(model.source)).stem)
    args.run = args.run or next(
        run for name in names if not os.path.exists(run := f"{RUNS}/{name}")
    )
    args.model, args.weights, args.epochs = args.run, None, None  # the run's own model says them
    return spec


def with_batch(spec: NetSpec, batch: int | str, device: backend.Device) -> tuple[NetSpec, int]:
    """A model whose data layers of TRAIN read batches of such a size, AUTO the largest that fits."""
    if isinstance(batch, str):
        batch, _ = fitting(lambda size: _with(spec, size), LARGEST_BATCH, device)
    return _with(spec, batch), batch


def _with(spec: NetSpec, batch: int) -> NetSpec:
    state = State(phase="TRAIN").over(spec.solver.train_state if spec.solver else State())
    layers = [
        dataclasses.replace(layer, options={**layer.options, "batch_size": batch})
        if reads_data(layer) and layer.included(state.over(spec.state))
        else layer
        for layer in spec.layers
    ]
    return dataclasses.replace(spec, layers=tuple(layers))


class New(OwnData, Imports, Force):
    """Print the model file that trains a model on your own data, as `minicaffe train MODEL --data` does.

    The classes, the number of outputs, the size of pictures, the batch and the schedule are decided by what
    stands at SOURCE and by MODEL. What was decided is said in the comments at the head of the file.

    example:
      minicaffe new small --data photos/ > mine.yaml
      minicaffe new squeezenet --data photos/ --weights squeezenet > mine.yaml
    """

    model: Annotated[
        str,
        Arg("model"),
        "a name that `minicaffe models` lists, a model file, YAML or .prototxt, or a snapshot",
    ]
    data: Annotated[Any, Arg(required=True), "SOURCE", DATA]
    weights: Annotated[str | None, f"what training is to begin with: {WEIGHTS}"] = None
    epochs: Annotated[
        int | None, number(1), Arg(one_of="length"), f"passes over the pictures; default: {EPOCHS}"
    ] = None
    max_iter: Annotated[int | None, Arg(one_of="length"), "iterations instead"] = None
    output: Annotated[str | None, Arg("-o", "--output"), "write it to a file"] = None

    def __call__(self) -> None:
        threads()
        self.import_files()
        self.weights = named(self) or None
        model = adapted(self, None)
        command = shlex.join(["minicaffe", *self.words])
        lines = (f"# {line}" for line in (f"Made by: {command}", *model.lines))
        text = "\n".join([*map(printable, lines), model.text])
        if self.output is None:
            print(text, end="")
        else:
            self.check_free(self.output)
            checkpoint.replace(self.output, text.encode("utf-8"))
            note(f"written: {self.output}")
