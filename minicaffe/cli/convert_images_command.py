"""Write the pictures of a list, a folder or any data set to one file, as Caffe's convert_imageset does.

OUT is a new folder, for an LMDB database of Caffe's Datums (three channels blue, green, red), or a
file NAME.npz with `images` and `labels` (red, green, blue), whose pictures must be of one shape.
With --boxes each picture has boxes, for AnnotatedData, as SSD's convert_annoset writes them.
OUT appears only when it is complete. Picture files need the extra image.

example:
  minicaffe convert-images pictures/ train_lmdb --resize 256x256 --shuffle
  minicaffe convert-images --boxes list.txt boxes_lmdb --label-map labelmap.prototxt --encoded
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from minicaffe.cli import sources
from minicaffe.cli.parser import Arg, number
from minicaffe.cli.streams import say
from minicaffe.core.config.tree import load
from minicaffe.errors import DataError, note
from minicaffe.interop.caffe.label_map import names_in
from minicaffe.tools.data.convert import Damage, to_lmdb, to_npz
from minicaffe.tools.data.reader.box_list_set import BoxListSet


class Options(sources.Sourced):
    """The options."""

    output: Annotated[str, Arg("output"), "OUT", "a new folder, for an LMDB, or NAME.npz"]
    shuffle: Annotated[bool, "write them in random order"] = False
    seed: Annotated[int, number(0), "of that order; default: 1"] = 1
    encoded: Annotated[bool, "store PNG and JPEG files without decoding them, in an LMDB"] = False
    boxes: Annotated[
        bool,
        "SOURCE is a list, in each line a picture and its boxes: .xml (VOC), .json (COCO) or .txt",
    ] = False
    label_map: Annotated[
        str | None, "with --boxes: the numbers of classes, as SSD's label maps have them"
    ] = None
    on_error: Annotated[
        Literal["fail", "skip"],
        "a damaged picture: fail, nothing is written; or skip, it is named and left out",
    ] = "fail"


def run(args: Options) -> None:
    """Convert."""
    output, packed = Path(args.output), args.output.lower().endswith(".npz")
    if args.encoded and (packed or args.resize or args.gray):
        raise DataError(
            "--encoded keeps files as they are, in an LMDB: not with .npz, --resize, --gray"
        )
    if args.label_map and not args.boxes:
        raise DataError("--label-map is of boxes: give --boxes, too")
    if args.boxes and packed:
        raise DataError("--boxes are written to an LMDB, not to .npz")
    reader = _boxes(args) if args.boxes else sources.opened(args)
    if reader.label_shape:
        raise DataError(
            f"{reader.origin}: its pictures have several labels, a database holds one of each; --data and the"
            " layer Data read the table as it is"
        )
    order = np.arange(len(reader))
    if args.shuffle:
        np.random.default_rng(args.seed).shuffle(order)
    damage = Damage()

    def damaged(error: DataError) -> None:
        if args.on_error == "fail":
            raise DataError(f"{error}; --on-error skip leaves it out")
        note(f"minicaffe: {error}")
        damage.add(error)

    entries = sources.shown(order.tolist())
    if packed:
        count = to_npz(reader, entries, output, damaged)
    else:
        count = to_lmdb(reader, entries, output, damaged, args.encoded)
    for remark, times in reader.remarks.items() if isinstance(reader, BoxListSet) else ():
        note(f"minicaffe: {args.source}: {remark}: {times}")
    left_out = f", {damage.count} damaged left out" * bool(damage.count)
    say(f"{args.output}: {count} {reader.unit}{left_out}")


def _boxes(args: Options) -> BoxListSet:
    """The pictures and boxes of a list."""
    if not os.path.isfile(args.source):
        raise DataError(f"{args.source}: no such list of pictures and their boxes")
    numbers: dict[str, int] = {}
    if args.label_map:
        file, text = load(args.label_map, "prototxt", own=True)
        for label, name in names_in(text, file, shown=False).items():
            if name in numbers:
                raise DataError(
                    f"{file}: the name {name!r} has two labels, {numbers[name]} and {label}"
                )
            if label < 0:
                raise DataError(f"{file}: the label of {name!r} is {label}; expected 0 or more")
            numbers[name] = label
    return BoxListSet(
        Path(args.source),
        args.source,
        numbers,
        "grey" if args.gray else None,
        args.resize,
        args.root_folder,
    )
