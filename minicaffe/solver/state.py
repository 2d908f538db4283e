"""A solver's state in a snapshot: taken, found again, checked, put back."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.caffe import state as caffes
from minicaffe.checkpoint import Reader, check_finite
from minicaffe.errors import CheckpointError
from minicaffe.net import Net

COUNTS = ("iteration", "seed", "recorded")


@dataclass
class State:
    """What, beside the parameters, decides how training goes on; in a snapshot its names begin with @.

    `losses` is the window that the shown loss is averaged over, of which `recorded` were written so far;
    `history` what the rule remembers, by names as `history/conv1__0`.
    """

    iteration: int
    seed: int
    recorded: int
    losses: np.ndarray
    history: dict[str, np.ndarray]

    def arrays(self) -> dict[str, np.ndarray]:
        """The entries of a snapshot."""
        counts = {f"@{name}": np.array(getattr(self, name)) for name in COUNTS}
        history = {f"@{name}": array for name, array in self.history.items()}
        return {**history, **counts, "@losses": self.losses}


def named(names: Collection[str], history: Sequence[Any]) -> dict[str, Any]:
    """What a rule remembers, by name: of each parameter its first array, then its second.

    >>> named(["ip__0"], [1, 2])
    {'history/ip__0': 1, 'history2/ip__0': 2}
    """
    orders = ["", *map(str, range(2, len(history) // max(len(names), 1) + 1))]
    every = [f"history{order}/{name}" for order in orders for name in names]
    return dict(zip(every, history, strict=True))


def read(file: str | Path, remembered: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], State]:
    """All arrays of a snapshot, and the state in them.

    `remembered` are arrays of the shapes that its history must have, by name. Raises CheckpointError.
    """
    with Reader(file) as reader:
        for name, like in remembered.items():
            if reader.shapes.get(f"@{name}") != like.shape:
                what, _, param = name.partition("/")
                raise CheckpointError(f"{file}: has no {what} for {param} of shape {like.shape}")
        arrays = {name: reader[name] for name in reader.shapes}
    counts = [f"@{name}" for name in COUNTS]
    for name, array in arrays.items():
        if array.dtype.kind not in ("iu" if name in counts else "f"):
            raise CheckpointError(f"{file}: entry {name!r} holds {array.dtype}")
    for name, like in remembered.items():
        check_finite(arrays[f"@{name}"], like.dtype, f"{file}: entry {f'@{name}'!r}")
    for name in counts:
        if name not in arrays or arrays[name].shape != () or not 0 <= arrays[name] < 2**62:
            raise CheckpointError(f"{file}: entry {name!r} is missing or no count")
    if "@losses" not in arrays or arrays["@losses"].ndim != 1:
        raise CheckpointError(f"{file}: entry '@losses' is missing or no list")
    check_finite(arrays["@losses"], np.float64, f"{file}: entry '@losses'")
    history = {name: arrays[f"@{name}"] for name in remembered}
    given: dict[str, Any] = {name: int(arrays[f"@{name}"]) for name in COUNTS}
    return arrays, State(**given, losses=arrays["@losses"], history=history)


def restored(file: str | Path, net: Net, history: Sequence[Any]) -> State:
    """The state in a snapshot, or in a .solverstate of Caffe's, whose parameters are loaded into `net`.

    `history` is what the rule remembers, in Caffe's order. Raises CheckpointError, before any change.
    """
    remembered = named(net.named_params, history)
    if caffes.is_caffes(file):
        weights, found = _read_caffes(file, remembered, net.context.seed)
        net.load(weights)
    else:
        arrays, found = read(file, remembered)
        net.load(arrays, origin=str(file))
    return found


def _read_caffes(file: str | Path, remembered: Mapping[str, Any], seed: int) -> tuple[Path, State]:
    """The file of the weights that a state of Caffe's names, and the state.

    Caffe keeps neither a seed nor the last losses: the seed stays `seed`.
    """
    given = caffes.read(file)
    shapes = {name: like.shape for name, like in remembered.items()}
    history = {name: one for name, (one,) in caffes.by_name(given, shapes, 1, str(file)).items()}
    weights = caffes.weights_file(file, given.learned_net)
    return weights, State(given.iteration, seed, 0, np.empty(0), history)


def path(prefix: str, iteration: int) -> Path:
    """The file of the snapshot after so many iterations.

    >>> path("out/lenet", 500).as_posix()
    'out/lenet_iter_500.npz'
    """
    return Path(f"{prefix}_iter_{iteration}.npz")


def check_folder(prefix: str) -> None:
    """Raise CheckpointError unless snapshots of this prefix can be written: tried before training."""
    folder = os.path.dirname(prefix) or "."
    if not os.path.isdir(folder):
        raise CheckpointError(f"snapshot_prefix {prefix!r}: there is no folder {folder!r}")
    try:
        tempfile.NamedTemporaryFile(dir=folder, prefix=".").close()
    except OSError as error:
        raise CheckpointError(
            f"snapshots cannot be written to {folder!r}: {error.strerror}; "
            "choose another folder with snapshot_prefix (--snapshot-prefix)"
        ) from None


def latest(prefix: str) -> Path:
    """The newest snapshot of a prefix. Raises CheckpointError if there is none."""
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"_iter_[0-9]+\.npz")
    listed = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    files = [Path(folder, entry) for entry in listed if pattern.fullmatch(entry)]
    found = [(file.stat().st_mtime_ns, len(file.name), file) for file in files if file.is_file()]
    if not found:
        raise CheckpointError(f"there is no snapshot {prefix}_iter_*.npz to resume from")
    return max(found)[-1]
