"""Going on with a run: which run of a model is meant, and what of its log still holds."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

from minicaffe.core.net.model import MODEL
from minicaffe.core.plugins import STATES, format_of
from minicaffe.core.solver import snapshots
from minicaffe.core.solver.state import WANTED
from minicaffe.errors import CheckpointError
from minicaffe.storage import checkpoint
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.divergence import FILE
from minicaffe.tools.training.folder import RunRecord

WEIGHTS = (".caffemodel", ".caffemodel.h5", ".safetensors")
Line = dict[str, Any]


def newest(model: str, name: str, prefix: str | None) -> tuple[Path | None, Path]:
    """The newest snapshot of a model's runs under runs/, or of `prefix`: the run's folder, and the file.

    With a prefix only runs are meant whose snapshots bear it; without one all, and `name`_iter_N in the
    current folder. Raises CheckpointError if there is none.
    """
    found: list[tuple[int, bool, Path | None, Path]] = []
    for folder in run_folder.runs():
        record = RunRecord(folder, run_folder.about(folder))
        file = record.newest
        meant = same(record.model_given, model) and (prefix is None or same(record.prefix, prefix))
        if file is not None and meant:
            found.append((file.stat().st_mtime_ns, True, folder, file))
    bare = prefix or name
    if snapshots.listed(bare):
        file = snapshots.latest(bare)
        found.append((file.stat().st_mtime_ns, False, None, file))
    if not found:
        run = f"there is no run of {model} with a snapshot in {run_folder.RUNS}/, and "
        raise CheckpointError(
            f"{'' if prefix else run}there is no snapshot {bare}_iter_*.npz to resume from"
        )
    return max(found, key=lambda one: one[:2])[2:]


def model_of(path: str) -> Path:
    """What holds the model to go on with from a run's folder, or a snapshot: the run's folder, else the
    snapshot itself. Raises CheckpointError for what is neither."""
    if os.path.isdir(path):
        return RunRecord(Path(path), run_folder.about(path)).folder
    file = with_state(path)
    if (folder := run_of(file)) is not None:
        return folder
    if format_of(STATES, path) is None:
        with checkpoint.Reader(file, WANTED) as reader:
            if MODEL in reader.shapes:
                return file
    raise CheckpointError(f"{path}: does not hold its net's text: train MODEL --resume {path}")


def with_state(path: str) -> Path:
    """A file that may be a snapshot. Raises CheckpointError for one that is not there, or of weights alone."""
    if path.lower().endswith(WEIGHTS):
        raise CheckpointError(f"{path}: holds weights and no solver's state; try --weights")
    if not os.path.exists(path):
        raise CheckpointError(f"{path}: no such file")
    return Path(path)


def run_of(snapshot: Path) -> Path | None:
    """The folder of the run that a snapshot is of, if it is known: the one it lies in, or one under runs/."""
    if run_folder.is_run(snapshot.parent):
        return snapshot.parent
    prefix = snapshot.parent / re.sub(run_folder.SNAPSHOT, "", snapshot.name)
    for folder in reversed(run_folder.runs()):
        if same(RunRecord(folder, run_folder.about(folder)).prefix, prefix):
            return folder
    return None


def same(one: str | Path, other: str | Path) -> bool:
    """Whether two paths are of the same thing."""
    return os.path.realpath(one) == os.path.realpath(other)


def cut(lines: list[Line], name: str, iteration: int, tested_again: bool) -> list[Line]:
    """Of a log's lines those that hold for who goes on from the snapshot `name` of an iteration.

    They are those down to the line that tells of it. If that was never written, for the process was killed
    before, it is the lines of what was before it. A test of the iteration stays unless it is made again.
    """
    wanted = "snapshot", name, iteration
    told = [(line["kind"], line.get("path"), line["iteration"]) for line in lines]
    at = [i for i, one in enumerate(told) if one == wanted]
    last = {"train": iteration - 1, "test": iteration - tested_again}
    kept = lines[: at[-1] + 1] if at else lines
    return [line for line in kept if line["iteration"] <= last.get(line["kind"], iteration)]


def forget(folder: Path, snapshot: Path | None) -> None:
    """Have a run's folder be as when its snapshot was taken, or as new: what came of going on is forgotten.

    There is no iteration that diverged, and that snapshot is the newest, though later ones stay.
    """
    try:
        (folder / FILE).unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"{folder / FILE}: cannot be removed: {error.strerror}") from None
    if snapshot is not None and snapshot.parent.resolve() == folder.resolve():
        with contextlib.suppress(OSError):  # another's file, say
            os.utime(snapshot)
