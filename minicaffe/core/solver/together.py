"""The interface of a solver to the other ranks; tools/parallel/ranks.py implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minicaffe.core.net.step import Step


class Parts:
    """The parts of an iteration, each of which is done at once."""

    def do(self, what: str, work: Callable[[], Any]) -> None:
        """Do a part, which has a name."""
        work()

    def sum(
        self, work: Callable[[], Any], what: str = "a sum over ranks", restores: bool = False
    ) -> None:
        """Sum over ranks. `restores`: the work looks at which gradients are stale."""
        work()


class SharedUpdate(Protocol):
    """A sharded update: each rank updates a part, and sends the weights to the others."""

    @property
    def gradients(self) -> Sequence[Any]:
        """This rank's parts of the gradients, flat arrays."""

    def stretches(self, apart: bool) -> Sequence[Any]:
        """This rank's parts of the stretches of parameters (see flat_parameters)."""


class Together(Protocol):
    """The ranks sum their gradients, and agree on how to go on."""

    late: bool  # whether gradients are summed after the backward pass
    shared: SharedUpdate | None
    signals: Any  # they may ask this rank to stop or to save
    stop: bool  # whether any rank was asked to stop, and which
    stopped_by: Sequence[int]
    save: bool  # whether any was asked to save

    def check_alike(self, solver: Any) -> None:
        """Raise SpecError, on all ranks, unless all have the same model, data and settings."""

    def begin_alike(self, solver: Any) -> None:
        """Send rank 0's state to all ranks, once."""

    def run(self, work: Callable[[], None]) -> None:
        """Do work of an iteration on all ranks. An error on one rank is raised on all."""

    def agree(self) -> None:
        """Exchange requests and errors. An error on one rank is raised on all."""

    def then(self, step: Step) -> Callable[[], Any] | None:
        """Called after a layer has run backward: starts the sums that can start."""

    def reduce(self, iteration: Any) -> None:
        """Sum gradients and loss over the ranks, part by part of an iteration."""

    def step(self, iteration: Any) -> None:
        """Do the rule's step, of this rank's part of a sharded update."""

    def share_no_more(self) -> None:
        """From now on each rank does the whole update."""

    def before_snapshot(self) -> None:
        """Collect all that a snapshot holds on this rank."""


def asked(solver: Any, signals: Any) -> bool:
    """True if any rank was asked for a snapshot; also notes whether any was asked to stop."""
    ranks = solver.ranks
    if ranks is None:
        solver._asked_to_stop = signals is not None and signals.asked
        return signals is not None and signals.snapshot_asked()
    solver._asked_to_stop = ranks.stop
    if ranks.stop:
        who = ", ".join(map(str, ranks.stopped_by))
        solver.report.event(f"asked to stop: rank {who} of {solver.communicator.size}")
    return ranks.save
