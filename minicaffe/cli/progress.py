"""How training is shown: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe.cli.options import table
from minicaffe.solver.report import Report, show

if TYPE_CHECKING:
    from tqdm import tqdm

    from minicaffe.solver import Solver


class Lines(Report):
    """A line every `display` iterations, with the speed since the last one and the time left."""

    def begin(self, solver: Solver) -> None:
        """Training starts."""
        self.solver, self.images = solver, images_per_iteration(solver)
        self.since, self.count = time.perf_counter(), solver.iteration

    def end(self) -> None:
        """Training has ended."""

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Show the loss and the speed."""
        now = time.perf_counter()
        text = f"iteration {iteration}: loss = {loss:.6g}, lr = {rate:.6g}"
        if iteration > self.count:
            speed = (iteration - self.count) / (now - self.since)
            left = (self.solver.spec.max_iter - iteration) / speed
            text += f", {speed:.1f} iter/s, {speed * self.images:.0f} images/s, {clock(left)} left"
        self.since, self.count = now, iteration
        self.line(text)

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """Show the scores; the time of the test does not count into the speed shown next."""
        super().tested(iteration, scores)
        self.since, self.count = time.perf_counter(), iteration


class Bar(Report):
    """A bar with loss, learning rate, images/s and the time left."""

    bar: tqdm[Any] | None = None

    def begin(self, solver: Solver) -> None:
        """Open the bar."""
        from tqdm import tqdm

        self.images, self.start = (
            images_per_iteration(solver),
            (time.perf_counter(), solver.iteration),
        )
        self.shown: dict[str, str] = {}
        self.bar = tqdm(
            total=solver.spec.max_iter, initial=solver.iteration, unit="iter", dynamic_ncols=True
        )

    def end(self) -> None:
        """Close the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def line(self, text: str) -> None:
        """Show a line above the bar."""
        if self.bar is None:
            super().line(text)
        else:
            self.bar.write(text, file=sys.stderr)

    def iterated(self, solver: Solver) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update()

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Put the loss into the bar."""
        if self.bar is not None:
            seconds = max(time.perf_counter() - self.start[0], 1e-9)
            speed = (iteration - self.start[1]) * self.images / seconds
            self.bar.set_postfix_str(f"loss={loss:.4g}, lr={rate:.4g}, {speed:.0f} images/s")


def images_per_iteration(solver: Solver) -> int:
    """Samples that one iteration sees."""
    first = solver.net.steps[0].tops[0].shape
    return (first[0] if first else 1) * solver.spec.iter_size


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss.

    >>> clock(75), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def score_table(scores: Mapping[str, Any]) -> str:
    """Test scores as a table; an array gets a row an entry."""
    rows: list[tuple[str, ...]] = []
    for name, score in scores.items():
        values = np.ravel(score)
        labels = [name] if values.size == 1 else [f"{name}[{i}]" for i in range(values.size)]
        rows += [(label, show(value)) for label, value in zip(labels, values, strict=True)]
    return table(rows, ("test output", "mean"))
