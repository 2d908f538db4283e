"""The page of a run while it is trained: written again at each test, at a small cost, and at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minicaffe.report import make, record, sections
from minicaffe.report.study import Limits, Study
from minicaffe.solver import Solver

SHARE = 20  # looking into the net takes at most one part in so many of the time
WHILE = Limits(seconds=2, timing=False)
AFTER = Limits(seconds=10)


class Follower:
    """Writes report.html into a run's folder; never stops the training: what fails is told by `say`."""

    def __init__(self, folder: str | Path, say: Callable[[str], Any]):
        self.folder, self.say = Path(folder), say
        self.study: Study | None = None
        self.parts: list[dict[str, Any]] = []
        self.looked, self.cost = 0.0, 0.0

    def write(self, solver: Solver) -> None:
        """Write the page of what the folder now holds, with the net as it now is.

        The net is looked into while that takes less than 1 / SHARE of the time; else what was seen before
        stays. When the run's state is no longer `running` there is more time.
        """
        try:
            one = record.read(self.folder)
            over = one.about.get("state") != "running"
            start = time.perf_counter()
            if over or start - self.looked > SHARE * self.cost:
                self.look(solver, AFTER if over else WHILE)
                self.looked = time.perf_counter()
                self.cost = self.looked - start
            make.save(
                self.folder / "report.html", make.data_of([one], [solver.net.spec], self.parts)
            )
        except Exception as error:  # a page is never worth a run
            text = " ".join(str(error).split()) or type(error).__name__
            self.say(f"no report of iteration {solver.iteration}: {text}; training goes on")

    def look(self, solver: Solver, limits: Limits) -> None:
        """See what the sections see of the net whose weights the solver now has."""
        source = solver.test_nets[0] if solver.test_nets else solver.net
        if self.study is None:
            given = solver.net.spec, lambda net: net.share_with(source), "", solver.device, limits
            self.study = Study(*given, dtype=solver.net.context.dtype)
        told = f"weights of iteration {solver.iteration:,}"
        self.study.again(told, limits)
        with solver.averaged():
            self.parts = sections.all_of(self.study)
