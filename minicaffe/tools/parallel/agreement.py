"""Whether several ranks can train a net, each with a part of the batch, and are of one mind.

No layer may take samples of a batch together; model, data, version and settings are compared, and all begin
with one state.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from minicaffe import __version__
from minicaffe.backends.device import PRECISIONS
from minicaffe.backends.replay.inference import OURS
from minicaffe.backends.replay.training import left_behind
from minicaffe.core.communicator import Communicator
from minicaffe.core.config.declare import State
from minicaffe.core.layers.base import canonical_axis
from minicaffe.core.net import Net
from minicaffe.core.net.model import text
from minicaffe.core.net.step import Step, Value
from minicaffe.errors import CheckpointError, MinicaffeError, ShapeError, SpecError
from minicaffe.tools.data.layers.hdf5_data import HDF5Data
from minicaffe.tools.data.layers.pictures import Fed
from minicaffe.tools.data.layers.window_data import WindowData

LOOKED_AT = 16  # entries of a data set that is not in memory
ACROSS = ("Reduction", "Reshape")  # whose first axis may be the batch: see below


def refused(net: Net, whole: Net) -> str:
    """Why they cannot, if so; `whole` has the shapes of a net with all of the batch."""
    of_batch: set[Value] = set()
    for step, other in zip(net.steps, whole.steps, strict=True):
        layer, ours = step.layer, type(step.layer).__module__.startswith(OURS)
        own = not ours or step.spec.type == "Python"
        if not step.bottoms and not layer.params and not layer.traits.takes_share:
            return (
                f"{step.place}: gives every rank the same batch; a layer of one's own gives the samples that "
                "self.context.share.of(batch_size) tells, and says traits = Traits(takes_share=True)"
            )
        if layer.traits.takes_share or any(value in of_batch for value in step.bottoms):
            of_batch |= set(step.tops)
            if why := _mixes(step, other, net):
                return f"{step.place}: {why}"
        for value in step.tops:
            if value.loss_weight and value not in of_batch:
                return f"{step.place}: is a loss of no batch, which every rank would add"
            if value.loss_weight and own and not layer.traits.of_whole:
                return (
                    f"{step.place}: a loss of one's own divides by the samples that are here; let it divide "
                    "by self.context.share.of_whole(n), and say traits = Traits(of_whole=True)"
                )
    return "" if net.context.share.told else "no layer of the phase TRAIN gives a batch to share"


def _mixes(step: Step, whole: Step, net: Net) -> str:
    """Why a layer has no part of its own for each rank, if so."""
    layer, share = step.layer, net.context.share
    together = "takes samples of a batch together, which lie on several ranks"
    if layer.traits.sizes_vary:
        return "the size of a top varies, and with it what a rank's part is"
    axis: Any = getattr(layer, "axis", None)
    if layer.traits.mixes_samples or (isinstance(axis, int) and _first(axis, step)):
        return together
    if step.spec.type == "Reduction" and any(top.readers and not top.shape for top in step.tops):
        return together
    batch = share.count if share.per_rank else share.whole
    for value, other in zip(step.tops, whole.tops, strict=True):
        mine, theirs = tuple(value.shape), tuple(other.shape)
        parts = mine[1:] == theirs[1:] and mine[:1] and mine[0] * batch == theirs[0] * share.count
        if mine != theirs and not parts:
            return together
    both = zip(layer.params, whole.layer.params, strict=True)
    return "" if all(one.shape == other.shape for one, other in both) else together


def _first(axis: int, step: Step) -> bool:
    """Whether a layer's axis is the first of a bottom: the batch's."""
    if step.spec.type in ACROSS or not step.bottoms or not step.bottoms[0].shape:
        return False
    try:
        return canonical_axis(axis, step.bottoms[0].shape) == 0
    except ShapeError:  # of another bottom, then
        return False


def check_parts(communicator: Communicator, net: Net, built: State) -> None:
    """Raise SpecError, on all ranks, for a net of which each cannot compute a part of the batch."""

    def why_not() -> str:
        settings = {"dtype": net.context.dtype, "level": built.level, "stages": built.stage}
        whole = Net(net.spec, "TRAIN", device=net.device, shapes_only=True, **settings)
        return refused(net, whole)

    if why := communicator.bcast_obj(why_not() if communicator.rank == 0 else ""):
        raise SpecError(why).on_all()


def check_alike(solver: Any) -> None:
    """Raise SpecError, on all ranks, unless all have the same."""
    agreed = solver.communicator.allgather_obj(facts(solver))
    for rank, theirs in enumerate(agreed):
        for what, value in agreed[0].items():
            if theirs[what] != value:
                values = f": {theirs[what]}, not {value}" if len(f"{value}") < 30 else ""
                raise SpecError(f"rank {rank} has another {what} than rank 0{values}").on_all()


def facts(solver: Any) -> dict[str, Any]:
    """What must be the same on all ranks, by its name; of what is long a digest."""
    net, spec = solver.net, solver.net.spec
    shapes = {name: param.shape for name, param in net.named_params.items()}
    model = dataclasses.replace(spec, solver=dataclasses.replace(solver.spec, snapshot_prefix=None))
    compared = {
        "version of minicaffe": __version__,
        "version of NumPy": np.__version__,
        "model": digest(text(model, spec.beside or ".").encode()),
        "dtype": net.context.dtype.name,
        "precision": PRECISIONS[net.device.tf32],
        "seed": net.context.seed,
        "engine": net.context.numerics.engine,
        "batch_per_rank": net.context.share.per_rank,
        "reduce_dtype": solver.ranks.rounding is not None,
        "device": "cuda" if solver.device.is_cuda else "cpu",
        "shapes of parameters": digest(str(shapes).encode()),
    }
    for each in (net, *solver.test_nets):
        for name, layer in each.layers.items():
            if isinstance(layer, (Fed, HDF5Data, WindowData)):
                compared[f"data set for layer {name!r} of {each.phase}"] = of_data(layer)
    return compared


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
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()


def begin_alike(solver: Any) -> None:
    """Have all ranks begin with rank 0's state. Raises CheckpointError if they are not at one iteration.

    Once, until a snapshot is restored.
    """
    if solver._alike:
        return
    at = solver.communicator.allgather_obj(solver.iteration)
    for rank, iteration in enumerate(at):
        if iteration != at[0]:
            problem = f"rank {rank} goes on from iteration {iteration}, rank 0 from {at[0]}"
            raise CheckpointError(problem).on_all()
    solver.ranks.before_snapshot()
    parts = solver.net, solver.rule, solver.watch, solver.average
    for array in left_behind(*parts).values():
        solver.communicator.bcast(array)
    solver._alike = True
