"""What a solver does so that all numbers stay finite: it looks, finds the first that is not, and says so."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from minicaffe.backend import on_its_device
from minicaffe.errors import CheckpointError, DivergedError
from minicaffe.net.look import Look
from minicaffe.solver import culprit
from minicaffe.solver.batches import Batches, Pass, entries
from minicaffe.solver.nan_guard import Told, Watch
from minicaffe.solver.saving import Saving

FILE = "diverged.npz"
RUNNING = "@running/"  # of its entries: what a layer's forward passes change for good, and no parameter is


class Finite(Saving):
    """The part of a Solver that stops at the first loss, gradient or weight that is no finite number."""

    _watch: Watch
    _watched: Told  # by the watch, when it was last read
    _record_folder: str | Path | None = None  # of the run: there diverged.npz goes

    @property
    def rate(self) -> float:
        """The learning rate of the next iteration."""
        raise NotImplementedError

    def _run_passes(self) -> None:
        """Forward and backward over the batches of an iteration."""
        raise NotImplementedError

    @on_its_device
    def loss(self) -> float:
        """The loss averaged over the last average_loss iterations; waits for the device.

        Raises DivergedError at the first iteration whose loss or gradient was no finite number, however long
        ago, and if the weights are not: then parameters and state are as when it began, `iteration` is
        that one, and what is needed to compute it again has been saved. Where a layer knows the cause,
        such as a label that is none, it raises its own MinicaffeError.
        """
        self._watch.weigh(self.rule.weights)
        self._watched = self._watch.told(self.device)
        loss = float(np.mean(self._watched.losses[: max(self._recorded, 1)], dtype=np.float64))
        if self._watched.stopped:
            self._diverged(self._watch.iteration(self._watched), loss)
        if not math.isfinite(loss):
            self._diverged(self.iteration, loss)
        if not (math.isfinite(self._watched.weights + self._watched.running) or self._all_finite()):
            self._diverged(self._watch.last + 1, loss, before=True)
        return loss

    def norms(self) -> tuple[float, float]:
        """The gradient's and the weights' L2 norm when `loss` was last read, of all parameters that learn.

        The gradient is the mean over iter_size batches, before clip_gradients shortens it.
        """
        return self._watched.gradient / self.spec.iter_size, self._watched.weights

    @on_its_device
    def restore(self, path: str | Path, replay: bool = False) -> None:
        """As Saving has it; what the watch found before is of other weights, and forgotten."""
        super().restore(path, replay)
        self._watch.reset()

    def _look(self) -> None:
        """See whether the last iteration was finite, where that needs no waiting for the device."""
        if self._watch.stopped_at_hand():
            self.loss()

    def _all_finite(self) -> bool:
        """Whether it was only the sum of their squares that was not."""
        running = [array for layer in self.net.layers.values() for array in layer.running]
        arrays = map(self.device.to_host, [*self.rule.weights, *running])
        return all(np.isfinite(array).all() for array in arrays)

    def _diverged(self, iteration: int, loss: float, before: bool = False) -> None:
        """Compute an iteration again, find what is not finite, save it, and raise DivergedError.

        With `before` it has not begun: its weights are at fault.
        """
        if not before:
            self._watch.put_back()
        self._watch.reset()
        self.iteration = iteration
        try:
            looked = Look(self.net, check=True), Batches(self.net), np.errstate(all="ignore")
            with looked[0] as look, looked[1] as batches, looked[2]:
                self._run_passes()
        finally:
            self._watch.put_back()
            again = float(self.device.to_host(self._watch.loss)[0])
            self._losses.fill(0)  # the window begins anew
            self._recorded = 0
        given = iteration > 0, self.spec.base_lr, again
        text = culprit.text(look, batches.passes, loss, self.rate, *given)
        found = self.communicator.allgather_obj((look.first_bad() is not None, text))
        rank = next((i for i, (seen, _) in enumerate(found) if seen), 0)
        head = f"rank {rank}: " if self.communicator.size > 1 else ""
        if self._ranks is not None:
            self._ranks.before_snapshot()
        path = self._save(batches.passes) if rank == self.communicator.rank else None
        path = self.communicator.allgather_obj(path)[rank]
        folder = self._record_folder
        saved = "" if path is None else f"; minicaffe replay {folder or path} shows all of it"
        error = DivergedError(f"iteration {iteration}: {head}{found[rank][1]}{saved}")
        error.path, error.everywhere = path, self.communicator.size > 1
        raise error

    def _save(self, passes: list[Pass]) -> Path | None:
        """Write what the iteration needs to be computed again; what cannot be written is told."""
        folder = self._record_folder
        path = Path(f"{self._prefix}_{FILE}") if folder is None else Path(folder, FILE)
        running = {
            f"{RUNNING}{step.spec.name}__{i}": self.device.to_host(array)
            for step in self.net.steps
            for i, array in enumerate(step.layer.running)
        }
        try:
            self._write(path, {**running, **entries(passes)})
        except CheckpointError as error:
            self.report.failed(f"the iteration that diverged: {error}")
            return None
        return path
