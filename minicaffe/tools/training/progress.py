"""How training is shown: a bar on a terminal, lines elsewhere; or by several reports at the same time."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partialmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe.core.layers.softmax import SoftmaxLoss
from minicaffe.core.net.summary import table
from minicaffe.core.solver.report import Report, score_name, show
from minicaffe.errors import MinicaffeError, pip_install
from minicaffe.tools.training.folder import json_line
from minicaffe.tools.training.speed import Speed, epochs, images_per_iteration

if TYPE_CHECKING:
    from tqdm import tqdm

    from minicaffe.core.solver import Solver


class Together(Report):
    """What it hears, each of `reports` hears, in their order."""

    def __init__(self, *reports: Report):
        self.reports = reports

    def _each(self, name: str, *args: Any, **keys: Any) -> None:
        for report in self.reports:
            getattr(report, name)(*args, **keys)


for _name, _method in vars(Report).items():  # all that a solver says; `write` is a report's own
    if callable(_method) and not _name.startswith("_") and _name != "write":
        setattr(Together, _name, partialmethod(Together._each, _name))


FAR = 3  # times the loss of a guess


class Progress(Report):
    """What a bar and lines have in common: the speed without tests; with `rows` a test is a row of a table."""

    rows = headed = False

    def begin(self, solver: Solver) -> None:
        """Training starts; a line says what Numba would bring, where it is missing."""
        self.solver, self.images = solver, images_per_iteration(solver)
        self.speed = Speed(solver.iteration)
        if not solver.device.is_cuda and importlib.util.find_spec("numba") is None:
            self.line(f"by NumPy; Numba trains 1.5 to 3.7 times as fast: {pip_install('cpu')}")

    def end(self) -> None:
        """Training has ended."""

    def finished(self, warnings: Sequence[str]) -> None:
        """The command prints the warnings beside its table."""

    def result(self, text: str) -> None:
        """What training gave, on stdout."""
        if text:
            print(text)

    def code(self) -> int:
        """The exit code, once all is done."""
        return 0

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Remark on a first loss that is far from that of a guess, the logarithm of the number of classes."""
        guess = 0.0
        for value in self.solver.net.losses if iteration == 0 else ():
            one: Any = value.producer
            plain = isinstance(one, SoftmaxLoss) and one.normalization != "NONE"
            guess += value.loss_weight * math.log(one.ncs[1]) if plain else math.nan
        if 0 < FAR * guess < loss:
            self.line(
                f"the first loss is {loss:.4g}; a guess has {guess:.3g}, the logarithm of the number of"
                " classes: are the samples prepared as the net expects (mean, scale, order of channels)?"
            )

    def testing(self, iteration: int) -> None:
        """A test begins."""
        self.speed.at(iteration)

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """Show the scores; the time of the test does not count into the speed."""
        show_test = self.row if self.rows else super().tested
        show_test(iteration, scores)
        self.speed.skip(iteration)

    def row(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """Show a test as a row, the first one below the head of its table."""
        rate, left = self.speed.rate, (self.solver.spec.max_iter or 0) - iteration
        per_epoch = max(1, math.ceil(round(iteration / (epochs(self.solver) or 1), 6)))
        epoch, loss = iteration / per_epoch, self.solver.loss()
        cells = {"epoch": f"{epoch:.4g}", "train loss": f"{loss:.4f}"}
        for name, score in scores.items():
            if np.size(score) == 1:
                name = "test loss" if name == "loss" else score_name(name, self.suffixes)
                cells[name] = show(score)
        cells["images/s"] = f"{rate * self.images:.0f}"
        cells["time left"] = clock(left / rate) if rate else ""
        if not self.headed:
            self.headed = True
            self.line("  ".join(f"{name:>9}" for name in cells))
        self.line("  ".join(f"{cell:>{max(len(name), 9)}}" for name, cell in cells.items()))

    def saved(self, path: str, best: bool = False) -> None:
        """A snapshot was written; the path of the best one is told at the end, too."""
        if not self.rows:
            super().saved(path, best)


class Lines(Progress):
    """A line every `display` iterations, with the speed and the time left."""

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Show the loss and the speed, unless a row will."""
        super().displayed(iteration, loss, rate)
        if self.rows:
            return
        text = f"iteration {iteration}: loss = {loss:.6g}, lr = {rate:.6g}"
        if speed := self.speed.at(iteration):
            left = clock(((self.solver.spec.max_iter or 0) - iteration) / speed)
            text += f", {speed:.1f} iter/s, {speed * self.images:.0f} images/s, {left} left"
        self.line(text)


class Quiet(Progress):
    """Nothing but what failed: what else must be known stands beside the result."""

    def line(self, text: str) -> None:
        """Say nothing."""

    def failed(self, text: str) -> None:
        """Say what did not succeed."""
        super().line(text)


class Json(Quiet):
    """The lines of the run's log on stdout, and nothing else there; on stderr what failed, and warnings."""

    lost: OSError | None = None

    def hear(self, line: dict[str, Any]) -> None:
        """Put a line on stdout; if nobody reads there any more, training goes on."""
        if self.lost is not None:
            return
        try:
            print(json_line(line), flush=True)
        except OSError as error:
            self.lost = error
            with contextlib.suppress(OSError, ValueError):  # of what Python still writes at its end
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.failed(f"stdout: {error.strerror}: training goes on without")

    def result(self, text: str) -> None:
        """The lines hold it."""

    def code(self) -> int:
        """The exit code. Raises MinicaffeError if not all lines could be put on stdout."""
        if self.lost is not None:
            raise MinicaffeError(
                f"not all lines could be put on stdout: {self.lost.strerror}; the run's log holds them"
            )
        return 0


class Bar(Progress):
    """A bar with loss, learning rate, images/s and the time left."""

    bar: tqdm[Any] | None = None

    def begin(self, solver: Solver) -> None:
        """Open the bar."""
        from tqdm import tqdm

        super().begin(solver)
        form = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
        most, done, self.due = solver.spec.max_iter, solver.iteration, 0.0
        self.bar = tqdm(total=most, initial=done, dynamic_ncols=True, bar_format=form)

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
        """Move the bar and, once a second, the loss in it."""
        if self.bar is None:
            return
        self.bar.update()
        now = time.perf_counter()
        if now >= self.due and solver.communicator.size == 1:
            self.due = now + 1
            losses = solver.watch.told(solver.device).losses[: max(solver.iterations.recorded, 1)]
            self.displayed(solver.iteration, float(np.mean(losses)), solver.rate)

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """Put the loss into the bar."""
        if self.bar is not None:
            super().displayed(iteration, loss, rate)
            speed = self.speed.at(iteration) * self.images
            shown = f", {speed:.0f} images/s" if speed else ""
            self.bar.set_postfix_str(f"loss={loss:.4g}, lr={rate:.4g}{shown}")


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def score_table(scores: Mapping[str, Any], suffixes: Sequence[str] = ()) -> str:
    """Test scores as a table, an array with a row an entry; `suffixes` as in `Report.tests_on`."""
    rows: list[tuple[str, ...]] = []
    for name, score in scores.items():
        values = np.ravel(score)
        name = score_name(name, suffixes)
        labels = [name] if values.size == 1 else [f"{name}[{i}]" for i in range(values.size)]
        rows += [(label, show(value)) for label, value in zip(labels, values, strict=True)]
    return table(rows, ("output" if any(suffixes) else "test output", "mean"))
