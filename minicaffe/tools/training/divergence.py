"""An iteration that diverged: computed again, its first number that is not finite found, said and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minicaffe.core.solver import saving
from minicaffe.errors import CheckpointError, DivergedError
from minicaffe.tools.training import nan_diagnosis as culprit
from minicaffe.tools.training.batches import Batches, Pass, entries
from minicaffe.tools.visualize.ranges import Look

FILE = "diverged.npz"
RUNNING = "@running/"  # of its entries: what a layer's forward passes change for good, and no parameter is


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
    begun, base_lr = iteration > 0, solver.spec.base_lr
    text = culprit.text(look, batches.passes, loss, solver.rate, begun, base_lr, again)
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
