"""Snapshots on disk: one .npz, or Caffe's two files, one of the weights and one of the solver's state."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec, SolverSpec
from minicaffe.core.net import Net
from minicaffe.core.net.model import entry, is_ours
from minicaffe.core.net.sources import with_classes
from minicaffe.core.net.weights import check as check_weights
from minicaffe.core.plugins import STATES, format_of
from minicaffe.core.solver import state
from minicaffe.core.solver.learning_rate import falls
from minicaffe.core.solver.state import State
from minicaffe.errors import CheckpointError
from minicaffe.storage import checkpoint, hdf5

OF_ONE = r"_(iter_[0-9]+|best)$"  # at the end of a snapshot's name
ENDINGS = {"NPZ": ".npz", "BINARYPROTO": ".solverstate", "HDF5": ".solverstate.h5"}
WRITTEN: tuple[str, ...] = (
    *ENDINGS.values(),
    ".caffemodel",
    ".caffemodel.h5",
)  # of all files of a snapshot


def name(model: NetSpec) -> str:
    """The name of a model's snapshots: that of its file, without _iter_N of a snapshot; or the model's own.

    >>> name(NetSpec(layers=(), path=Path("out/lenet_iter_500.npz"))), name(NetSpec(layers=(), name="Le"))
    ('lenet', 'Le')
    """
    if model.path is None:
        return model.name or "net"
    return re.sub(OF_ONE if is_ours(model.path) else "$", "", model.path.stem)


def path(prefix: str, iteration: int, form: str = "NPZ") -> Path:
    """The file of the snapshot of an iteration; Caffe's file of the weights is beside it.

    >>> path("out/lenet", 500).as_posix()
    'out/lenet_iter_500.npz'
    """
    return Path(f"{prefix}_iter_{iteration}{ENDINGS[form]}")


def best_path(prefix: str) -> Path:
    """The file of the snapshot of the best test.

    >>> best_path("out/lenet").as_posix()
    'out/lenet_best.npz'
    """
    return Path(f"{prefix}_best.npz")


def write(
    file: Path, net: Net, kept: State, spec: SolverSpec, more: Mapping[str, np.ndarray]
) -> None:
    """Write a snapshot atomically; of Caffe's two files, the weights first. Raises CheckpointError.

    `more` are further entries of an .npz file.
    """
    plugged = format_of(STATES, file)
    if plugged is None:
        prefix = net.spec.solver.snapshot_prefix if net.spec.solver else None
        model = with_classes(net.spec, net.layers.values())
        model = replace(model, solver=replace(spec, snapshot_prefix=prefix))
        text = entry(model, file)
        checkpoint.write(file, {**net.weights(), **kept.arrays(), **more, **text})
        return
    weights = weights_beside(file)
    net.save(weights)
    history = list(kept.history.values())
    plugged.save(file, kept.iteration, str(weights), falls(spec, kept.iteration), history)


def restore(
    file: str | Path, net: Net, remembered: Mapping[str, Any], finite: bool = True
) -> State:
    """Load the weights of a snapshot into a net; returns the state. Raises CheckpointError before a change.

    `remembered` are arrays of the shapes that the history must have, by name. A state of Caffe's holds no
    seed and no window of losses: the seed does not change, and the window starts empty.
    Weights and history of an .npz must be finite, unless `finite` is false.
    """
    plugged = format_of(STATES, file)
    if plugged is None:
        with checkpoint.Reader(file, state.WANTED) as reader:
            check_weights(net.graph, reader)
        arrays, kept = state.read(file, remembered, finite)
        net.load(arrays, origin=str(file), finite=finite)
        return kept
    shapes = {name: param.shape for name, param in net.named_params.items()}
    slots = len(remembered) // max(len(shapes), 1)
    iteration, weights, arrays = plugged.restore(file, shapes, slots)
    history = dict(zip(remembered, arrays, strict=True))
    for name, like in remembered.items():
        checkpoint.check_finite(history[name], like.dtype, f"{file}: {name}")
    net.load(weights)
    nothing = np.empty(0, np.float64)
    return State(iteration, net.context.seed, 0, nothing, history)


def check(prefix: str, form: str, layers: Iterable[str] = ()) -> None:
    """Raise CheckpointError unless snapshots of this prefix can be written; called before training."""
    if form == "HDF5":
        hdf5.library(CheckpointError)
        for name in layers:
            if "/" in name:
                raise CheckpointError(
                    f"snapshot_format HDF5 has no place for a layer named {name!r}; "
                    "take BINARYPROTO or NPZ"
                )
    check_folder(prefix)
    folder = os.path.dirname(prefix) or "."
    try:
        tempfile.TemporaryFile(dir=folder).close()  # without a name, if the system can
    except OSError as error:
        raise CheckpointError(
            f"snapshots cannot be written to {folder!r}: {error.strerror}; "
            "choose another folder with snapshot_prefix (--snapshot-prefix)"
        ) from None


def check_folder(prefix: str) -> None:
    """Raise CheckpointError if the folder of a prefix is missing; called when a solver is made."""
    folder = os.path.dirname(prefix) or "."
    if not os.path.isdir(folder):
        raise CheckpointError(
            f"snapshot_prefix {prefix!r}: there is no folder {folder!r}; "
            "make it, or choose another with snapshot_prefix (--snapshot-prefix)"
        )


def latest(prefix: str) -> Path:
    """The newest snapshot of a prefix, of any kind. Raises CheckpointError if there is none."""
    files = [(file.stat().st_mtime_ns, len(file.name), file) for _, file in listed(prefix)]
    if not files:
        raise CheckpointError(f"there is no snapshot {prefix}_iter_*.npz to resume from")
    return max(files)[-1]


def listed(prefix: str) -> list[tuple[int, Path]]:
    """The snapshots of a prefix with their iterations, the earliest first."""
    folder, name = os.path.split(prefix)
    endings = "|".join(map(re.escape, ENDINGS.values()))
    pattern = re.compile(re.escape(name) + rf"_iter_([0-9]+)({endings})")
    names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    files = [(match, Path(folder, match[0])) for match in map(pattern.fullmatch, names) if match]
    return sorted((int(match[1]), file) for match, file in files if file.is_file())


def drop(prefix: str, iteration: int, keep: int) -> None:
    """Remove all but the last `keep` snapshots of a prefix up to this iteration, whose own is written.

    A file that cannot be removed stays.
    """
    before = [(n, file) for n, file in listed(prefix) if n < iteration]
    for _, file in before[: max(len(before) - keep + 1, 0)]:
        for one in (file, weights_beside(file)):
            with contextlib.suppress(OSError):
                one.unlink()


def weights_beside(file: Path) -> Path:
    """The file that holds a snapshot's weights: itself, or of Caffe's two the .caffemodel."""
    return file.with_name(".caffemodel".join(file.name.rsplit(".solverstate", 1)))
