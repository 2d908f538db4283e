"""Commands on data sets: data, mean and convert-images; how a data set is named, split, scaled and greyed."""

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from tqdm import tqdm

from minicaffe.cli.parser import Arg, CommandOptions, Size, size_of
from minicaffe.core.config.tree import load
from minicaffe.errors import DataError, needed, note, pip_install, say
from minicaffe.interop.caffe.convert_weights import write_blob
from minicaffe.interop.caffe.label_map import names_in
from minicaffe.storage import checkpoint
from minicaffe.tools.data import readers
from minicaffe.tools.data.convert import Survey, by, mean_image, survey, to_lmdb, to_npz
from minicaffe.tools.data.reader.base import SHARE, Reader, class_counts, sides
from minicaffe.tools.data.reader.picture_set import BoxListSet


class Sourced(CommandOptions):
    """Which data set, and how its pictures are read."""

    source: Annotated[
        str, Arg("source"), "mnist, cifar10 ..., or the path of a folder or file: docs/data.md"
    ]
    split: Annotated[Literal["train", "test"], "default: train"] = "train"
    resize: Annotated[
        Size | None,
        size_of,
        "WxH",
        "scale pictures in files of their own to so many columns and rows",
    ] = None
    gray: Annotated[bool, "encoded pictures in one channel"] = False
    root_folder: Annotated[str, "PATH", "what stands before each path of a list"] = ""


def opened(args: CommandOptions) -> Reader:
    """The data set asked for. Raises DataError if it has no entries."""
    how: Any = {"colour": "grey" if args.gray else None, "size": args.resize}
    reader = readers.open(args.source, args.split, **how, root_folder=args.root_folder)
    if not len(reader):
        raise DataError(f"{reader.origin}: holds no images")
    return reader


def shown(entries: Iterable[int]) -> Iterable[int]:
    """The same entries, with a bar on a terminal."""
    return tqdm(entries, unit=" images", disable=None, leave=False)


SAMPLE = 1000  # entries that are read without --check
LISTED = 30  # classes that are listed one by one
CELL = 64  # pixels across a picture of a sheet, at most
GAP, TEXT = 4, 12
ROWS, COLUMNS = 20, 12  # classes, and pictures of each


