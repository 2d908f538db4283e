"""An iteration that fails leaves all but blobs as it was, unless its update has begun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minicaffe.core.ops.nan_guard import DONE
from minicaffe.errors import TrainingError


@contextmanager
def undone_if_it_fails(of: Any) -> Iterator[None]:
    """A context of an Iteration `of` a solver: what fails before the update is undone, gradients are stale.

    An update that has begun cannot be undone; where that fails, the iteration is `torn`. Raises TrainingError
    if it is already.
    """
    if of.torn:
        raise TrainingError(
            f"the update of iteration {of.number} was interrupted, and cannot be gone on from: restore a"
            " snapshot"
        )
    watch, net, recorded = of.watch, of.net, of.recorded
    at_hand, slot, of.copied = watch.at_hand, recorded % len(watch.losses), False
    # How many updates were taken, and the loss whose place is taken; on CUDA that would be waited for
    done, oldest = (at_hand.flags[DONE], at_hand.losses[slot]) if at_hand is not None else (0, 0.0)
    try:
        yield
    except BaseException:
        taken = at_hand is not None and at_hand.flags[DONE] != done
        of.torn = taken and not of.updated
        if taken or of.updated:
            raise
        of.recorded = recorded
        if at_hand is not None:
            at_hand.losses[slot] = oldest
        if of.copied:
            watch.take_back((recorded - 1) % len(watch.losses))
            net.context.passes = of.number * of.spec.iter_size
        net.memory.sharing.forget()
        net.context.refused.fill(0)
        for param in net.learnable:
            param.stale = True
        raise
