"""An iteration that fails leaves all but blobs as it was, unless its update has begun."""

from __future__ import annotations

from typing import Any

from minicaffe.core.ops.nan_guard import DONE
from minicaffe.errors import TrainingError


class Undone:
    """A context of an Iteration of a solver: what fails before the update is undone, gradients are stale.

    An update that has begun cannot be undone; where that fails, the iteration is `torn`. Raises TrainingError
    if it is already.
    """

    def __init__(self, iteration: Any):
        self.iteration = iteration

    def __enter__(self) -> None:
        iteration = self.iteration
        if iteration.torn:
            raise TrainingError(
                f"the update of iteration {iteration.number} was interrupted, and cannot be gone on from:"
                " restore a snapshot"
            )
        watch, self.recorded, iteration.copied = iteration.watch, iteration.recorded, False
        self.at_hand, self.slot = watch.at_hand, self.recorded % len(watch.losses)
        # How many updates were taken, and the loss whose place is taken; on CUDA that would be waited for
        if self.at_hand is not None:
            self.done, self.oldest = self.at_hand.flags[DONE], self.at_hand.losses[self.slot]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        iteration, at_hand = self.iteration, self.at_hand
        taken = at_hand is not None and at_hand.flags[DONE] != self.done
        iteration.torn = taken and not iteration.updated
        if taken or iteration.updated:
            return
        iteration.recorded = self.recorded
        if at_hand is not None:
            at_hand.losses[self.slot] = self.oldest
        net = iteration.net
        if iteration.copied:
            iteration.watch.take_back((self.recorded - 1) % len(iteration.watch.losses))
            net.context.passes = iteration.number * iteration.spec.iter_size
        net.memory.sharing.forget()
        net.context.refused.fill(0)
        for param in net.learnable:
            param.stale = True
