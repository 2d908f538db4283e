"""Pictures in files of their own: of a list or a table, with boxes or masks, or in a folder for each class."""

import csv
import functools
import hashlib
import io
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import DataError, did_you_mean, note, raised_as
from minicaffe.storage import lists
from minicaffe.tools.data import picture_files
from minicaffe.tools.data.augment import bilinear, nearest
from minicaffe.tools.data.picture_files import Colour
from minicaffe.tools.data.reader.base import Entry, Reader

WINDOWS = ("thumbs.db", "desktop.ini")  # its own files, passed over as hidden ones are
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
# Of a split, the first that is there
SPLITS = {
    "train": ("train", "training"),
    "test": "test testing val valid validation dev eval evaluation holdout".split(),  # noqa: SIM905
}
ENDS = 1 << 12  # bytes at both ends of a file that are compared before all of them are
Size = tuple[int, int]


class PictureSet(Reader):
    """Pictures (c, h, w), blue before green before red; scaled to `size` (h, w), or of their own sizes.

    `paths` are those of files, or, of a `list`, what it says: a path is `root_folder` and that, one behind the
    other, from the current folder or from the list's.
    """

    blue_first = True
    paths: list[str]
    list: Path | None = None

    def __init__(
        self,
        path: Path,
        name: str,
        colour: Colour | None = None,
        size: Size | None = None,
        root_folder: str = "",
    ):
        self.name, self.origin, self.size, self.root_folder = name, str(path), size, root_folder
        self.colour: Colour = colour or "colour"
        if size is not None and self.colour != "as it is":
            self.shape = (3 if self.colour == "colour" else 1, *size)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Entry:
        picture = picture_files.read(self.place(i), self.colour)
        if self.size is not None:
            picture = bilinear(picture, *self.size)
        return picture.transpose(2, 0, 1), int(self.labels[i])

    def key(self, i: int) -> str:
        return self.paths[i]

    def place(self, i: int) -> str:
        return self.found(self.paths[i])

    def found(self, word: str) -> str:
        """Returns the file that one of the `paths` means. Raises DataError for one that a list has in vain."""
        if self.list is None:
            return word
        return str(lists.find(self.root_folder + word, [self.list.parent], f"{self.list}"))

    def fingerprint(self, i: int, depth: int) -> Any:
        with suppress(DataError):  # of a file that is missing
            return of_file(self.place(i), depth)
        return None


class ListSet(PictureSet):
    """The pictures of a list, a path and a label in each line; one that is missing is told when it is read."""

    def __init__(self, path: Path, name: str, *how: Any, **keys: Any):
        """`how` and `keys` are what PictureSet takes."""
        super().__init__(path, name, *how, **keys)
        self.list, (self.paths, self.labels) = path, lists.labelled(path)


class FolderSet(PictureSet):
    """The pictures in a folder of folders, one a class: labels count the classes, sorted by name.

    If there is a folder train, the split "train" is what lies in it, and "test" what lies in test or, without
    one, val (or what SPLITS calls them, also training_set and the like); the classes are train's. Else both
    splits are all of it, and so they are if train holds no folders and stands among others: it is a class
    then. Hidden files and folders are passed over, and so is, with a line on stderr, what is no picture by its
    name.
    """

    def __init__(self, folder: Path, name: str, split: str, *how: Any, **keys: Any):
        super().__init__(folder, name, *how, **keys)
        home, trained = _split(folder, split)
        self.home, self.origin, self.own_split = home, str(home), home != folder
        self.classes = tuple(_folders(trained))
        if not self.classes:
            raise DataError(f"{trained}: expected a folder for each class in it, found none")
        strange = sorted(set(_folders(home)) - set(self.classes))
        if strange:
            hint = did_you_mean(strange[0], self.classes)
            raise DataError(f"{home / strange[0]}: there is no such class in {trained}{hint}")
        self.passed_over = [str(home / name) for name in _files(home)]
        self.paths, labels = [], []
        for label, word in enumerate(self.classes):
            before = len(self.paths)
            for path in below(home / word):
                (self.paths if path.lower().endswith(SUFFIXES) else self.passed_over).append(path)
            labels += [label] * (len(self.paths) - before)
        self.labels = np.array(labels, np.int64)
        if not self.paths:
            raise DataError(f"{home}: holds no pictures; expected files in {', '.join(SUFFIXES)}")
        if self.passed_over:
            count, first = len(self.passed_over), self.passed_over[0]
            files = "1 file" if count == 1 else f"{count} files"
            note(f"minicaffe: {home}: {files} passed over, no pictures of a class: {first}")

    def key(self, i: int) -> str:
        return Path(self.paths[i]).relative_to(self.home / self.classes[self.labels[i]]).as_posix()


