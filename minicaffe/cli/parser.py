"""The options of a command are annotated fields of a class: its parser is made of them, and its words."""

import argparse
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

from minicaffe.errors import SpecError, did_you_mean

# What the words of Caffe's own command line, and of others, are called here: each text by the words it is of
CAFFES = {
    "caffe": "leave it out: minicaffe train, test, time",
    "device_query": "minicaffe doctor",
    "upgrade_net_proto_text upgrade_solver_proto_text": "minicaffe convert OLD.prototxt NEW.prototxt",
    "upgrade_net_proto_binary": "not needed: weights of any age are read",
    "classification": "minicaffe predict",
    "convert_imageset": "minicaffe convert-images",
    "compute_image_mean": "minicaffe mean",
    "extract_features": "a few lines of Python, in docs/from-caffe.md",
}
FLAGS = {
    "solver": "the first word, without a flag: minicaffe train solver.prototxt",
    "model": "the first word, without a flag: minicaffe test net.prototxt",
    "weights": "--weights",
    "snapshot": "--resume",
    "gpu": "--device cuda:N; of several, mpiexec -n N",
    "iterations": "--batches in test, --iterations in time, --max-iter in train",
    "phase": "--phase in time",
    "level": "--level",
    "stage": "--stage",
    "sigint_effect sighup_effect": "not there: Ctrl-C takes a snapshot and stops",
}
# The flags of Caffe's train, test and time that are done, "" for the first word
DONE = {"solver": "", "model": "", "snapshot": "--resume", "gpu": "--device"}
DONE |= {"iterations": "--batches"}
OTHERS = {  # of other frameworks' commands and scripts
    "lr learning-rate": "--set solver.base_lr=...",
    "epochs": "--epochs, of train",
    "batch-size batch": "--batch-size, of train",
    "optimizer": "--set solver.type=Adam",
    "momentum": "--set solver.momentum=...",
    "weight-decay wd": "--set solver.weight_decay=...",
    "scheduler": "--set solver.lr_policy=...",
    "steps": "--max-iter, of train",
    "patience": "--set solver.early_stopping=...",
    "workers num-workers": "--set layers.NAME.workers=..., of the data layer",
    "val-split validation-split": "--set layers.NAME.split=..., of the data layer",
    "data data-dir dataset": "--data, of train and new",
    "output-dir save-dir logdir name": "--run",
    "checkpoint ckpt": "--weights, or --resume to go on",
    "pretrained": "--weights",
    "cuda": "--device cuda",
    "cpu": "--device cpu",
    "gpus": "mpiexec -n N minicaffe train ...",
    "amp fp16": "--dtype float16",
    "bf16": "--dtype bfloat16",
    "verbose": "not needed: all is said unless --quiet is given",
}
METAVARS = {int: "N", float: "X", str: "FILE", Path: "PATH"}


class Arg:
    """Names and keywords that `add_argument` takes, in the place of what follows from a field.

    CommandOptions of which only one may be said have the same `one_of`.
    """

    def __init__(self, *names: str, **keywords: Any):
        self.names, self.keywords = names, keywords


# The name and default of an option's field, and the names and keywords that `add_argument` takes
Field = tuple[str, Any, tuple[str, ...], dict[str, Any]]


class CommandOptions(argparse.Namespace):
    """The base of a command, which is called to run it, and of options that several share.

    A field is `name: Annotated[type, "METAVAR", "help", ...] = default`. The metavar may be left out; a
    function makes the value of the word, and an Arg says what is unusual. bool is a flag, `bool | None` one
    with a --no- twin, int a number from 0 on, Sequence an option that may be repeated, Literal a choice. A
    field whose Arg is its own name is a positional argument.
    """

    words: Sequence[str] = ()  # as they were typed

    def __init__(self) -> None:
        super().__init__(**{name: default for name, default, _, _ in fields_of(type(self))})

    def __call__(self) -> int | None:
        raise NotImplementedError  # of a command: its exit code, None for 0


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with the nearest right option."""

    given: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Print the mistake in one line and exit with 2."""
        options = [option for action in self._actions for option in action.option_strings]
        flags = [word.partition("=")[0] for word in self.given if word.startswith("-")]
        unknown = [word for word in flags if word not in options and not word[1:].isdigit()]
        near = ""
        if unknown:
            near = "".join(map(hint, unknown)) or did_you_mean(unknown[0], options)
        if unknown and unknown[0] not in message.replace(",", " ").split():
            message = f"unrecognized arguments: {unknown[0]}"
        self.exit(2, f"{self.prog}: {message}{near} (see {self.prog} --help)\n")


