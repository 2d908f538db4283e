"""A solver's state in Caffe's files, .solverstate and .solverstate.h5: plain numbers and arrays.

`history` lists arrays in Caffe's order: what the rule remembers of each parameter, in the order of the net's
layers, then, for AdaDelta and Adam, its second memory of each in the same order.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import CheckpointError
from minicaffe.interop.caffe.weights import STATES, put_h5, same_shape, write_h5, write_message
from minicaffe.storage import hdf5, wire


@dataclass
class SolverState:
    """Where a solver of Caffe's stood: iteration, file of the weights, how often the rate has fallen."""

    iteration: int = 0
    learned_net: str = ""
    current_step: int = 0
    history: list[np.ndarray] = field(default_factory=list, repr=False)


def is_caffes(path: str | Path) -> bool:
    """Whether a name is that of a solver's state in Caffe's format."""
    return str(path).lower().endswith(STATES)


def read(path: str | Path) -> SolverState:
    """The state in a file. Raises CheckpointError, in one line, for a file that is not whole."""
    state = SolverState()
    if hdf5.is_one(path):
        with hdf5.opened(path, CheckpointError) as file:
            state.iteration = hdf5.number(file, "iter")
            state.current_step = hdf5.number(file, "current_step")
            state.learned_net = hdf5.word(file, "learned_net")
            group = hdf5.child(file, "history")
            names = hdf5.names(group)
            if names != [str(i) for i in range(len(names))]:
                raise ValueError("'/history' does not hold 0, 1, ... without a gap")
            state.history = [np.asarray(hdf5.dataset(group, name)[()]) for name in names]
    else:
        with wire.opened(path, ".solverstate", CheckpointError) as data:
            for number, kind, value in wire.fields(data):
                if number == 1:
                    state.iteration = wire.integer(kind, value)
                elif number == 2:
                    state.learned_net = wire.text(kind, value)
                elif number == 3:
                    state.history.append(wire.parse_blob(wire.message(kind, value)).array())
                elif number == 4:
                    state.current_step = wire.integer(kind, value)
    if not (0 <= state.iteration < 2**31 and 0 <= state.current_step < 2**31):
        problem = f"iteration {state.iteration}, step {state.current_step}: expected 0 to 2^31 - 1"
        raise CheckpointError(f"{path}: {problem}")
    return state


def restore(
    path: str | Path, shapes: Mapping[str, tuple[int, ...]], slots: int
) -> tuple[int, Path, list[np.ndarray]]:
    """Returns the iteration, the file of the weights, and the history in Caffe's order.

    `shapes` are those of the net's parameters, in the order of the layers, of each of which the rule remembers
    `slots` arrays. Raises CheckpointError, too if the state is not one of such a net and rule.
    """
    state = read(path)
    weights, count = weights_file(path, state.learned_net), slots * len(shapes)
    if len(state.history) != count:
        why = f"this net and type of solver have {count}"
        raise CheckpointError(f"{path}: holds {len(state.history)} arrays of history; {why}")
    history = []
    for i, (array, name) in enumerate(zip(state.history, list(shapes) * slots, strict=True)):
        if not same_shape(array.shape, shapes[name]):
            problem = f"history {i} has shape {array.shape}, {name} {shapes[name]}"
            raise CheckpointError(f"{path}: {problem}")
        if not np.isfinite(array).all():
            raise CheckpointError(f"{path}: history {i} holds numbers that are not finite")
        history.append(array.reshape(shapes[name]))
    return state.iteration, weights, history


def save(
    path: str | Path, iteration: int, weights: str, falls: int, history: Sequence[Any]
) -> None:
    """Write where a solver stands: `falls` is how often its rate has fallen."""
    write(path, SolverState(iteration, weights, falls, list(history)))


def weights_file(path: str | Path, learned_net: str) -> Path:
    """The file of weights that a state names: there, or else beside it. Raises CheckpointError without one."""
    if not learned_net:
        raise CheckpointError(f"{path}: names no weights (learned_net); load them with --weights")
    name = learned_net.replace("\\", "/").rpartition("/")[2]
    places = list(dict.fromkeys([Path(learned_net), Path(path).parent / name]))
    for place in places:
        if os.path.isfile(place):
            return place
    looked = " and ".join(map(str, places))
    raise CheckpointError(f"{path}: its weights are not there; looked for {looked}")


def write(path: str | Path, state: SolverState) -> None:
    """Write a state as Caffe does, atomically: as HDF5 if the name ends in .h5, else as Protocol Buffers."""
    if str(path).lower().endswith(".h5"):

        def fill(file: Any) -> None:
            for name, number in (("iter", state.iteration), ("current_step", state.current_step)):
                file.create_dataset(name, data=np.array([number], np.int32))
            file.create_dataset("learned_net", data=np.bytes_(state.learned_net.encode() + b"\0"))
            group = file.create_group("history", track_order=True)
            for i, array in enumerate(state.history):
                put_h5(group, str(i), array)

        write_h5(path, fill)
        return
    parts = [wire.put_integer(1, state.iteration), *wire.put(2, state.learned_net)]
    for array in state.history:
        parts += wire.put(3, wire.blob_parts(array))
    write_message(path, [*parts, wire.put_integer(4, state.current_step)])
