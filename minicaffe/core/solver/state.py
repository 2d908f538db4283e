"""A solver's state in a snapshot: its entries, and how they are read and checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.net.model import MODEL
from minicaffe.errors import CheckpointError
from minicaffe.storage.checkpoint import Reader, check_finite

WANTED = "a solver's state in .npz and .solverstate"
COUNTS = ("iteration", "seed", "recorded")
WATCHED = ("best/", "plateau/")  # prefixes of the names of trends; see Trend


@dataclass
class State:
    """The state that training resumes from, besides the parameters; in a snapshot its names begin with @.

    `losses` is the window of the displayed average loss, with `recorded` losses written so far;
    `history` holds the rule's history, by names as `history/conv1__0`. If the weights are averaged,
    the snapshot's weights are the average, and `training` holds the trained weights by parameter.
    `watched` are the numbers of each Trend, by names as `best/max/accuracy`.
    """

    iteration: int
    seed: int
    recorded: int
    losses: np.ndarray
    history: dict[str, np.ndarray]
    training: dict[str, np.ndarray] = field(default_factory=dict)
    watched: dict[str, np.ndarray] = field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """The entries of a snapshot."""
        counts = {f"@{name}": np.array(getattr(self, name)) for name in COUNTS}
        training = {f"training/{name}": array for name, array in self.training.items()}
        named = {**self.history, **training, **self.watched}
        return {**{f"@{k}": v for k, v in named.items()}, **counts, "@losses": self.losses}


def named(names: Collection[str], history: Sequence[Any]) -> dict[str, Any]:
    """A rule's history by name: the first array of each parameter, then the second.

    >>> named(["ip__0"], [1, 2])
    {'history/ip__0': 1, 'history2/ip__0': 2}
    """
    orders = ["", *map(str, range(2, len(history) // max(len(names), 1) + 1))]
    every = [f"history{order}/{name}" for order in orders for name in names]
    return dict(zip(every, history, strict=True))


def read(
    file: str | Path, remembered: Mapping[str, Any], finite: bool = True
) -> tuple[dict[str, np.ndarray], State]:
    """All arrays of a snapshot, and the state in them.

    `remembered` are arrays of the shapes that its history must have, by name. Raises CheckpointError, with
    `finite` also for a history that is not finite.
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
    for name, like in remembered.items() if finite else ():
        check_finite(arrays[f"@{name}"], like.dtype, f"{file}: entry {f'@{name}'!r}")
    for name in counts:
        if name not in arrays or arrays[name].shape != () or not 0 <= arrays[name] < 2**62:
            raise CheckpointError(f"{file}: entry {name!r} is missing or no count")
    if "@losses" not in arrays or arrays["@losses"].ndim != 1:
        raise CheckpointError(f"{file}: entry '@losses' is missing or no list")
    check_finite(arrays["@losses"], np.float64, f"{file}: entry '@losses'")
    history = {name: arrays[f"@{name}"] for name in remembered}
    fields: dict[str, Any] = {name: int(arrays[f"@{name}"]) for name in COUNTS}
    fields |= {
        "training": _training(file, arrays, remembered, finite),
        "watched": _watched(file, arrays),
    }
    return arrays, State(**fields, losses=arrays["@losses"], history=history)


def _training(
    file: str | Path, arrays: Mapping[str, np.ndarray], remembered: Mapping[str, Any], finite: bool
) -> dict[str, np.ndarray]:
    """The trained weights of each parameter; {} if they are the snapshot's own."""
    lead = "@training/"
    stored = {name.removeprefix(lead): one for name, one in arrays.items() if name.startswith(lead)}
    if not stored:
        return {}
    likes = {
        name.removeprefix("history/"): like
        for name, like in remembered.items()
        if name.startswith("history/")
    }
    for name, like in likes.items():
        if name not in stored or stored[name].shape != like.shape:
            raise CheckpointError(
                f"{file}: has no training weights for {name} of shape {like.shape}"
            )
        if finite:
            check_finite(stored[name], like.dtype, f"{file}: entry {f'{lead}{name}'!r}")
    return {name: stored[name] for name in likes}


def _watched(file: str | Path, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The numbers of the trends."""
    names = [name for name in arrays if name.removeprefix("@").startswith(WATCHED)]
    for name in names:
        array = arrays[name]
        counts = array[1:] if array.shape == (5,) else None
        whole = counts is not None and np.all((counts >= -1) & (counts < 2**62))
        if not whole or not np.isfinite(array[0]):
            raise CheckpointError(f"{file}: entry {name!r} holds no test's numbers")
    return {name.removeprefix("@"): arrays[name] for name in names}
