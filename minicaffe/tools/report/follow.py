"""The page of a run while it is trained: written again at each test, at a small cost, and at the end."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.interrupt import Held
from minicaffe.core.solver import Report, Solver
from minicaffe.errors import reason
from minicaffe.tools.report import make, sections
from minicaffe.tools.report.study import Limits, Study
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.speed import Speed

SHARE = 20  # looking into the net takes at most one part in so many of the time
WHILE = Limits(seconds=2, timing=False)
AFTER = Limits(seconds=10)


class Follower(Report):
    """Writes report.html into a run's folder; never stops the training: what fails is told by `say`.

    It hears of a test after the run's record has. The time it takes does not count on `clocks`.
    """

    def __init__(self, say: Callable[[str], Any]):
        self.say, self.clocks = say, list[Speed]()
        self.solver: Solver | None = None
        self.study: Study | None = None
        self.parts: list[dict[str, Any]] = []
        self.looked, self.cost = 0.0, 0.0

    def begin(self, solver: Solver, folder: Path, clocks: Sequence[Speed] = ()) -> None:
        """Training starts."""
        self.solver, self.folder, self.clocks = solver, folder, list(clocks)
        self.page()

    def line(self, text: str) -> None:
        """What is only shown."""

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """A test is done, and stands in the log."""
        self.page()
        for clock in self.clocks:
            clock.skip(iteration)

    def end(self) -> None:
        """Training has ended, and run.json says how."""
        self.page()

    def page(self) -> None:
        """Write the page of what the folder now holds, with the net as it now is.

        The net is looked into while that takes less than 1 / SHARE of the time, and once more when training
        has finished; else what was seen before stays.
        """
        solver = self.solver
        assert solver is not None, "begin comes first"
        try:
            one = run_folder.read(self.folder)
            start, state = time.perf_counter(), one.about["state"]
            due = start - self.looked > SHARE * self.cost and solver.iteration > 0
            if state == "finished" or (due and state == "running"):
                self.look(solver, AFTER if state == "finished" else WHILE)
                self.looked = time.perf_counter()
                self.cost = self.looked - start
            parts = self.parts or sections.none_of("the net has not been tested yet")
            data = make.data_of([one], [_spec(solver)], parts, own=True)
            make.save(self.folder / "report.html", data)
        except Exception as error:  # a page is never worth a run
            self.say(f"no report of iteration {solver.iteration}: {reason(error)}")

    def look(self, solver: Solver, limits: Limits) -> None:
        """See what the sections see of the net whose weights the solver now has."""
        source = solver.test_nets[0] if solver.test_nets else solver.net
        if self.study is None:
            given = _spec(solver), lambda net: net.share_with(source), "", solver.device, limits
            self.study = Study(*given, dtype=solver.net.context.dtype)
        told = f"weights of iteration {solver.iteration:,}"
        self.study.again(told, limits)
        with Held(), solver.averaged():
            self.parts = sections.all_of(self.study)


def _spec(solver: Solver) -> NetSpec:
    """What is trained, with the solver's settings."""
    return dataclasses.replace(solver.net.spec, solver=solver.spec, precision=solver.net.precision)
