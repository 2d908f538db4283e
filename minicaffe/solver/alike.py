"""Whether the ranks of a run are of one mind: model, data, version, settings; and one state to begin with."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from minicaffe import __version__
from minicaffe.errors import CheckpointError, MinicaffeError, SpecError
from minicaffe.layers.fed import Fed
from minicaffe.net import Net
from minicaffe.net.model import text
from minicaffe.solver.compare import left_behind

LOOKED_AT = 16  # entries of a data set that is not in memory


def check_alike(solver: Any) -> None:
    """Raise SpecError, on all ranks, unless all have the same; and for a net that cannot be in parts."""
    agreed = solver.communicator.allgather_obj((facts(solver), refused(solver.net)))
    for _, why in agreed:
        if why:
            raise everywhere(SpecError(why))
    for rank, (theirs, _) in enumerate(agreed):
        for what, value in agreed[0][0].items():
            if theirs[what] != value:
                told = f": {theirs[what]}, not {value}" if len(f"{value}") < 40 else ""
                raise everywhere(SpecError(f"rank {rank} has another {what} than rank 0{told}"))


def refused(net: Net) -> str:
    """Why several ranks cannot have a part of each batch of a net, if they cannot."""
    for step in net.steps:
        layer = step.layer
        if layer.mixes_samples:
            return f"{step.place}: takes samples of a batch together, which lie on several ranks"
        if layer.sizes_vary:
            return f"{step.place}: the size of a top varies, and with it what a rank's part is"
        if not step.bottoms and not layer.params and not layer.takes_share:
            return (
                f"{step.place}: gives every rank the same batch; a layer of one's own gives the samples that "
                "self.context.share.of(batch_size) tells, and says takes_share = True"
            )
    return "" if net.context.share.told else "no layer of the phase TRAIN gives a batch to share"


def facts(solver: Any) -> dict[str, Any]:
    """What must be the same on all ranks, by its name; of what is long a digest."""
    net, spec = solver.net, solver.net.spec
    model = dataclasses.replace(spec, solver=dataclasses.replace(solver.spec, snapshot_prefix=None))
    found = {
        "version of minicaffe": __version__,
        "version of NumPy": np.__version__,
        "model": digest(text(model, spec.beside or ".").encode()),
        "dtype": net.context.dtype.name,
        "seed": net.context.seed,
        "engine": net.context.engine,
        "batch_per_rank": net.context.share.per_rank,
        "reduce_dtype": solver.ranks.rounding is not None,
        "device": "cuda" if solver.device.is_cuda else "cpu",
    }
    for each in (net, *solver.test_nets):
        for name, layer in each.layers.items():
            if isinstance(layer, Fed):
                found[f"data set for layer {name!r} of {each.phase}"] = of_data(layer)
    return found


def of_data(layer: Fed) -> str:
    """A digest of a data set: of all of it in memory, else of its size and some entries."""
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
    if solver.alike:
        return
    at = solver.communicator.allgather_obj(solver.iteration)
    for rank, iteration in enumerate(at):
        if iteration != at[0]:
            told = f"rank {rank} goes on from iteration {iteration}, rank 0 from {at[0]}"
            raise everywhere(CheckpointError(told))
    for array in left_behind(solver).values():
        solver.communicator.bcast(array)
    solver.alike = True


def everywhere(error: MinicaffeError) -> MinicaffeError:
    """An error that all ranks raise."""
    error.everywhere = True
    return error
