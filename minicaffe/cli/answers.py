"""What `predict` says of a picture: as a line, as JSON, as rows of a table; and what classes are called."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net.sources import with_classes
from minicaffe.errors import DataError, MinicaffeError
from minicaffe.interop.caffe.label_map import is_label_map, names_in
from minicaffe.storage import checkpoint, lists
from minicaffe.tools.data.layers.pictures import Pictures
from minicaffe.tools.data.pictures import Doubt

COLUMNS = ("image", "rank", "class", "name", "probability", "done", "unsure")


@dataclass
class Answer:
    """The probabilities of a picture's classes, and notes: what was done, and each Doubt."""

    path: str
    prob: np.ndarray
    notes: list[str]
    names: Sequence[str]
    top: int
    several: bool = False  # whether a picture may have several of the classes, or none

    def __post_init__(self) -> None:
        self.best = [int(k) for k in np.argsort(-self.prob)[: self.top]]
        if self.prob[self.best[0]] < 0.5 and not self.several:
            self.notes.append(Doubt("no class has half of the probability"))
        self.unsure = [str(note) for note in self.notes if isinstance(note, Doubt)]
        self.done = [str(note) for note in self.notes if not isinstance(note, Doubt)]

    def name(self, k: int) -> str:
        """A class as it is called; "" if nobody says."""
        return self.names[k] if k < len(self.names) else ""


def text(answer: Answer) -> str:
    """An answer as a line.

    >>> text(Answer("a.png", np.array([0.25, 0.75]), ["inverted", Doubt("faint ink")], ["cat", "dog"], 1))
    'a.png: dog (75.00 %) [inverted] [unsure: faint ink]'
    """
    guesses = ", ".join(
        f"{answer.name(k) or k} ({100 * answer.prob[k]:.2f} %)" for k in answer.best
    )
    done = f" [{', '.join(answer.done)}]" if answer.done else ""
    unsure = f" [unsure: {', '.join(answer.unsure)}]" if answer.unsure else ""
    return f"{answer.path}: {guesses}{done}{unsure}"


def json_line(answer: Answer) -> str:
    """An answer as JSON, in a line."""
    classes = [
        {"class": k, "name": answer.name(k) or None, "probability": float(answer.prob[k])}
        for k in answer.best
    ]
    about = {"image": answer.path, "classes": classes}
    return json.dumps({**about, "done": answer.done, "unsure": answer.unsure})


def csv_rows(answer: Answer) -> list[list[object]]:
    """An answer as rows of the table, one a class."""
    notes = ["; ".join(answer.done), "; ".join(answer.unsure)]
    return [
        [answer.path, rank, k, answer.name(k), f"{answer.prob[k]:.6f}", *notes]
        for rank, k in enumerate(answer.best, 1)
    ]


def write_csv(
    path: str, rows: Sequence[Sequence[object]], columns: Sequence[str] = COLUMNS
) -> None:
    """Write the table, atomically, what a spreadsheet would compute led by '. Raises CheckpointError."""
    table, texts = io.StringIO(newline=""), re.compile(r"[=+@\s]|-(?![\d.]+$)")
    writer = csv.writer(table)
    for row in (columns, *rows):
        writer.writerow(
            f"'{one}" if isinstance(one, str) and texts.match(one) else one for one in row
        )
    data = table.getvalue().encode("utf-8", "surrogateescape")
    checkpoint.replace(path, lambda file: file.write(data))


def class_names(labels: str | None, count: int, model: NetSpec, data: Pictures) -> Sequence[str]:
    """What the classes are called: as --labels says, else the model, else the data set; () if none does."""
    if labels is not None:
        return lines_of(labels, count)
    return with_classes(model, [data]).classes


def lines_of(path: str, count: int) -> list[str]:
    """The names in a file, one a line, or of a label map. Raises MinicaffeError for another number of them."""
    text = lists.text(Path(path))
    if is_label_map(text):
        names = names_in(text, path)
        if set(names) != set(range(count)):
            raise MinicaffeError(
                f"--labels {path}: names {len(names)} classes, from {min(names)} to {max(names)}; "
                f"the net has classes 0 to {count - 1}"
            )
        return [names[label] for label in range(count)]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != count:
        raise MinicaffeError(
            f"--labels {path}: has {len(lines)} names; the net has {count} classes"
        )
    for line in lines:
        if not line.isprintable():
            raise DataError(f"{path}: is not a text with a name in each line: found {line[:40]!r}")
    return lines
