"""How training is shown: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe.net.summary import table
from minicaffe.solver.report import Report, show

if TYPE_CHECKING:
    from tqdm import tqdm

    from minicaffe.solver import Solver


class Progress(Report):
    """What a bar and lines have in common: the speed since the last line, tests left out."""

    def begin(self, solver: Solver) -> None:
        """Training starts."""
        self.solver, self.images = solver, images_per_iteration(solver)
        self.since, self.count, self.rate = time.perf_counter(), solver.iteration, 0.0

    def end(self) -> None:
        """Training has ended."""

    def finished(self, warnings: Sequence[str]) -> None:
        """The command prints the warnings beside its table."""

    def speed(self, iteration: int) -> float:
        """Iterations per second since the last call or test; at the same iteration, as before."""
        now, done = time.perf_counter(), iteration - self.count
        if done and now > self.since:
            self.rate = done / (now - self.since)
        self.since, self.count = now, iteration
        return self.rate

    def testing(self, iteration: int) -> None:
        """A test begins."""
        self.speed(iteration)

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """Show the scores; the time of the test does not count into the speed."""
        super().tested(iteration, scores)
        self.since, self.count = time.perf_counter(), iteration


class Lines(Progress):
    """A line every `display` iterations, with the speed and the time left."""

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Show the loss and the speed."""
        text = f"iteration {iteration}: loss = {loss:.6g}, lr = {rate:.6g}"
        if speed := self.speed(iteration):
            left = clock((self.solver.spec.max_iter - iteration) / speed)
            text += f", {speed:.1f} iter/s, {speed * self.images:.0f} images/s, {left} left"
        self.line(text)


class Quiet(Progress):
    """Nothing but what failed: what else must be known stands beside the result."""

    def line(self, text: str) -> None:
        """Say nothing."""

    def failed(self, text: str) -> None:
        """Say what did not succeed."""
        super().line(text)


class Bar(Progress):
    """A bar with loss, learning rate, images/s and the time left."""

    bar: tqdm[Any] | None = None

    def begin(self, solver: Solver) -> None:
        """Open the bar."""
        from tqdm import tqdm

        super().begin(solver)
        self.bar = tqdm(
            total=solver.spec.max_iter,
            initial=solver.iteration,
            dynamic_ncols=True,
            bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
        )

    def end(self) -> None:
        """Close the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def write(self, text: str) -> None:
        """Put a line above the bar."""
        if self.bar is None:
            super().write(text)
        else:
            self.bar.write(text, file=sys.stderr)

    def iterated(self, solver: Solver) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update()

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Put the loss into the bar."""
        if self.bar is not None:
            speed = self.speed(iteration) * self.images
            shown = f", {speed:.0f} images/s" if speed else ""
            self.bar.set_postfix_str(f"loss={loss:.4g}, lr={rate:.4g}{shown}")


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