class Data(Sourced):
    """Look at a data set: entries, shapes, classes, the range of values and the mean of each channel.

    If a data set is not read into memory, it looks at 1000 entries, evenly spread; --check reads all entries
    and names those that are damaged. -o draws a few pictures of each class side by side, which needs the
    extra image.

    example:
      minicaffe data mnist -o sheet.png
    """

    check: Annotated[bool, "read every entry, and name what is damaged"] = False
    output: Annotated[
        str | None, Arg("-o", "--output"), "FILE.png", "write a sheet with pictures of each class"
    ] = None

    def __call__(self) -> None:
        if self.output is not None and not self.output.lower().endswith(".png"):
            raise DataError(
                f"-o {self.output}: the sheet is a PNG: expected a name that ends in .png"
            )
        reader = opened(self)
        count, inside = len(reader), reader.arrays() is not None
        every = self.check or inside or count <= SAMPLE
        entries = range(count) if every else [i * count // SAMPLE for i in range(SAMPLE)]
        surveyed = survey(reader, shown(entries))
        for line in surveyed.damaged:
            note(f"minicaffe: {line}")
        damaged = f"{reader.origin}: {len(surveyed.damaged)} of {len(entries)} entries are damaged"
        if len(surveyed.damaged) == len(entries):
            raise DataError(damaged)
        say(
            f"{count} {reader.unit} of {reader.name}, {self.split}: {reader.warning or reader.origin}"
        )
        if not reader.own_split:
            parts = None if reader.in_order else sides(reader, SHARE)
            reads = "TRAIN and TEST read all of it"
            if parts is not None:
                train, test = map(len, parts)
                reads = f"TRAIN reads {train}, TEST the other {test} (split: {SHARE:g})"
            print(f"no test entries of its own: where a model trains and tests on it, {reads}")
        if not every:
            print(f"of {SAMPLE} of them, evenly spread (--check reads all):")
        say(*_pictures(surveyed, reader.blue_first), *_classes(reader))
        if self.output is not None:
            drawn = sheet(reader, surveyed.range)
            checkpoint.replace(self.output, lambda file: drawn.save(file, "PNG"))
            say(f"sheet: {self.output}, {drawn.width} x {drawn.height} pixels")
        if surveyed.damaged:
            raise DataError(damaged)


def _pictures(surveyed: Survey, blue_first: bool) -> list[str]:
    sizes = np.array(list(surveyed.shapes))
    kind = ", ".join(sorted(surveyed.dtypes))
    if len(sizes) == 1:
        lines = [f"shape: {by(sizes[0])}, {kind}"]
    else:
        (c, h, w), (cc, hh, ww) = sizes.min(axis=0), sizes.max(axis=0)
        lines = [f"shapes: {len(sizes)}, from {c} x {h} x {w} to {cc} x {hh} x {ww}, {kind}"]
    least, most = surveyed.range
    strange = f", {surveyed.not_finite} no finite numbers" * bool(surveyed.not_finite)
    lines.append(f"values: {least:g} to {most:g}{strange}")
    return [*lines, *(_mean(means, blue_first) for means in surveyed.means().values())]


def _mean(means: Iterable[float], blue_first: bool) -> str:
    numbers = [f"{mean:.3f}" for mean in means]
    order = (" (blue, green, red)" if blue_first else " (red, green, blue)") * (len(numbers) == 3)
    return f"mean of each channel: {', '.join(numbers)}{order}"


def _classes(reader: Reader) -> list[str]:
    counts = Counter(dict.fromkeys(range(len(reader.classes)), 0))
    counts.update(class_counts(reader))
    least, most = min(counts.values()), max(counts.values())
    what = "labels" if reader.label_shape else "classes"
    lines = [f"{what}: {len(counts)}, of {least} to {most} entries"]
    if len(counts) <= LISTED:
        names = dict(enumerate(reader.classes))
        lines += [
            f"  {label} {names.get(label, '')}".rstrip() + f": {counts[label]}"
            for label in sorted(counts)
        ]
    return lines


def sheet(reader: Reader, values: tuple[float, float]) -> Any:
    """A picture of Pillow's with a few pictures of each class: a row a class, of many classes the first.

    `values` are the least and the most of floating-point pictures, which become black and white. Entries that
    are damaged are left out. Raises DataError without Pillow.
    """
    with needed(DataError(f"a sheet needs the package Pillow: {pip_install('image')}")):
        from PIL import Image, ImageDraw
    rows = _rows(reader)
    names = {}
    for label in rows:
        name = reader.classes[label] if 0 <= label < len(reader.classes) else str(label)
        name = "".join(c if c.isprintable() else "?" for c in name[:24])
        names[label] = name.encode("ascii", "replace").decode()  # what Pillow's font has
    left = GAP + max(len(name) for name in names.values()) * 7 + GAP
    width = left + max(map(len, rows.values())) * (CELL + GAP)
    page = Image.new("RGB", (width, GAP + len(rows) * (CELL + GAP)), "white")
    pen = ImageDraw.Draw(page)
    for row, (label, entries) in enumerate(rows.items()):
        top = GAP + row * (CELL + GAP)
        pen.text((GAP, top + (CELL - TEXT) // 2), names[label], "black")
        for column, entry in enumerate(entries):
            with suppress(DataError):
                picture = Image.fromarray(_pixels(reader[entry][0], reader.blue_first, values))
                scale = CELL / max(picture.size)
                size = [max(1, round(side * scale)) for side in picture.size]
                sharp = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX
                x = left + column * (CELL + GAP) + (CELL - size[0]) // 2
                y = top + (CELL - size[1]) // 2
                page.paste(picture.resize(size, sharp), (x, y))
    return page


def _rows(reader: Reader) -> dict[int, list[int]]:
    """The entries that are shown of each class: evenly spread over those that it has."""
    entries: dict[int, list[int]] = {}
    for i in range(len(reader)):
        with suppress(DataError):
            entries.setdefault(reader.label(i), []).append(i)
    rows = {}
    for label in sorted(entries)[:ROWS]:
        every = entries[label]
        count = min(COLUMNS, len(every))
        rows[label] = [every[k * len(every) // count] for k in range(count)]
    return rows


def _pixels(picture: np.ndarray, blue_first: bool, values: tuple[float, float]) -> np.ndarray:
    """A picture (c, h, w) as (h, w) or (h, w, 3), uint8."""
    if picture.dtype != np.uint8:
        least, most = values
        picture = (255 * (picture - least) / ((most - least) or 1)).clip(0, 255)
        picture = np.nan_to_num(picture).astype(np.uint8)
    if len(picture) < 3:
        return np.ascontiguousarray(picture[0])
    three = picture[:3]
    return np.ascontiguousarray((three[::-1] if blue_first else three).transpose(1, 2, 0))


FORMATS = (".npy", ".binaryproto")


class Mean(Sourced):
    """Compute the mean image of a data set, as Caffe's compute_image_mean: print the mean of each channel.

    -o writes the mean image, for `transform: {mean_file: ...}`. All pictures must have the same shape
    (--resize); only one at a time is in memory.

    example:
      minicaffe mean mnist -o mean.npy
    """

    output: Annotated[
        str | None,
        Arg("-o", "--output"),
        "where to write the mean image, float32: .npy (c, h, w) or Caffe's .binaryproto (1, c, h, w)",
    ] = None

    def __call__(self) -> None:
        if self.output is not None and os.path.splitext(self.output)[1].lower() not in FORMATS:
            raise DataError(
                f"-o {self.output}: expected a name that ends in {' or '.join(FORMATS)}"
            )
        reader = opened(self)
        mean = mean_image(reader, shown(range(len(reader))))
        source = reader.warning or reader.origin
        say(f"{len(reader)} {reader.unit} of {by(mean.shape)}, {self.split}: {source}")
        print(_mean(mean.mean(axis=(1, 2)), reader.blue_first))
        if self.output is not None:
            axes = () if self.output.lower().endswith(".npy") else (1,)
            write_blob(self.output, mean.reshape(*axes, *mean.shape).astype(np.float32))
            say(f"mean image: {self.output}")


class ConvertImages(Sourced):
    """Write the pictures of a list, a folder or any data set to one file, as Caffe's convert_imageset does.

    OUT is a new folder, for an LMDB database of Caffe's Datums (three channels blue, green, red), or a
    file NAME.npz with `images` and `labels` (red, green, blue), whose pictures must be of one shape.
    With --boxes each picture has boxes, for AnnotatedData, as SSD's convert_annoset writes them.
    OUT appears only when it is complete. Picture files need the extra image.

    example:
      minicaffe convert-images pictures/ train_lmdb --resize 256x256 --shuffle
      minicaffe convert-images --boxes list.txt boxes_lmdb --label-map labelmap.prototxt --encoded
    """

    output: Annotated[
        str,
        Arg("output", nargs="?", one_of="to", required=True),
        "OUT",
        "a new folder, for an LMDB, or NAME.npz",
    ]
    to: Annotated[str | None, Arg("-o", "--output", one_of="to"), "OUT", "the same"] = None
    shuffle: Annotated[bool, "write them in random order"] = False
    seed: Annotated[int, "of that order; default: 1"] = 1
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

    def __call__(self) -> None:
        self.output = self.to or self.output
        output, packed = Path(self.output), self.output.lower().endswith(".npz")
        if self.encoded and (packed or self.resize or self.gray):
            raise DataError(
                "--encoded keeps files as they are, in an LMDB: not with .npz, --resize, --gray"
            )
        if self.label_map and not self.boxes:
            raise DataError("--label-map is of boxes: give --boxes, too")
        if self.boxes and packed:
            raise DataError("--boxes are written to an LMDB, not to .npz")
        reader = _boxes(self) if self.boxes else opened(self)
        if reader.label_shape:
            raise DataError(
                f"{reader.origin}: its pictures have several labels, a database holds one of each; --data and"
                " the layer Data read the table as it is"
            )
        order = np.arange(len(reader))
        if self.shuffle:
            np.random.default_rng(self.seed).shuffle(order)
        count_damaged = 0

        def damaged(error: DataError) -> None:
            nonlocal count_damaged
            if self.on_error == "fail":
                raise DataError(f"{error}; --on-error skip leaves it out")
            note(f"minicaffe: {error}")
            count_damaged += 1

        entries = shown(order.tolist())
        if packed:
            count = to_npz(reader, entries, output, damaged)
        else:
            count = to_lmdb(reader, entries, output, damaged, self.encoded)
        for remark, times in reader.remarks.items() if isinstance(reader, BoxListSet) else ():
            note(f"minicaffe: {self.source}: {remark}: {times}")
        left_out = f", {count_damaged} damaged left out" * bool(count_damaged)
        say(f"{self.output}: {count} {reader.unit}{left_out}")


def _boxes(args: ConvertImages) -> BoxListSet:
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
    how = "grey" if args.gray else None, args.resize, args.root_folder
    return BoxListSet(Path(args.source), args.source, numbers, *how)
