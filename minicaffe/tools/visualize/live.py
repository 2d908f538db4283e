"""Training watched from Python: a bar and live curves in a notebook, a bar on a terminal, lines elsewhere."""

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from minicaffe.core.config.declare import check_max_iter
from minicaffe.core.solver import Solver
from minicaffe.core.solver.report import Report, score_name, show
from minicaffe.core.solver.scores import score_suffixes
from minicaffe.tools.data import arrays
from minicaffe.tools.training.progress import Bar, Lines, Progress, Together, clock
from minicaffe.tools.visualize.chart import COLOURS, line_chart, thinned

APART = 0.5  # seconds from one drawing to the next, at least
SHARE = 0.02  # of the time, at most, that drawing may take
SIZE = (520, 280)  # of a chart
LINES = 6  # of failures that stay above the curves, and of events below: the last ones


def fit(solver: Solver, x: Any = None, y: Any = None, validation: Any = None) -> dict[str, Any]:
    """`Solver.fit`: all that `solve` does, and show how far it is, of several ranks on the first."""
    if x is not None or validation is not None:
        arrays.feed(solver, x, y, validation)
    if solver.communicator.rank > 0:
        return solver.solve()
    check_max_iter(solver.spec)
    shown = Figure() if in_notebook() else Bar() if sys.stderr.isatty() else Lines()
    shown.tests_on(score_suffixes(solver.test_nets, solver.net))
    contexts = [net.context for net in (solver.net, *solver.test_nets)]
    report, tells = solver.report, [context.tell for context in contexts]
    shown.begin(solver)
    # Instead of a solver's plain lines; a run's record and a user's own report hear as before
    reports = report.reports if isinstance(report, Together) else [report]
    solver.report = Together(shown, *(one for one in reports if type(one) is not Report))
    for context in contexts:
        context.tell = solver.report.event
    try:
        return solver.solve()
    finally:
        solver.report = report
        for context, tell in zip(contexts, tells, strict=True):
            context.tell = tell
        shown.end()


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this: it can show pictures, and replace them."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return any(cls.__name__ == "ZMQInteractiveShell" for cls in type(shell).__mro__)


class Figure(Progress):
    """A bar, the curves of loss and scores, and the last events, below a notebook's cell.

    It is drawn anew in place, at most twice a second, and never asks the device: the curves are those of
    `solver.log`.
    """

    def begin(self, solver: Solver) -> None:
        """Show the figure."""
        from IPython.display import display

        super().begin(solver)
        self.warnings: Sequence[str] = ()
        self.failures, self.lines = deque[str](maxlen=LINES), deque[str](maxlen=LINES)
        self.loss = self.doing = ""
        self.rate, self.start = 0.0, time.perf_counter()  # iterations a second, and since when
        self.due = self.start + APART
        self.handle = display(self, display_id=True)

    def end(self) -> None:
        """Draw it as it stays."""
        solver, seconds = self.solver, clock(time.perf_counter() - self.start)
        early = solver.iteration < (solver.spec.max_iter or 0) and not solver.ended
        self.doing = f"{'stopped' if early else 'done'} after {seconds}"
        self.handle.update(self)

    def draw(self) -> None:
        """Draw it anew, if that is due."""
        start = time.perf_counter()
        if start >= self.due:
            if not self.doing:
                self.rate = self.speed.at(self.solver.iteration)
            self.handle.update(self)
            end = time.perf_counter()
            self.due = end + max(APART, (end - start) / SHARE)

    def write(self, text: str) -> None:
        """Put a line below the curves."""
        self.lines.append(text)
        self.draw()

    def failed(self, text: str) -> None:
        """What failed stays above the curves."""
        self.failures.append(text)
        self.draw()

    def started(self, warnings: Sequence[str]) -> None:
        """The warnings stay above the curves."""
        self.warnings = warnings

    def iterated(self, solver: Solver) -> None:
        """Move the bar."""
        self.draw()

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Put the loss above the curves, which have it from the solver's log."""
        self.loss = f"loss {loss:.4g}, lr {rate:.4g}"
        self.draw()

    def testing(self, iteration: int) -> None:
        """Say why the bar does not move."""
        super().testing(iteration)
        self.doing = "testing"
        self.draw()

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """The curves have the scores from the solver's log."""
        self.speed.skip(iteration)
        self.doing = ""
        self.draw()

    def __repr__(self) -> str:
        return f"{self.solver.net.name or 'net'}: {self.state()}"

    def state(self) -> str:
        """How far training is, in a line."""
        solver = self.solver
        scores = {name: score for name, score in solver.scores.items() if np.size(score) == 1}
        parts = [f"iteration {solver.iteration} of {solver.spec.max_iter}", self.loss]
        parts += [f"{self._label(name)} {show(score)}" for name, score in scores.items()]
        if self.rate and not self.doing:
            left = clock(((solver.spec.max_iter or 0) - solver.iteration) / self.rate)
            parts.append(f"{self.rate * self.images:,.0f} images/s, {left} left")
        return "; ".join(filter(None, [*parts, self.doing, solver.ended]))

    def _label(self, name: str) -> str:
        """A score's name, as lines have it."""
        return f"{'test ' * (not any(self.suffixes))}{score_name(name, self.suffixes)}"

    def _repr_html_(self) -> str:
        solver, below = self.solver, "\n".join(self.lines)
        texts = [f"<p><b>{escape(warning)}</b></p>" for warning in (*self.warnings, *self.failures)]
        bar = f'<progress value="{solver.iteration}" max="{solver.spec.max_iter or 1}"'
        bar += f' style="width:100%;max-width:{2 * SIZE[0]}px"></progress>'
        charts = f'<div style="display:flex;flex-wrap:wrap">{"".join(self._charts())}</div>'
        events = [f"<pre>{escape(below)}</pre>"] if below else []
        state = f"<p>{escape(self.state())}</p>"
        return "\n".join([f"<div>{bar}", state, *texts, charts, *events, "</div>"])

    def _charts(self) -> list[str]:
        """Losses in one chart, other scores of one number in a second."""
        log = self.solver.log
        iterations, columns = log.aligned()
        losses, scores = {"loss": columns["loss"]}, dict[str, np.ndarray]()
        names = {value.name for value in self.solver.net.graph.losses} | {"total loss"}
        for name, column in columns.items():
            score = name.removeprefix("test_")
            if score != name and name in log:
                known = {score, score.partition("/")[2]} & names  # the latter of several test nets
                (losses if known else scores)[self._label(score)] = column
        charts = []
        for title, lines in (("loss", losses), ("scores", scores)):
            if len(points := thinned(lines)):
                drawn = {name: line[points] for name, line in lines.items()}
                plain: Any = {"logarithmic": False, "alone": False, "size": SIZE}
                axes = iterations[points], drawn, title, "iteration"
                charts.append(line_chart(*axes, **plain, colours=COLOURS[1:]))
        return charts