def of_file(path: str, depth: int) -> Any:
    """A file's size, the hash of its first and last bytes, the hash of all; None if it cannot be read."""
    try:
        at = os.stat(path)
        return _hashed(path, at.st_size, at.st_mtime_ns, depth > 1) if depth else at.st_size
    except OSError:
        return None


@functools.lru_cache(1 << 17)
def _hashed(path: str, size: int, changed: int, whole: bool) -> bytes:
    with open(path, "rb") as file:
        if whole:
            return hashlib.sha256(file.read()).digest()
        head = file.read(ENDS)
        file.seek(max(0, size - ENDS))
        return hashlib.sha256(head + file.read()).digest()


def holds_pictures(folder: Path) -> bool:
    """Whether a folder holds folders with pictures in them, or such folders by split."""
    try:
        within = [folder / name for name in _folders(folder)]
        deeper = (place / name for place in within for name in _folders(place))
        names = (name for place in itertools.chain(within, deeper) for name in _files(place))
        return any(name.lower().endswith(SUFFIXES) for name in names)
    except DataError:
        return False


def inner_hint(folder: Path) -> str:
    """Returns a hint that names a folder in another whose own folders are classes or splits; or ""."""
    inner = sorted(place for place in folder.glob("[!.]*") if holds_pictures(place))
    return f"; did you mean {str(inner[0])!r}?" if inner else ""


def _split(folder: Path, split: str) -> tuple[Path, Path]:
    """The folder of a split, and that which tells the classes."""
    within = _folders(folder)
    parts = {name: of_split(within, name) for name in SPLITS}
    if not parts["train"]:
        return folder, folder
    train = folder / parts["train"][0]
    if set(within) - {*parts["train"], *parts["test"]} and not _folders(train):
        return folder, folder  # a train may be a class: of vehicles
    if not parts[split]:
        raise DataError(f"{folder}: has a folder train; expected beside it, for TEST, test or val")
    return folder / parts[split][0], train


def of_split(names: Iterable[str], split: str) -> list[str]:
    """The names that say a split, the likeliest first, in small or capital letters.

    >>> of_split(["Validation", "cats", "Test_Set", "hold-out"], "test")
    ['Test_Set', 'Validation', 'hold-out']
    """
    bare = [(re.sub(r"[\s_\d-]", "", name.lower()), name) for name in names]  # of train2017, too
    words = [(re.sub(r"(data)?set$|data$|images$", "", word), name) for word, name in bare]
    return [name for known in SPLITS[split] for word, name in words if word == known]


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    with raised_as(DataError, f"{folder}: cannot be read"), os.scandir(folder) as entries:
        shown = (e for e in entries if e.name[0] != "." and e.name.lower() not in WINDOWS)
        return sorted(shown, key=lambda entry: entry.name)


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in _listed(folder) if _is_folder(entry)]


