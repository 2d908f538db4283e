"""What a solver tells while it trains: plain lines on stderr; the command line draws a bar instead."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minicaffe.solver.solver import Solver


class Report:
    """Plain lines. Subclass it to show training in another way."""

    def line(self, text: str) -> None:
        """Show one line."""
        print(text, file=sys.stderr, flush=True)

    def warned(self, warning: str) -> None:
        """The user must know of this: said when training starts and beside its result."""
        self.line(banner(warning))

    def iterated(self, solver: Solver) -> None:
        """An iteration is done."""

    def displayed(self, iteration: int, loss: float, rate: float) -> None:
        """The loss was read back."""
        self.line(f"iteration {iteration}: loss = {loss:.6g}, lr = {rate:.6g}")

    def tested(self, iteration: int, scores: Mapping[str, Any]) -> None:
        """A test is done; `scores` are the means of the test net's outputs."""
        self.line(
            f"iteration {iteration}: test "
            + ", ".join(f"{k} = {show(v)}" for k, v in scores.items())
        )

    def saved(self, path: str) -> None:
        """A snapshot was written."""
        self.line(f"snapshot: {path}")


def banner(warning: str) -> str:
    """A warning that cannot be missed."""
    rule = "!" * 79
    return f"{rule}\n!!! {warning}\n{rule}"


def show(score: Any) -> str:
    """A score in four decimals, those of an array side by side.

    >>> show(0.99041)
    '0.9904'
    """
    values = getattr(score, "ravel", lambda: [score])()
    return " ".join(f"{float(value):.4f}" for value in values)
