"""What a solver does so that all numbers stay finite: it looks, finds the first that is not, and says so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.backend import on_its_device
from minicaffe.errors import CheckpointError, DivergedError
from minicaffe.net.look import Look
from minicaffe.solver import culprit, snapshots
from minicaffe.solver.batches import Batches
from minicaffe.solver.saving import Saving
from minicaffe.solver.watch import Told, Watch


class Finite(Saving):
    """The part of a Solver that stops at the first loss, gradient or weight that is no finite number."""

    watch: Watch
    record_folder: str | Path | None = None  # of the run, where diverged.npz goes; else beside the snapshots

    @property
    def rate(self) -> float:
        """The learning rate of the next iteration."""
        raise NotImplementedError

    def passes(self) -> None:
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
        self.watch.weigh(self.rule.weights)
        self.told = self.watch.told(self.device)
        loss = float(np.mean(self.told.losses[: max(self.recorded, 1)], dtype=np.float64))
        if self.told.stopped:
            self._diverged(self.watch.iteration(self.told), loss)
        if not math.isfinite(loss):
            self._diverged(self.iteration, loss)
        if not (math.isfinite(self.told.weights) or self._weights_are_finite()):
            self._diverged(self.watch.last + 1, loss, before=True)
        return loss

    def norms(self) -> tuple[float, float]:
        """The gradient's and the weights' L2 norm when `loss` was last read, of all parameters that learn.

        The gradient is the mean over iter_size batches, before clip_gradients shortens it.
        """
        return self.told.gradient / self.spec.iter_size, self.told.weights

    def look(self) -> None:
        """See whether the last iteration was finite, where that needs no waiting for the device."""
        if self.watch.at_hand and self.watch.flags[STOP]:
            self.loss()

    def _weights_are_finite(self) -> bool:
        return all(np.isfinite(self.device.to_host(weight)).all() for weight in self.rule.weights)

    def _diverged(self, iteration: int, loss: float, before: bool = False) -> None:
        """Compute an iteration again, find what is not finite, save it, and raise DivergedError.

        With `before` it has not begun: its weights are at fault.
        """
        told, net = self.told, self.net
        if not before:
            self.watch.put_back()
            self.recorded -= max(0, self.iteration + (self.watch.asked > 0) - iteration)
        self.iteration, learnt = iteration, bool(told.done) or before
        self.watch.reset()
        start = self._state()
        with Look(net) as look, Batches(net) as batches, np.errstate(all="ignore"):
            self.passes()
        self.watch.put_back()