def _files(folder: Path) -> list[str]:
    return [entry.name for entry in _listed(folder) if not _is_folder(entry)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, or a link to one; a link that leads round in a circle is none."""
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry))


def below(folder: Path) -> list[str]:
    """The files in a folder and below it, by name; links to folders below it are not followed."""
    if not folder.is_dir():
        return []
    files, deeper = [], []
    for entry in _listed(folder):
        if not _is_folder(entry):
            files.append(entry.path)
        elif not entry.is_symlink():
            deeper.append(entry.path)
    return files + [path for place in deeper for path in below(Path(place))]


def pictures_below(folder: Path, endings: tuple[str, ...] = (*SUFFIXES, ".npy")) -> list[str]:
    """The pictures in a folder and below it, by name. Raises DataError if there are none."""
    paths = [path for path in below(folder) if path.lower().endswith(endings)]
    if not paths:
        raise DataError(f"{folder}: holds no pictures; expected files in {', '.join(endings)}")
    return paths


TABLES = (".csv", ".tsv")
PICTURES = ("image", "picture", "file", "filename", "file_name", "path", "photo", "img")
LABELS = ("label", "labels", "class", "classes", "category", "target")
SPLIT = ("split", "set", "subset")
WITHIN = {word: split for split, words in SPLITS.items() for word in words}
AND = ";"  # between the labels of a picture that has several


class TableSet(PictureSet):
    """The pictures of a table: a path in each row, and a label, or several.

    The first row names the columns, unless its first cell is a picture's path. The path is in a column
    named image, file, path ..., else in the first; the label in one named label, class ..., or the only
    other. Labels are numbers from 0 on, or names, which are numbered in their order. A picture has several
    labels if a cell holds names with ";" between them, or if each further column is 0 or 1 for the label
    it is named by: then `label_shape` is (labels,), and an entry's label is a vector of 0 and 1. A column
    named split says train, test or val. Paths are relative to the current folder, `root_folder` or the
    table's folder. Raises DataError, with the line, for a table that is not as this says.
    """

    def __init__(self, path: Path, name: str, split: str, *how: Any, **keys: Any):
        super().__init__(path, name, *how, **keys)
        self.list = path
        head, whole = _rows(path)
        image, labels, within = _columns(path, head)
        rows = whole
        if within is not None:
            self.own_split = True
            for line, row in whole:
                if row[within].lower() not in WITHIN:
                    raise DataError(
                        f"{path}:{line}: expected the split train, test or val, got"
                        f" {row[within].lower()!r:.40}"
                    )
            rows = [one for one in whole if WITHIN[one[1][within].lower()] == split]
            if not rows:
                raise DataError(f"{path}: has no row of the split {split}")
        self.paths = [row[image] for _, row in rows]
        places = [f"{path}:{line}" for line, _ in rows]
        cells = [[row[column] for column in labels] for _, row in rows]
        seen: dict[str, list[str]] = {}
        for at, name, own in zip(places, self.paths, cells, strict=True):
            if seen.setdefault(name, own) != own:
                raise DataError(
                    f"{at}: {name} has another label than in a row above; several labels of a picture"
                    f" stand in one cell, with {AND!r} between them"
                )
        if len(labels) > 1:
            self.classes = tuple(head[column] for column in labels)
            bits = [[_bit(cell, at) for cell in row] for row, at in zip(cells, places, strict=True)]
            self.vectors = np.array(bits, np.float32)
        else:
            every = [row[labels[0]] for _, row in whole]  # all splits number names in the same way
            self._by_words([row[0] for row in cells], places, every)
        if self.label_shape or len(labels) > 1:
            self.label_shape = (self.vectors.shape[1],)
            self.labels = np.where(self.vectors.any(axis=1), self.vectors.argmax(axis=1), -1)

    def _by_words(self, cells: list[str], places: list[str], every: list[str]) -> None:
        """Labels of one column: numbers, names, or several names; `every` are those of the whole table."""
        if any(AND in cell for cell in every):
            names = sorted({one.strip() for cell in every for one in cell.split(AND)} - {""})
            number = {name: i for i, name in enumerate(names)}
            self.classes, self.label_shape = tuple(names), (len(names),)
            self.vectors = np.zeros((len(cells), len(names)), np.float32)
            for i, cell in enumerate(cells):
                for one in filter(None, map(str.strip, cell.split(AND))):
                    self.vectors[i, number[one]] = 1
            return
        if all(cell.removeprefix("-").isdecimal() for cell in every):
            numbers = map(lists.integer, places, cells, ["a label"] * len(cells))
            self.labels = np.array(list(numbers), np.int64)
            return
        empty = next((at for cell, at in zip(cells, places, strict=True) if not cell), None)
        if empty is not None:
            raise DataError(f"{empty}: expected a label, got an empty cell")
        self.classes = tuple(sorted(set(every) - {""}))
        number = {name: i for i, name in enumerate(self.classes)}
        self.labels = np.array([number[cell] for cell in cells], np.int64)

    def __getitem__(self, i: int) -> Entry:
        picture, label = super().__getitem__(i)
        return (picture, self.vectors[i]) if self.label_shape else (picture, label)

    def vector(self, i: int) -> np.ndarray:
        return self.vectors[i]


def _rows(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, "" if there are none, and the rows with their line numbers."""
    text = lists.text(path)
    kind = "excel-tab" if path.suffix.lower() == ".tsv" else "excel"
    if kind == "excel" and ";" in (first := text.partition("\n")[0]) and "," not in first:
        raise DataError(f"{path}:1: expected commas between columns, found ';'")
    reader = csv.reader(io.StringIO(text, newline=""), kind, strict=True)
    rows = []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num, [cell.strip() for cell in row]))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: is not a table: {error}") from None
    if not rows:
        raise DataError(f"{path}: holds no rows")
    width = len(rows[0][1])
    for line, row in rows:
        if len(row) != width:
            raise DataError(f"{path}:{line}: expected {width} columns, got {len(row)}")
        if not all(cell.isprintable() for cell in row):
            raise DataError(f"{path}:{line}: is not a table of text")
    if width < 2:
        raise DataError(f"{path}:1: expected a picture's path and a label in each row")
    if rows[0][1][0].lower().endswith((*SUFFIXES, ".npy")):
        return [""] * width, rows
    if len(rows) == 1:
        raise DataError(f"{path}: holds no rows below the names of its columns")
    return rows[0][1], rows[1:]


