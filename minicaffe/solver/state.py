"""A solver's state in a snapshot: taken, found again, checked, put back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.caffe.weight_files import MODEL
from minicaffe.checkpoint import Reader, check_finite
from minicaffe.errors import CheckpointError

WANTED = "a solver's state in .npz and .solverstate"
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
    with Reader(file, WANTED) as reader:
        for name, like in remembered.items():
            if reader.shapes.get(f"@{name}") != like.shape:
                what, _, param = name.partition("/")
                raise CheckpointError(f"{file}: has no {what} for {param} of shape {like.shape}")
        arrays = {name: reader[name] for name in reader.shapes if name != MODEL}
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
