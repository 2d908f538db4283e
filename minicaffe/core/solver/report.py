"""The report of a solver while it trains, as lines on stderr; and the record of its run, if it has one."""

import contextlib
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minicaffe.core.communicator import together
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.config.types import keys_of
from minicaffe.core.net.summary import table
from minicaffe.errors import printable


class Report:
    """Plain lines. Subclass it to show training in another way."""

    unheard = False
    suffixes: Sequence[str] = ()  # of each test net's scores, see `tests_on`

    def line(self, text: str) -> None:
        """Show one line. A reader or terminal that has gone stops the lines, not the training."""
        try:
            if not self.unheard:
                self.write("\n".join(map(printable, text.split("\n"))))
        except OSError:
            self.unheard = True

    def write(self, text: str) -> None:
        """Put one line on stderr."""
        print(text, file=sys.stderr, flush=True)

    def failed(self, text: str) -> None:
        """Something failed, and training went on: the user must know."""
        self.line(text)

    def event(self, text: str) -> None:
        """An event for the record of a run: resumed, stopped early, a setting that changed."""
        self.line(text)

    def started(self, warnings: Sequence[str]) -> None:
        """Training starts; the user must know of the warnings."""
        for warning in warnings:
            self.line(banner(warning))

    def finished(self, warnings: Sequence[str]) -> None:
        """Training has ended; the warnings are repeated beside its result."""
        self.started(warnings)

    def iterated(self, solver: Any) -> None:
        """An iteration of a Solver is done."""

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """The loss was read back."""
        self.line(f"iteration {iteration}: loss = {loss:.6g}, lr = {rate:.6g}")

    def tests_on(self, suffixes: Sequence[str]) -> None:
        """Set the suffixes of the names of each test net's scores, such as " on the training pictures"."""
        self.suffixes = suffixes

    def testing(self, iteration: int) -> None:
        """A test begins."""

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """A test is done; `scores` are the means of the test net's outputs."""
        text = ", ".join(f"{score_name(k, self.suffixes)} = {show(v)}" for k, v in scores.items())
        text += " (before training)" * (iteration == 0)
        self.line(f"iteration {iteration}: {'test ' * (not any(self.suffixes))}{text}")

    def saving(self, path: str) -> None:
        """A snapshot is about to be written."""

    def saved(self, path: str, best: bool = False) -> None:
        """A snapshot was written; `best` if it is that of the best test so far."""
        self.line(f"{'best ' * best}snapshot: {printable(path)}")


class Mute(Report):
    """Reports nothing: for ranks other than 0."""

    unheard = True


def score_name(name: str, suffixes: Sequence[str]) -> str:
    """A score's name with its net's suffix; with several nets, the number of its net comes first.

    >>> score_name("1/accuracy", ["", " on the training pictures"])
    '1/accuracy on the training pictures'
    """
    number = name.partition("/")[0] if len(suffixes) > 1 else "0"
    return name + suffixes[int(number)] if suffixes else name


def banner(warning: str) -> str:
    """A warning that cannot be missed, its first sentence as the title.

    >>> print(banner("NOT MNIST. Accuracies are others."))
    !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!! NOT MNIST !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!
    !!! Accuracies are others.
    !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!
    """
    title, _, text = warning.partition(". ")
    lines = textwrap.wrap(text, 75, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f" {title} ".center(79, "!"), *(f"!!! {line}" for line in lines), "!" * 79])


def show(score: Any) -> str:
    """A score with four decimals; those of an array side by side.

    >>> show(0.99041)
    '0.9904'
    """
    return " ".join(f"{float(value):.4f}" for value in getattr(score, "ravel", lambda: [score])())


def keys_given(spec: SolverSpec) -> str:
    """The keys of a solver that differ from their defaults, as a table.

    >>> print(keys_given(SolverSpec(base_lr=0.1, max_iter=5)))
    key       value
    base_lr     0.1
    max_iter      5
    """
    values = [(key, getattr(spec, key.name)) for key in keys_of(SolverSpec).values()]
    rows = [(key.name, str(value)) for key, value in values if value != key.default]
    return table(rows, ("key", "value"))


@contextlib.contextmanager
def recorded(solver: Any, ends: bool) -> Iterator[None]:
    """A context that records a Solver's call in its run's folder, on rank 0; with `ends` the run ends."""
    recorder, first, error = solver._kept, solver.communicator.rank == 0, None
    together(solver.communicator, lambda: recorder.enter(solver) if first else None)
    recorder.inside = True
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        recorder.inside = False
        if first:
            recorder.leave(solver, error, ends)
