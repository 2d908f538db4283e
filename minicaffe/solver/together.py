"""What a solver asks of the ranks that it trains with, if it is not alone; parallel/ranks.py is that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minicaffe.net.step import Step
from minicaffe.replay.replay import Tape


class SharedUpdate(Protocol):
    """An update of which each rank takes a part, and hands the weights to the others."""

    @property
    def gradients(self) -> Sequence[Any]:
        """This rank's parts of the gradients, flat arrays."""

    @property
    def gathers(self) -> Sequence[Callable[[], object]]:
        """What hands the weights around."""

    def stretches(self, apart: bool) -> Sequence[Any]:
        """This rank's parts of the stretches of parameters (see flat_parameters)."""

    def measure(self, watch: Any) -> None:
        """Measure this rank's parts of the gradients."""


class Together(Protocol):
    """The ranks sum their gradients, and agree on how to go on."""

    late: bool  # whether gradients are summed behind the backward pass
    shared: SharedUpdate | None
    signals: Any  # which may ask this rank to stop or to save
    stop: bool  # whether any rank was asked to stop, and which,
    stopped_by: Sequence[int]
    save: bool  # and whether any was asked to save
    buckets: Sequence[Any]

    def check_alike(self, solver: Any) -> None:
        """Raise SpecError, on all ranks, unless all have the same model, data and settings."""

    def begin_alike(self, solver: Any) -> None:
        """Have all ranks begin with rank 0's state, once."""

    def run(self, work: Callable[[], None]) -> None:
        """Do work of an iteration in which all agree. Raises on all ranks what fails on any."""

    def agree(self) -> None:
        """Exchange what was asked for, and what failed. Raises what failed anywhere."""

    def then(self, step: Step) -> Callable[[], Any] | None:
        """What comes once a layer has run backward: sums that may begin."""

    def start(self, count: int, tape: Tape | None = None) -> None:
        """Begin sums until so many have begun."""

    def loose(self) -> list[Any]:
        """The parameters whose gradients are summed alone."""

    def finish(self, loose: Sequence[Any], tape: Tape | None = None) -> None:
        """Sum what is not summed yet, and wait for all."""

    def share_no_more(self) -> None:
        """Have each rank take the whole update from now on."""

    def before_snapshot(self) -> None:
        """Have all that a snapshot holds be here."""