def fields_of(options: type) -> Iterator[Field]:
    """Yields the fields of a class of options: those of its bases in the order written, then its own."""
    hints = get_type_hints(options, include_extras=True)
    for name in dict.fromkeys(_names(options)):
        kind, *extras = get_args(hints[name])
        texts = [one for one in extras if isinstance(one, str)]
        arg = next((one for one in extras if isinstance(one, Arg)), Arg())
        default: Any = getattr(options, name, None)
        names = arg.names or (f"--{name.replace('_', '-')}",)
        keywords: dict[str, Any] = {"help": texts[-1], "default": default}
        if names != (name,):
            keywords["dest"] = name
        is_optional = get_origin(kind) in (Union, types.UnionType)
        kind = get_args(kind)[0] if is_optional else kind
        if get_origin(kind) is Sequence and names != (name,):
            kind, default = get_args(kind)[0], list(default)
            keywords |= {"action": "append", "default": default}
        if kind is bool:
            keywords["action"] = argparse.BooleanOptionalAction if is_optional else "store_true"
        elif get_origin(kind) is Literal:
            keywords["choices"] = get_args(kind)
        elif "choices" not in arg.keywords or len(texts) > 1:
            usual = name.upper() if names == (name,) else METAVARS.get(kind, "FILE")
            keywords["metavar"] = texts[0] if len(texts) > 1 else usual
        usual_types = {int: number(0), float: float, Path: Path}
        if convert := next(filter(callable, extras), usual_types.get(kind)):
            keywords["type"] = convert
        yield name, default, names, keywords | arg.keywords


def _names(options: type) -> Iterator[str]:
    """Yields the names of fields, some perhaps twice."""
    for base in options.__bases__:
        if issubclass(base, CommandOptions) and base is not CommandOptions:
            yield from _names(base)
    yield from options.__annotations__


def add_options(parser: argparse.ArgumentParser, options: type) -> None:
    """Declare the fields of a class of options to a parser."""
    groups: dict[str, Any] = {}
    for _, _, names, keywords in fields_of(options):
        group: Any = parser
        if one_of := keywords.pop("one_of", None):
            required = keywords.pop("required", False)
            if one_of not in groups:
                groups[one_of] = parser.add_mutually_exclusive_group(required=required)
            group = groups[one_of]
        group.add_argument(*names, **keywords)


def words_of(options: CommandOptions, but: Collection[str]) -> list[str]:
    """Returns the words that say what is not as by default, but the fields named and the positional ones."""
    words: list[str] = []
    for name, default, names, _ in fields_of(type(options)):
        value = getattr(options, name)
        if name in but or names == (name,) or value in (default, None):
            continue
        for one in value if isinstance(value, list) else [value]:
            words += names[-1:] if one is True else [names[-1], str(one)]
    return words


def number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A parser of integers of at least `least`, at most `most`."""
    wanted = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        value = int(text) if re.fullmatch("[0-9]{1,18}", text) else -1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"expected an integer {wanted}, got {text!r:.60}")
        return value

    return parse


def from_caffes(words: Sequence[str], options: Collection[str]) -> list[str]:
    """Returns what was typed with Caffe's flags as they are here, if a command has such options.

    >>> from_caffes(["-solver=s.prototxt", "--gpu", "1"], ["--device"])
    ['s.prototxt', '--device', 'cuda:1']
    """
    left, done = list(words), list[str]()
    while left:
        flag, equals, value = (word := left.pop(0)).partition("=")
        bare = flag.lstrip("-") if flag.startswith("-") and flag not in options else ""
        name = f"--{bare}" if f"--{bare}" in options else DONE.get(bare)
        value = value if equals or not left else left[0]
        is_gpu = name == "--device"
        if not value or name not in ("", *options) or (is_gpu and not value.isdigit()):
            done.append(word)
            continue
        left = left if equals else left[1:]
        done += [*filter(None, [name]), f"cuda:{value}" if is_gpu else value]
    return done


def refuse(options: CommandOptions, names: Sequence[str], why: str) -> None:
    """Raise SpecError if one of some options is given."""
    for name in names:
        if not (getattr(options, name) is None or getattr(options, name) is False):
            raise SpecError(f"--{name.replace('_', '-')}{why}")


class Size(NamedTuple):
    """Of pictures, written WxH."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


def size_of(word: str) -> Size:
    """WxH, or one number for both."""
    from minicaffe.tools.data.picture_files import LARGEST  # not for each --help

    match = re.fullmatch(r"([1-9][0-9]{0,6})(?:x([1-9][0-9]{0,6}))?", word)
    if match is None or int(match[1]) * int(match[2] or match[1]) > LARGEST:
        raise argparse.ArgumentTypeError(f"expected WxH such as 224x224, got {word!r:.60}")
    return Size(int(match[2] or match[1]), int(match[1]))


def hint(word: str) -> str:
    """What a command or flag of Caffe's, or of others, is called here, as an error ends; else nothing.

    >>> hint("device_query")
    "; Caffe's device_query is minicaffe doctor"
    >>> hint("-gpu"), hint("--frobnicate")
    ("; Caffe's -gpu is --device cuda:N; of several, mpiexec -n N", '')
    """
    bare = word.lstrip("-")
    if text := _of(FLAGS if word.startswith("-") else CAFFES, bare.removesuffix(".bin")):
        return f"; Caffe's {word} is {text}"
    text = _of(OTHERS, bare.replace("_", "-")) if word.startswith("--") else ""
    return f"; {word} is {text}" if text else ""


def _of(table: Mapping[str, str], word: str) -> str:
    """Returns what a table says of a word; "" if nothing."""
    return next((text for words, text in table.items() if word in words.split()), "")
