"""An iteration that diverged: computed again, its first number that is not finite found, said and saved."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step
from minicaffe.core.solver import saving
from minicaffe.errors import CheckpointError, DivergedError
from minicaffe.tools.training import nan_diagnosis as culprit
from minicaffe.tools.visualize.ranges import Look, Watching, When

FILE = "diverged.npz"
RUNNING = "@running/"  # of its entries: what a layer's forward passes change for good, and no parameter is
NAME = "@batch/"  # of the others: @batch/0/data is blob data of the first pass
Pass = dict[str, np.ndarray]


class Batches(Watching):
    """Within it, what the layers without bottoms or parameters give a net in each pass is kept in `passes`.

    With `given`, as many passes, they are Inputs, and each pass is given that.
    """

    def __init__(self, net: Net, given: Sequence[Mapping[str, np.ndarray]] = ()):
        self.net, self.given, self.passes, self.begun = net, given, list[Pass](), 0
        super().__init__()

    def __enter__(self) -> Batches:
        sources = [step for step in self.net.steps if not step.bottoms and not step.layer.params]
        when: When = "before_forward" if self.given else "after_forward"
        for i, step in enumerate(sources):
            self.watch(step, when, self._watcher(step, i == 0))
        return self

    def _watcher(self, step: Step, begins: bool) -> Any:
        def watcher() -> None:
            self.begun += begins
            if self.given:
                for value in step.tops:
                    if (array := self.given[self.begun - 1].get(value.name)) is not None:
                        self.net.device.copy_from_host(value.blob.data, array)
                return
            if begins:
                self.passes.append({})
            for value in step.tops:
                self.passes[-1][value.name] = np.array(self.net.device.to_host(value.blob.data))

        return watcher


def entries(passes: Sequence[Pass]) -> dict[str, np.ndarray]:
    """Batches as entries of a file; of 16 bits in float32.

    >>> list(entries([{"data": np.ones(2)}]))
    ['@batch/0/data']
    """
    return {
        f"{NAME}{i}/{name}": array.astype(np.float32) if array.itemsize == 2 else array
        for i, one in enumerate(passes)
        for name, array in one.items()
    }


def of_file(arrays: Mapping[str, np.ndarray]) -> list[Pass]:
    """The batches among the entries of a file.

    >>> of_file({"@batch/0/data": 1, "ip__0": 2})
    [{'data': 1}]
    """
    passes: dict[int, Pass] = {}
    for name, array in arrays.items():
        number, _, blob = name.removeprefix(NAME).partition("/")
        if name.startswith(NAME) and number.isdecimal():
            passes.setdefault(int(number), {})[blob] = array
    return [passes[i] for i in sorted(passes)]


def as_inputs(spec: NetSpec, batch: Mapping[str, np.ndarray]) -> NetSpec:
    """A model whose layers that gave this batch are Inputs of its shapes: its data need not be there."""

    def given(layer: LayerSpec) -> LayerSpec:
        reads = bottom_counts(REGISTRY[layer.type])[1] > 0
        if reads or not layer.tops or any(top not in batch for top in layer.tops):
            return layer
        shapes = tuple(BlobShape(dim=batch[top].shape) for top in layer.tops)
        new: dict[str, Any] = {"type": "Input", "options": {"shape": shapes}, "nodes": {}}
        return dataclasses.replace(layer, **new)

    return dataclasses.replace(spec, layers=tuple(map(given, spec.layers)))


def raise_diverged(solver: Any, iteration: int, loss: float, before: bool = False) -> NoReturn:
    """Compute an iteration again, find what is not finite, save it, and raise DivergedError.

    With `before` it has not begun: its weights are at fault.
    """
    watch, communicator = solver._watch, solver.communicator
    if not before:
        watch.put_back()
    watch.reset()
    solver.iteration = iteration
    try:
        looked = Look(solver.net, check=True), Batches(solver.net), np.errstate(all="ignore")
        with looked[0] as look, looked[1] as batches, looked[2]:
            solver._iteration.gradient(solver._now)
    finally:
        watch.put_back()
        again = float(solver.device.to_host(watch.loss)[0])
        watch.losses.fill(0)  # the window begins anew
        solver._iteration.recorded = 0
    text = culprit.text(solver, look, batches.passes, loss, again)
    found = communicator.allgather_obj((look.first_bad() is not None, text))
    rank = next((i for i, (seen, _) in enumerate(found) if seen), 0)
    head = f"rank {rank}: " if communicator.size > 1 else ""
    if solver._ranks is not None:
        solver._ranks.before_snapshot()
    path = _save(solver, batches.passes) if rank == communicator.rank else None
    path = communicator.allgather_obj(path)[rank]
    folder = solver._record_folder
    saved = "" if path is None else f"; minicaffe replay {folder or path} shows all of it"
    error = DivergedError(f"iteration {iteration}: {head}{found[rank][1]}{saved}")
    error.path, error.everywhere = path, communicator.size > 1
    raise error


def _save(solver: Any, passes: list[Pass]) -> Path | None:
    """Write what the iteration needs to be computed again; what cannot be written is told."""
    folder = solver._record_folder
    path = Path(f"{solver._saving.prefix}_{FILE}") if folder is None else Path(folder, FILE)
    running = {
        f"{RUNNING}{step.spec.name}__{i}": solver.device.to_host(array)
        for step in solver.net.steps
        for i, array in enumerate(step.layer.running)
    }
    try:
        saving.write(solver, path, {**running, **entries(passes)})
    except CheckpointError as error:
        solver.report.failed(f"the iteration that diverged: {error}")
        return None
    return path