def _columns(path: Path, head: list[str]) -> tuple[int, list[int], int | None]:
    """The columns of the path, of the labels, and of the split, if there is one."""
    names = [name.lower() for name in head]
    image = next((i for i, name in enumerate(names) if name in PICTURES), 0)
    within = next((i for i, name in enumerate(names) if name in SPLIT and i != image), None)
    rest = [i for i in range(len(names)) if i not in (image, within)]
    labels = [i for i in rest if names[i] in LABELS][:1] or rest
    if not labels:
        raise DataError(f"{path}:1: expected a column of labels beside {head[image]!r:.40}")
    if len(labels) > 1 and not head[labels[0]]:
        raise DataError(f"{path}:1: expected names of the columns, for there are several labels")
    return image, labels, within


def _bit(cell: str, at: str) -> float:
    if cell in ("0", "1", "0.0", "1.0"):
        return float(cell)
    raise DataError(
        f"{at}: expected 0 or 1 in each column of labels, got {cell!r:.40}; of one label a picture the"
        f" column is called {LABELS[0]}"
    )


LARGEST = 1 << 26  # bytes of an annotation
# What is told of boxes that contradict their picture, before how often
CLIPPED = "boxes beyond their picture's edge, cut off there"
SCALED = "pictures of another size than their annotation says, whose boxes are scaled with them"
TURNED = (
    "pictures annotated before EXIF's orientation turned them, whose boxes are turned with them"
)
# What comes of damaged annotations; ElementTree's own error is a SyntaxError, RecursionError a RuntimeError
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, SyntaxError, OverflowError, RuntimeError)
Box = tuple[float, float, float, float]
# (w, h) of the picture, if the file says it, and the boxes
Annotation = tuple[tuple[float, float] | None, list[tuple[str, Box, bool]]]


