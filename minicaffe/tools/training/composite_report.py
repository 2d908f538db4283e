"""Several reports as one: training is shown, recorded and pictured at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minicaffe.core.solver.report import Report


class Together(Report):
    """What it hears, each of `reports` hears, in their order."""

    def __init__(self, *reports: Report):
        self.reports = reports

    def line(self, text: str) -> None:
        """A line is shown."""
        for report in self.reports:
            report.line(text)

    def failed(self, text: str) -> None:
        """Something did not succeed."""
        for report in self.reports:
            report.failed(text)

    def event(self, text: str) -> None:
        """Something happened that the record must tell."""
        for report in self.reports:
            report.event(text)

    def started(self, warnings: Sequence[str]) -> None:
        """Training starts."""
        for report in self.reports:
            report.started(warnings)

    def finished(self, warnings: Sequence[str]) -> None:
        """Training has ended."""
        for report in self.reports:
            report.finished(warnings)

    def iterated(self, solver: Any) -> None:
        """An iteration is done."""
        for report in self.reports:
            report.iterated(solver)

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """The loss was read back."""
        for report in self.reports:
            report.displayed(iteration, loss, rate)

    def tests_on(self, suffixes: Sequence[str]) -> None:
        """What the test nets' scores are of."""
        for report in self.reports:
            report.tests_on(suffixes)

    def testing(self, iteration: int) -> None:
        """A test begins."""
        for report in self.reports:
            report.testing(iteration)

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """A test is done."""
        for report in self.reports:
            report.tested(iteration, scores)

    def saving(self, path: str) -> None:
        """A snapshot is about to be written."""
        for report in self.reports:
            report.saving(path)

    def saved(self, path: str, best: bool = False) -> None:
        """A snapshot was written."""
        for report in self.reports:
            report.saved(path, best)
