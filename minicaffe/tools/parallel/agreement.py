"""Whether the ranks of a run are of one mind: model, data, version, settings; and one state to begin with."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from minicaffe import __version__
from minicaffe.backends.device import PRECISIONS
from minicaffe.core.communicator import Communicator
from minicaffe.core.config.state import State
from minicaffe.core.net import Net
from minicaffe.core.net.model import text
from minicaffe.core.solver.compare import left_behind
from minicaffe.errors import CheckpointError, MinicaffeError, SpecError
from minicaffe.tools.data.layers.fed import Fed
from minicaffe.tools.data.layers.hdf5_data import HDF5Data
from minicaffe.tools.data.layers.window_data import WindowData
from minicaffe.tools.parallel.shardable import refused

LOOKED_AT = 16  # entries of a data set that is not in memory


def check_parts(communicator: Communicator, net: Net, built: State) -> None:
    """Raise SpecError, on all ranks, for a net of which each cannot compute a part of the batch."""

    def why_not() -> str:
        given = {"dtype": net.context.dtype, "level": built.level, "stages": built.stage}
        whole = Net(net.spec, "TRAIN", device=net.device, shapes_only=True, **given)
        return refused(net, whole)

    if why := communicator.bcast_obj(why_not() if communicator.rank == 0 else ""):
        raise SpecError(why).on_all()


def check_alike(solver: Any) -> None:
    """Raise SpecError, on all ranks, unless all have the same."""
    agreed = solver.communicator.allgather_obj(facts(solver))
    for rank, theirs in enumerate(agreed):
        for what, value in agreed[0].items():
            if theirs[what] != value:
                told = f": {theirs[what]}, not {value}" if len(f"{value}") < 30 else ""
                raise SpecError(f"rank {rank} has another {what} than rank 0{told}").on_all()


def facts(solver: Any) -> dict[str, Any]:
    """What must be the same on all ranks, by its name; of what is long a digest."""
    net, spec = solver.net, solver.net.spec
    shapes = {name: param.shape for name, param in net.named_params.items()}
    model = dataclasses.replace(spec, solver=dataclasses.replace(solver.spec, snapshot_prefix=None))
    found = {
        "version of minicaffe": __version__,
        "version of NumPy": np.__version__,
        "model": digest(text(model, spec.beside or ".").encode()),
        "dtype": net.context.dtype.name,
        "precision": PRECISIONS[net.device.tf32],
        "seed": net.context.seed,
        "engine": net.context.engine,
        "batch_per_rank": net.context.share.per_rank,
        "reduce_dtype": solver._ranks.rounding is not None,
        "device": "cuda" if solver.device.is_cuda else "cpu",
        "shapes of parameters": digest(str(shapes).encode()),
    }
    for each in (net, *solver.test_nets):
        for name, layer in each.layers.items():
            if isinstance(layer, (Fed, HDF5Data, WindowData)):
                found[f"data set for layer {name!r} of {each.phase}"] = of_data(layer)
    return found


def of_data(layer: Fed | HDF5Data | WindowData) -> str:
    """A digest of a data set: of all of it in memory, else of its size and some entries, or its files'."""
    if isinstance(layer, WindowData):
        return digest(str(layer.windows).encode())
    if isinstance(layer, HDF5Data):
        sizes = [path.stat().st_size for path in layer.paths or ()]
        return digest(str((sizes, layer.rows)).encode())
    reader = layer.reader
    assert reader is not None
    held = getattr(layer.dataset, "images", None)
    if held is not None:
        return digest(np.ascontiguousarray(held).data, layer.dataset.labels.tobytes())
    count = len(reader)
    parts: list[Any] = [str(count).encode()]
    for entry in range(0, count, max(1, count // LOOKED_AT)):
        try:
            picture, label = reader[entry]
        except MinicaffeError as error:  # damaged: for who reads it to tell
            parts.append(type(error).__name__.encode())
        else:
            parts += [np.ascontiguousarray(picture).data, str(label).encode()]
    return digest(*parts)


def digest(*parts: Any) -> str:
    """A digest of bytes.

    >>> digest(b"one", b"two") == digest(b"one", b"too")
    False
    """
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def begin_alike(solver: Any) -> None:
    """Have all ranks begin with rank 0's state. Raises CheckpointError if they are not at one iteration.

    Once, until a snapshot is restored.
    """
    if solver._alike:
        return
    at = solver.communicator.allgather_obj(solver.iteration)
    for rank, iteration in enumerate(at):
        if iteration != at[0]:
            told = f"rank {rank} goes on from iteration {iteration}, rank 0 from {at[0]}"
            raise CheckpointError(told).on_all()
    solver._ranks.before_snapshot()
    parts = solver.net, solver.rule, solver._watch, solver._average
    for array in left_behind(*parts).values():
        solver.communicator.bcast(array)
    solver._alike = True
