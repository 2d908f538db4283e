"""What the commands that read a data set have in common: how it is named and split, scaled and greyed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Annotated, Literal

from tqdm import tqdm

from minicaffe.cli.parser import Arg, CommandOptions
from minicaffe.errors import DataError
from minicaffe.tools.data import readers
from minicaffe.tools.data.picture_files import LARGEST
from minicaffe.tools.data.reader.base import Reader


def _size(text: str) -> tuple[int, int]:
    """WxH as (rows, columns)."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})x([1-9][0-9]{0,6})", text)
    if match is None or int(match[1]) * int(match[2]) > LARGEST:
        raise argparse.ArgumentTypeError(f"expected WxH such as 256x256, got {text!r:.60}")
    return int(match[2]), int(match[1])


class Sourced(CommandOptions):
    """Which data set, and how its pictures are read."""

    source: Annotated[
        str,
        Arg("source"),
        "SOURCE",
        "mnist, cifar10 ..., or the path of a folder or file: docs/data.md",
    ]
    split: Annotated[Literal["train", "test"], "default: train"] = "train"
    resize: Annotated[
        tuple[int, int] | None,
        _size,
        "WxH",
        "scale pictures in files of their own to so many columns and rows",
    ] = None
    gray: Annotated[bool, "encoded pictures in one channel"] = False
    root_folder: Annotated[str, "PATH", "what stands before each path of a list"] = ""


def opened(args: CommandOptions) -> Reader:
    """The data set asked for. Raises DataError if it has no entries."""
    found = readers.open(
        args.source,
        args.split,
        colour="grey" if args.gray else None,
        size=args.resize,
        root_folder=args.root_folder,
    )
    if not len(found):
        raise DataError(f"{found.origin}: holds no images")
    return found


def shown(entries: Iterable[int]) -> Iterable[int]:
    """The same entries, with a bar on a terminal."""
    return tqdm(entries, unit=" images", disable=None, leave=False)