class BoxListSet(PictureSet):
    """The pictures of a list, a picture and its annotation in each line, with the boxes (k, 7) in them.

    An annotation is .xml as PASCAL VOC has it, .json as SSD's scripts make it of COCO's (`annotation`: a list
    of `category_id`, `bbox` x, y, width, height), or .txt with a line a box: class, x0, y0, x1, y1, and 1 if
    it is difficult. Sides are in pixels of the upright picture, or of the size that the annotation says:
    boxes are divided by that, as SSD does, and are turned with a picture that was annotated before EXIF's
    orientation turned it. `labels` are the numbers of classes that have a name. Rows are as in datum.py;
    instances count the boxes of a class in a picture; `remarks` counts what was changed in those read so far.
    """

    unit = "pictures"

    def __init__(self, path: Path, name: str, labels: Mapping[str, int], *how: Any, **keys: Any):
        super().__init__(path, name, *how, **keys)
        self.list, self.numbers = path, dict(labels)
        self.paths, self.annotations = lists.pairs(path)
        self.remarks: Counter[str] = Counter()

    def __getitem__(self, i: int) -> Any:
        picture = picture_files.read(self.place(i), self.colour)
        rows = self.rows(i, *picture.shape[:2])
        if self.size is not None:
            picture = bilinear(picture, *self.size)
        return picture.transpose(2, 0, 1), rows

    def rows(self, i: int, h: int, w: int) -> np.ndarray:
        """The boxes in the i-th picture, of h x w."""
        path = Path(self.found(self.annotations[i]))
        kind = {".xml": _voc, ".json": _coco, ".txt": _text}.get(path.suffix.lower())
        if kind is None:
            raise DataError(f"{path}: expected an annotation in .xml, .json or .txt")
        with raised_as(DataError, f"{path}: cannot be read"):
            if os.path.getsize(path) > LARGEST:
                raise DataError(
                    f"{path}: an annotation of more than {LARGEST >> 20} MiB is not read"
                )
            data = path.read_bytes()
        try:
            size, boxes = kind(data)
        except DAMAGE as error:
            said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise DataError(f"{path}: is not an annotation that can be read: {said}") from None
        turn = 1
        if size is None:
            size = (w, h)
        elif size != (w, h):
            turn = picture_files.orientation(self.place(i)) if size == (h, w) else 1
            self.remarks[TURNED if turn in picture_files.TURNS else SCALED] += 1
        wide, high = size
        counts: dict[int, int] = {}
        rows = []
        for name, box, difficult in boxes:
            label = self._label(name, path)
            sides = ", ".join(map(str, box))
            below = max(box[2] - box[0], box[3] - box[1]) < 1 or max(box) <= 1
            if below and min(size) > 1:
                raise DataError(
                    f"{path}: a box of {name[:60]!r} is smaller than a pixel: {sides}; expected x0, y0, x1, y1"
                    " in pixels: are these fractions, or YOLO's centre, width and height?"
                )
            if not np.isfinite(box).all() or box[2] <= box[0] or box[3] <= box[1]:
                raise DataError(f"{path}: a box of {name[:60]!r} has no area: {sides}")
            if box[0] >= wide or box[1] >= high or box[2] <= 0 or box[3] <= 0:
                raise DataError(
                    f"{path}: a box of {name[:60]!r} is beside its picture of {wide:g} x {high:g}: {sides}"
                )
            fractions = np.array(box) / np.array([wide, high, wide, high])
            inside = fractions.clip(0, 1)
            if (inside != fractions).any():
                self.remarks[CLIPPED] += 1
            fractions = picture_files.turned_box(inside, turn)
            rows.append([label, counts.get(label, 0), *fractions, difficult])
            counts[label] = counts.get(label, 0) + 1
        return np.array(rows, np.float64).reshape(-1, 7)

    def _label(self, name: str, path: Path) -> int:
        if name in self.numbers:
            return self.numbers[name]
        if name.isdecimal() and len(name) < 20 and int(name) < 2**31:
            return int(name)
        shown = repr(name[:60])
        if not self.numbers:
            raise DataError(f"{path}: the class {shown} has no number: --label-map FILE says it")
        hint = did_you_mean(name, self.numbers)
        raise DataError(f"{path}: the label map has no class {shown}{hint}")


def _size(width: Any, height: Any) -> tuple[float, float] | None:
    """Returns the size that an annotation says; None where it says none, or zeros."""
    size = float(width or 0), float(height or 0)
    return size if min(size) > 0 and max(size) < float("inf") else None


