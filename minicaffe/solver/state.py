"""A solver's state in a snapshot: taken, found again, checked, put back."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe import weights
from minicaffe.checkpoint import Reader, check_finite
from minicaffe.errors import CheckpointError

if TYPE_CHECKING:
    from minicaffe.solver.solver import Solver

COUNTS = ("@iteration", "@seed", "@recorded")


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


def collect(solver: Solver) -> dict[str, Any]:
    """What, beside the parameters, decides how training goes on; all names begin with @."""
    names = weights.named(solver.net)
    host = solver.device.to_host
    state = {
        f"@history/{name}": host(h) for name, h in zip(names, solver.rule.history, strict=True)
    }
    counts = (solver.iteration, solver.net.context.seed, solver.recorded)
    state |= {name: np.array(count) for name, count in zip(COUNTS, counts, strict=True)}
    return {**state, "@losses": host(solver.losses)}


def restore(solver: Solver, file: str | Path) -> None:
    """Put a snapshot back. Raises CheckpointError, before any change, if it is not one of this net."""
    with Reader(file) as reader:
        params = weights.named(solver.net)
        for name, param in params.items():
            if reader.shapes.get(f"@history/{name}") != param.shape:
                raise CheckpointError(f"{file}: has no history for {name} of shape {param.shape}")
        arrays = {name: reader[name] for name in reader.shapes}
    for name, array in arrays.items():
        if array.dtype.kind not in ("iu" if name in COUNTS else "f"):
            raise CheckpointError(f"{file}: entry {name!r} holds {array.dtype}")
    for name, param in params.items():  # history is of 32 bits at least
        entry, dtype = f"@history/{name}", np.result_type(param.dtype, np.float32)
        check_finite(arrays[entry], dtype, f"{file}: entry {entry!r}")
    for name in COUNTS:
        if name not in arrays or arrays[name].shape != () or not 0 <= arrays[name] < 2**62:
            raise CheckpointError(f"{file}: entry {name!r} is missing or no count")
    if "@losses" not in arrays or arrays["@losses"].ndim != 1:
        raise CheckpointError(f"{file}: entry '@losses' is missing or no list")
    weights.load(solver.net, arrays, strict=True, origin=str(file))
    for name, history in zip(params, solver.rule.history, strict=True):
        solver.device.copy_from_host(history, arrays[f"@history/{name}"])
    solver.iteration, seed, solver.recorded = (int(arrays[name]) for name in COUNTS)
    if arrays["@losses"].shape == solver.losses.shape:
        solver.device.copy_from_host(solver.losses, arrays["@losses"])
    else:  # another average_loss than before: the window begins anew
        solver.losses.fill(0)
        solver.recorded = 0
    for net in (solver.net, solver.test_net):
        if net is not None:
            net.context.seed = seed
    solver.saved = solver.iteration
