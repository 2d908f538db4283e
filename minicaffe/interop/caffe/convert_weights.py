"""Arrays from one file format to another: weights, a solver's state, a mean image."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.config import tree
from minicaffe.core.net import model
from minicaffe.core.net.model import MODEL, text_among
from minicaffe.errors import CheckpointError
from minicaffe.interop.caffe import state, weights
from minicaffe.storage import checkpoint, safetensors_file, wire

WEIGHTS = (*model.OURS, *weights.ENDINGS)
STATES, BLOBS = weights.STATES, (".npy", ".binaryproto")


def convert_weights(source: str | Path, target: str | Path) -> str:
    """Write what one file holds as another, told by their names; returns a line of what was done.

    Weights: .npz, .safetensors, .caffemodel, .caffemodel.h5. A solver's state: .solverstate,
    .solverstate.h5. One array: .npy, .binaryproto. The numbers stay the same to the bit, but for bfloat16,
    which becomes float32; a snapshot's state is left out of weights. Raises CheckpointError for other names,
    and for a file that is not whole.
    """
    kind = kind_of(source)
    if kind is None or kind_of(target) != kind:
        raise CheckpointError(
            f"{source} cannot become {target}: weights are {', '.join(WEIGHTS)}; "
            f"a solver's state {', '.join(STATES)}; one array {', '.join(BLOBS)}"
        )
    if kind == "weights":
        done = _convert_arrays(source, target)
    elif kind == "state":
        solver = state.read(source)
        state.write(target, solver)
        done = f"iteration {solver.iteration}, {len(solver.history)} arrays of history"
    else:
        array = read_blob(source)
        write_blob(target, array)
        done = f"{array.dtype} of {array.shape}"
    return f"{source} -> {target}: {done}"


def kind_of(path: str | Path) -> str | None:
    """What a file holds, by its name: weights, state or blob; None for any other.

    >>> kind_of("a.caffemodel.h5"), kind_of("a.solverstate.h5"), kind_of("mean.npy"), kind_of("a.yaml")
    ('weights', 'state', 'blob', None)
    """
    name = str(path).lower()
    ends = (("state", STATES), ("weights", WEIGHTS), ("blob", BLOBS))
    return next((kind for kind, endings in ends if name.endswith(endings)), None)


def read_blob(path: str | Path) -> np.ndarray:
    """The array of a .binaryproto or .npy file. Raises CheckpointError."""
    return checkpoint.read_npy(path) if str(path).lower().endswith(".npy") else wire.read_blob(path)


def write_blob(path: str | Path, array: np.ndarray) -> None:
    """Write an array of numbers to a .binaryproto or .npy file, atomically."""
    if array.dtype.kind not in "fiu":
        raise CheckpointError(f"{path}: holds numbers, not {array.dtype}")
    if str(path).lower().endswith(".npy"):
        checkpoint.replace(path, lambda file: np.save(file, array))
    else:
        weights.write_message(path, wire.blob_parts(array))


def _convert_arrays(source: str | Path, target: str | Path) -> str:
    arrays = _arrays(source, target)
    if weights.is_caffes(target):
        layers = _layers(source, arrays)
        weights.write(target, layers)
        return f"{sum(len(layer.blobs) for layer in layers)} arrays of {len(layers)} layers"
    for name in arrays:
        if "\\" in name and not safetensors_file.is_one(target):
            raise CheckpointError(f"{target}: an .npz has no place for the name {name!r}")
    model.write(target, arrays, _name(source, arrays))
    return f"{len(arrays.keys() - {MODEL})} arrays" + " and the net's text" * (MODEL in arrays)


def _arrays(source: str | Path, target: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, and its net's text."""
    ending = os.path.splitext(source)[1].lower()
    if ending == os.path.splitext(target)[1].lower():
        hint = "; --model NET writes them as its" if ending in weights.ENDINGS else ""
        raise CheckpointError(f"{source} and {target} are of one format: nothing to convert{hint}")
    with model.opened(source) as reader:
        return {name: reader[name] for name in reader.shapes if name[:1] != "@" or name == MODEL}


def _layers(source: str | Path, arrays: dict[str, np.ndarray]) -> list[weights.Layer]:
    """Arrays as layers of types that are not known."""
    layers: dict[str, dict[int, Any]] = {}
    for name, array in arrays.items():
        if name == MODEL:
            continue
        layer, _, number = name.rpartition("__")
        if not layer or not number.isdecimal() or array.dtype.kind not in "fiu":
            raise CheckpointError(f"{source}: entry {name!r} is no parameter of a layer")
        layers.setdefault(layer, {})[int(number)] = array
    for layer, blobs in layers.items():
        if sorted(blobs) != list(range(len(blobs))):
            raise CheckpointError(f"{source}: layer {layer!r} lacks some of its parameters")
    return [weights.Layer(name, "", dict(sorted(layers[name].items()))) for name in layers]


def _name(source: str | Path, arrays: dict[str, np.ndarray]) -> str:
    """The name of the net whose text is among the arrays. Raises SpecError for what is no such text."""
    if MODEL not in arrays:
        return ""
    text = text_among(arrays, {MODEL: arrays[MODEL].shape}, source)
    root = tree.parse(text, f"{source}: {MODEL}")
    name = root.value.get("name") if isinstance(root.value, dict) else None
    return name.value if name is not None and isinstance(name.value, str) else ""