def _voc(data: bytes) -> Annotation:
    """PASCAL VOC's: size, and objects with name, bndbox (xmin, ymin, xmax, ymax), difficult."""
    from xml.etree import ElementTree  # takes as long as all else here

    boxes = []
    root = ElementTree.fromstring(data)
    for one in root.iter("object"):
        sides = [one.find(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
        name = (one.findtext("name") or "").strip()
        if not name or None in sides:
            raise ValueError("an object has no name, or no bndbox of xmin, ymin, xmax, ymax")
        x0, y0, x1, y1 = (float(side.text or "") for side in sides if side is not None)
        boxes.append((name, (x0, y0, x1, y1), (one.findtext("difficult") or "0").strip() == "1"))
    return _size(root.findtext("size/width"), root.findtext("size/height")), boxes


def _coco(data: bytes) -> Annotation:
    """A picture's part of COCO's: its `image` and its `annotation` list; crowds (iscrowd) are difficult."""
    boxes = []
    whole = json.loads(data)
    for one in whole["annotation"]:
        x, y, w, h = map(float, one["bbox"])
        boxes.append((str(one["category_id"]), (x, y, x + w, y + h), bool(one.get("iscrowd"))))
    image = whole.get("image") or {}
    return _size(image.get("width"), image.get("height")), boxes


def _text(data: bytes) -> Annotation:
    """A line a box: class, x0, y0, x1, y1, and 1 if it is difficult."""
    boxes = []
    for number, line in enumerate(data.decode("utf-8-sig").splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words:
            continue
        if len(words) not in (5, 6):
            raise ValueError(f"line {number}: expected class, x0, y0, x1, y1, got {line[:60]!r}")
        x0, y0, x1, y1 = map(float, words[1:5])
        boxes.append((words[0], (x0, y0, x1, y1), words[5:] == ["1"]))
    return None, boxes


class PairSet(PictureSet):
    """The pairs of pictures that a text file lists, two paths in a line: one array, labels its last channel.

    Or of a folder: each picture in its folder images, with the one of that name in its folder masks, whose
    labels are grey values, or numbers of colours in a palette. Folders train and test (or val) are splits.

    Pictures are scaled to `size`, of one size with their labels; labels bilinearly, with `nearest` each is
    the nearest one's, as OpenCV chooses it.
    """

    unit = "pairs"

    def __init__(self, path: Path, name: str, *how: Any, nearest: bool, split: str = "train"):
        """`how` is what PictureSet takes."""
        super().__init__(path, name, *how)
        self.nearest = nearest
        self.labels_as: Colour = "grey"
        if path.is_dir():
            self.labels_as = "labels"
            within, _ = _split(path, split)
            self.own_split, self.origin = within != path, str(within)
            self.pairs = pairs_in(within)
        else:
            self.list = path
            words = lists.words(path)
            if not words or len(words) % 2:
                raise DataError(
                    f"{path}: expected two paths in each line, found {len(words)} words"
                )
            self.pairs = list(zip(words[::2], words[1::2], strict=True))
        if self.size is not None:
            self.shape = (4 if self.colour == "colour" else 2, *self.size)
        self.paths = [picture for picture, _ in self.pairs]

    def __getitem__(self, i: int) -> Entry:
        files = map(self.found, self.pairs[i])
        picture, labels = map(picture_files.read, files, (self.colour, self.labels_as))
        if picture.shape[:2] != labels.shape[:2]:
            (h, w), (oh, ow) = picture.shape[:2], labels.shape[:2]
            raise DataError(
                f"{self.place(i)}: is of {h} x {w}, its labels {self.pairs[i][1]} of {oh} x {ow}"
            )
        if self.size is not None:
            scaled = nearest if self.nearest else bilinear
            picture, labels = bilinear(picture, *self.size), scaled(labels, *self.size)
        return np.concatenate([picture, labels], axis=2).transpose(2, 0, 1), 0

    def label(self, i: int) -> int:
        return 0

    def key(self, i: int) -> str:
        return Path(self.paths[i]).name if self.list is None else self.paths[i]


IMAGES = ("images", "pictures", "photos", "JPEGImages")  # folders of pictures
MASKS = ("masks", "labels", "annotations", "SegmentationClass")  # and of their labels


def holds_pairs(folder: Path) -> bool:
    """Whether a folder holds a folder of pictures and one of masks, or such folders by split."""
    names = of_split(os.listdir(folder) if folder.is_dir() else (), "train")
    places = (folder, *(folder / name for name in names))
    return any(_one(place, IMAGES) and _one(place, MASKS) for place in places)


def pairs_in(folder: Path) -> list[tuple[str, str]]:
    """Each picture of a folder with its mask, which has the same name but for the ending.

    Raises DataError for a picture without a mask, and for a folder without pictures.
    """
    images, masks = _one(folder, IMAGES), _one(folder, MASKS)
    if images is None or masks is None:
        raise DataError(f"{folder}: expected a folder images and a folder masks in it")
    mask_of = {Path(path).stem: path for path in below(masks) if path.lower().endswith(SUFFIXES)}
    paths = pictures_below(images, SUFFIXES)
    for path in paths:
        if Path(path).stem not in mask_of:
            raise DataError(f"{path}: has no mask {masks / Path(path).stem}.png")
    return [(path, mask_of[Path(path).stem]) for path in paths]


def _one(folder: Path, names: Sequence[str]) -> Path | None:
    """The folder in another that has one of some names."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)
